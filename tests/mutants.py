"""Mutants of one token: a kernel's source with one bound, dtype, comparison, factor, mask or name changed.

for mutant in mutants(kernel_solution):
    mutant.kind, mutant.described   "bound", "line 15: BLOCK_M -> BLOCK_M - 1"
    mutant.kernel()               the changed kernel

The changes are made in the syntax tree, one at a time; two that give the same program count once.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from flashlearn.exercises.altered import run

WHOLE_NUMBERS = ("N_q", "N_k", "BLOCK_M", "BLOCK_N", "D", "start_m", "start_n", "rows", "keys", "head", "end", "first")
SWAPPED = (
    *(("N_q", "N_k"), ("BLOCK_M", "BLOCK_N"), ("rows", "keys"), ("at_q", "at_k"), ("q", "k"), ("k", "v"), ("q", "do")),
    *(("q_ptr", "k_ptr"), ("k_ptr", "v_ptr"), ("q_ptr", "do_ptr"), ("lse_ptr", "delta_ptr"), ("lse", "delta")),
    *(("m", "m_new"), ("m_new", "base"), ("p", "s"), ("alpha", "l"), ("dk", "dv"), ("p_t", "ds_t"), ("p_t", "s_t")),
    *(("dp_t", "p_t"), ("dk_ptr", "dv_ptr"), ("start_m", "start_n")),
)
FUNCTIONS = {
    "maximum": ("minimum",),
    "minimum": ("maximum",),
    "exp2": ("exp",),
    "log2": ("log",),
    "max": ("min", "sum"),
    "sum": ("max",),
    "float32": ("float16", "bfloat16"),
    "int64": ("int32",),
    "zeros": (),
}
COMPARISONS: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Eq: (ast.NotEq,),
}
OPERATIONS: dict[type, tuple[type, ...]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.BitAnd: (ast.BitOr,),
}
NUMBERS = {
    "0": ("1",),
    "1": ("0", "2"),
    "0.0": ("1.0", "-1.0"),
    "1.0": ("0.0", "2.0"),
    "0.6931471805599453": ("1.0", "0.69"),
    "1.4426950408889634": ("1.0", "1.44"),
}
ROUNDED = "({}).to(q_ptr.dtype.element_ty).to(tl.float32)"
TILES = "s m m_new base p alpha l acc o s_t p_t dp_t ds_t dk dv lse delta".split()


class Mutant(NamedTuple):
    """One change of a kernel: its kind, the line of the kernel's source, what was there and what is, and the new text."""

    kind: str
    line: int
    old: str
    new: str
    changed: str  # the first line of the text that is not as it was
    source: str
    function: Callable

    @property
    def described(self) -> str:
        return f"line {self.line}: {self.old} -> {self.new}"

    def kernel(self) -> Callable:
        name = self.function.__name__
        return run(self.source, f"<{name}, {self.described}>", dict(self.function.__globals__))[name]


def mutants(function: Callable) -> list[Mutant]:
    """All mutants of one token, in the order of the source; the first of those that are the same program."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    original = ast.unparse(tree)
    found: dict[str, Mutant] = {original: Mutant("", 0, "", "", "", "", function)}
    for kind, line, old, new in _changes(tree):
        source = ast.unparse(tree)
        if source not in found:
            lines = zip(original.splitlines(), source.splitlines(), strict=False)
            changed = next(after.strip() for before, after in lines if before != after)
            found[source] = Mutant(kind, line, old, new, changed, source, function)
    return list(found.values())[1:]


def _changes(tree: ast.Module) -> Iterator[tuple[str, int, str, str]]:
    """Make one change in the tree, say (kind, line, old, new), take it back, and go on with the next."""
    (function,) = tree.body
    for parent in [node for statement in function.body for node in ast.walk(statement)]:  # type: ignore[attr-defined]
        for field, value in ast.iter_fields(parent):
            for place, child in enumerate(value) if isinstance(value, list) else ((None, value),):
                if isinstance(child, ast.expr | ast.stmt):
                    yield from _at(parent, field, place, child)
    for place, statement in enumerate(function.body):  # type: ignore[attr-defined]
        yield from _at(function, "body", place, statement)


def _at(parent: ast.AST, field: str, place: int | None, child: Any) -> Iterator[tuple[str, int, str, str]]:
    def put(node: Any) -> None:
        if place is None:
            setattr(parent, field, node)
        else:
            getattr(parent, field)[place] = node

    for kind, text in _alternatives(parent, field, child):
        node = ast.parse(text).body[0]
        put(node if isinstance(child, ast.stmt) else node.value)  # type: ignore[attr-defined]
        yield kind, child.lineno, ast.unparse(child).partition("\n")[0], text.partition("\n")[0]
        put(child)


def _alternatives(parent: ast.AST, field: str, node: Any) -> Iterator[tuple[str, str]]:
    """(kind, text) of all that may be in the place of this node."""
    if isinstance(node, ast.stmt):
        yield from _of_statement(node)
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield from _of_name(parent, field, node.id)
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield from (("factor", new) for new in NUMBERS.get(repr(node.value), ()))
    elif isinstance(node, ast.Constant) and node.value == "-inf":
        yield "factor", repr("inf")
    elif isinstance(node, ast.Attribute):
        yield from ((_kind_of_function(node.attr), f"tl.{new}") for new in FUNCTIONS.get(node.attr, ()))
    elif isinstance(node, ast.Compare):
        left, right = ast.unparse(node.left), ast.unparse(node.comparators[0])
        for new in COMPARISONS[type(node.ops[0])]:
            yield "comparison", ast.unparse(ast.Compare(node.left, [new()], node.comparators))
        sign = ast.unparse(ast.Compare(ast.Name("_"), node.ops, [ast.Name("_")]))[2:-2]
        yield from (("comparison", f"{left} {sign} ({right}) {by}") for by in ("+ 1", "- 1"))
    elif isinstance(node, ast.BinOp):
        for new in OPERATIONS[type(node.op)]:
            yield "factor", f"({ast.unparse(ast.BinOp(node.left, new(), node.right))})"
        yield from (("factor", ast.unparse(side)) for side in (node.left, node.right))
    elif isinstance(node, ast.Call):
        yield from _of_call(node)
    elif isinstance(node, ast.Subscript):
        text = ast.unparse(node)
        turned = {"[:, None]": "[None, :]", "[None, :]": "[:, None]"}
        yield from (("name", text.removesuffix(old) + new) for old, new in turned.items() if text.endswith(old))


def _kind_of_function(name: str) -> str:
    return "dtype" if name[-1].isdigit() and name not in ("exp2", "log2") else "bound" if "imum" in name else "factor"


def _of_statement(node: ast.stmt) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Assign | ast.Expr):
        yield "statement", "pass"
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in TILES:
        yield "dtype", f"{node.targets[0].id} = {ROUNDED.format(ast.unparse(node.value))}"
    if isinstance(node, ast.If):
        body = textwrap.indent("\n".join(map(ast.unparse, node.body)), "    ")
        yield from (("statement", f"if {test}:\n{body}") for test in ("True", "False", "not CAUSAL"))


def _of_name(parent: ast.AST, field: str, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(parent, ast.Attribute) or name == "tl" or (isinstance(parent, ast.Call) and field == "func"):
        return
    yield from (("bound", f"({name} {by})") for by in ("+ 1", "- 1") if name in WHOLE_NUMBERS)
    for one, other in SWAPPED:
        yield from (("name", new) for old, new in ((one, other), (other, one)) if name == old)


def _of_call(node: ast.Call) -> Iterator[tuple[str, str]]:
    name = ast.unparse(node.func)
    args = [ast.unparse(arg) for arg in node.args]
    words = [ast.unparse(word) for word in node.keywords]
    for left_out in words:
        kind = "dtype" if left_out.startswith("input_precision") else "mask"
        yield kind, f"{name}({', '.join([*args, *(word for word in words if word != left_out)])})"
    if name == "tl.where":
        yield from (("mask", text) for text in (args[1], args[2], f"tl.where({args[0]}, {args[2]}, {args[1]})"))
    elif name in ("tl.maximum", "tl.minimum", "tl.trans"):
        yield from (("bound", arg) for arg in args)
    elif name == "tl.dot":
        yield "factor", f"tl.dot({', '.join([args[1], args[0], *args[2:], *words])})"
        if args[2:]:
            yield "factor", f"tl.dot({', '.join([*args[:2], *words])})"
            yield "factor", f"tl.dot({', '.join([*args[:2], args[2].partition(' * ')[0], *words])})"
    elif name == "range":
        yield "bound", f"range({args[0]}, {args[1]} - {args[2]}, {args[2]})"
        yield "bound", f"range({args[0]} + {args[2]}, {args[1]}, {args[2]})"
    elif name.endswith(".to"):
        yield "dtype", name.removesuffix(".to")
