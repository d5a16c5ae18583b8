"""Mutants of plain answers: a solution's source with one operation, number, name, call or line changed.

for mutant in mutants(merge_solution):
    mutant.described      "line 6: torch.maximum(m_a, m_b) -> torch.minimum(m_a, m_b)"
    mutant.function()     the changed function

Each change is made in the syntax tree, one at a time; changes that give the same program count once.
"""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import NamedTuple

from flashlearn.exercises.altered import run

OPERATORS: dict[type, tuple[type, ...]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div, ast.Add),
    ast.Div: (ast.Mult, ast.FloorDiv),
    ast.FloorDiv: (ast.Div,),
    ast.Pow: (ast.Mult,),
    ast.MatMult: (ast.Mult,),
}
COMPARISONS: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.In: (ast.NotIn,),
}
CALLS = {
    "max": ("min", "sum"),
    "min": ("max",),
    "maximum": ("minimum",),
    "sum": ("mean", "amax"),
    "exp": ("exp2", "expm1", "log"),
    "log": ("log2", "log1p", "exp"),
    "sqrt": ("square",),
    "softmax": ("log_softmax",),
    "ceil": ("floor",),
    "zeros_like": ("ones_like",),
    "logaddexp": ("maximum", "add"),
    "all": ("any",),
}


class Mutant(NamedTuple):
    """One change of an answer: the line, what was there and what is there now, and the whole text."""

    line: int
    old: str
    new: str
    source: str
    of: Callable

    @property
    def described(self) -> str:
        return f"line {self.line}: {self.old} -> {self.new}"

    def function(self) -> Callable:
        name = self.of.__name__
        return run(self.source, f"<{name}, {self.described}>", dict(self.of.__globals__))[name]


def mutants(function: Callable) -> list[Mutant]:
    """All mutants, in the order of the source; of those that are the same program the first."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    found = {ast.unparse(tree): Mutant(0, "", "", "", function)}
    nodes = list(ast.walk(tree))
    for at, node in enumerate(nodes):
        for number in range(sum(1 for _ in changed(node, tree))):
            other = copy.deepcopy(tree)
            there = list(ast.walk(other))[at]
            new = next(each for n, each in enumerate(changed(there, other)) if n == number)
            old = ast.unparse(node)
            _Put(there, new).visit(other)
            source = ast.unparse(ast.fix_missing_locations(other))
            line = getattr(node, "lineno", 0)
            found.setdefault(source, Mutant(line, old, ast.unparse(new) if new else "(left out)", source, function))
    return sorted(list(found.values())[1:], key=lambda mutant: mutant.line)


class _Put(ast.NodeTransformer):
    """`new` instead of `old` in a tree."""

    def __init__(self, old: ast.AST, new: ast.AST):
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else self.generic_visit(node)


def changed(node: ast.AST, tree: ast.AST) -> Iterator[ast.AST]:
    """What may replace this node."""
    if isinstance(node, ast.BinOp):
        yield from _operations(node)
    elif isinstance(node, ast.Compare):
        for other in COMPARISONS.get(type(node.ops[0]), ()):
            yield ast.Compare(node.left, [other()], node.comparators)
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.Constant):
        yield from _numbers(node)
    elif isinstance(node, ast.Call):
        yield from _calls(node)
    elif isinstance(node, ast.Attribute) and node.attr in ("mT", "T"):
        yield node.value
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        yield node.value
    elif isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load) and len(node.elts) > 1:
        yield ast.Tuple([*node.elts[1:], node.elts[0]], node.ctx)
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield from _names(node, tree)
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        yield from _conditions(node)
    elif isinstance(node, ast.Assign | ast.AugAssign):
        yield ast.Pass()


def _operations(node: ast.BinOp) -> Iterator[ast.AST]:
    for other in OPERATORS.get(type(node.op), ()):
        yield ast.BinOp(node.left, other(), node.right)
    yield node.left
    yield node.right
    if not isinstance(node.op, ast.Add | ast.Mult):
        yield ast.BinOp(node.right, node.op, node.left)


def _numbers(node: ast.Constant) -> Iterator[ast.AST]:
    value = node.value
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int):
        yield from (ast.Constant(value + 1), ast.Constant(value - 1))
    elif isinstance(value, float):
        yield from (ast.Constant(value + 1), ast.Constant(2 * value), ast.Constant(0.0))


def _calls(node: ast.Call) -> Iterator[ast.AST]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    for other in CALLS.get(name, ()):
        if isinstance(node.func, ast.Attribute):
            yield ast.Call(ast.Attribute(node.func.value, other, ast.Load()), node.args, node.keywords)
        else:
            yield ast.Call(ast.Name(other, ast.Load()), node.args, node.keywords)
    for place in range(len(node.keywords)):
        yield ast.Call(node.func, node.args, [*node.keywords[:place], *node.keywords[place + 1 :]])
    if len(node.args) > 1:
        yield ast.Call(node.func, [node.args[1], node.args[0], *node.args[2:]], node.keywords)
    if node.args:
        yield node.args[0]  # exp(x) becomes x
    if isinstance(node.func, ast.Attribute) and not isinstance(node.func.value, ast.Name):
        yield node.func.value  # t.sum(-1) becomes t
    elif isinstance(node.func, ast.Attribute) and node.func.value.id not in ("torch", "math"):
        yield node.func.value


def _names(node: ast.Name, tree: ast.AST) -> Iterator[ast.AST]:
    """The other arguments of the function, and the other names that it gives values to, in the place of one of them."""
    own = [argument.arg for argument in ast.walk(tree) if isinstance(argument, ast.arg)]
    own += [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    if node.id in own:
        for other in dict.fromkeys(own):
            if other != node.id:
                yield ast.Name(other, ast.Load())


def _conditions(node: ast.If | ast.IfExp | ast.While) -> Iterator[ast.AST]:
    if isinstance(node, ast.IfExp):
        yield from (node.body, node.orelse)
    elif isinstance(node, ast.If):
        yield ast.If(ast.Constant(True), node.body, node.orelse)
        yield ast.If(ast.Constant(False), node.body, node.orelse)
