"""The source of one version of the ladder: the kernel of `flashlearn.kernels.ladder` with its switches set.

    print(source_of("exp2"))                 the kernel as that version runs it under a causal mask, without a switch
    print(changed("fused", "exp2"))          the lines in which two versions differ

Nothing is typed here: the kernel's own source is read, and every `if` on a switch is decided.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping

from flashlearn.kernels.forward import forward_launch
from flashlearn.kernels.ladder import TUNED, VERSIONS, Version, descriptors_kernel, ladder_kernel, update, update_block


def source_of(name: str, D: int = 128) -> str:
    """The launch of the version for float16 and a causal mask, its kernel, and the functions that this calls."""
    return "\n".join(_wrapped(line) for line in _lines(name, D))


def changed(before: str, after: str, only: str = "", D: int = 128) -> str:
    """The lines that a version no longer has (-) and those that it has instead (+), in order.

    only   a pattern that a line must have to be shown, where most of a kernel changes
    """
    lines = list(difflib.unified_diff(_lines(before, D), _lines(after, D), n=0, lineterm=""))[2:]
    kept = [line for line in lines if line[0] in "+-" and line[1:].strip() and re.search(only, line)]
    return "\n".join(map(_wrapped, kept))


def _lines(name: str, D: int) -> list[str]:
    version = VERSIONS[name]
    switches = {"CAUSAL": True, "EXP2": version.exp2, "SKIP": version.skip, "SPLIT": version.split}
    parts = [descriptors_kernel] if version.descriptors else [ladder_kernel, update_block]
    texts = [_launch(version, D), *(decided(part.fn, switches) for part in (*parts, update))]
    return "\n\n".join(texts).splitlines()


def _wrapped(line: str) -> str:
    indent = " " * (len(line) - len(line[1:].lstrip()) + 4)
    return "\n".join(textwrap.wrap(line, 104, subsequent_indent=indent, drop_whitespace=True) or [line])


def decided(function: Callable, switches: Mapping[str, bool]) -> str:
    """The body of a function with the value of every switch inserted, without the code that no longer runs."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(tree, ast.FunctionDef)
    body = tree.body[1:] if ast.get_docstring(tree) else tree.body
    module = _Decide(switches).visit(ast.Module(body, type_ignores=[]))
    module.body = [
        one for one, after in zip(module.body, [*module.body[1:], None], strict=True) if not _lost(one, after)
    ]
    lines = ast.unparse(module).splitlines()
    return "\n".join([f"def {tree.name}(...):", *("    " + line for line in lines)])


def _lost(one: ast.stmt, after: ast.stmt | None) -> bool:
    """Whether a statement sets a name that the next one sets anew, without reading it."""
    if not (isinstance(one, ast.Assign) and isinstance(after, ast.Assign)):
        return False
    same = ast.unparse(one.targets[0]) == ast.unparse(after.targets[0])
    return same and ast.unparse(one.targets[0]) not in {
        part.id for part in ast.walk(after.value) if isinstance(part, ast.Name)
    }


class _Decide(ast.NodeTransformer):
    """Insert the values of the switches, decide the branches on them, and pass none of them to a function."""

    def __init__(self, switches: Mapping[str, bool]):
        self.switches = switches

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(self.switches[node.id]) if node.id in self.switches else node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        node.args = [each for each in node.args if not (isinstance(each, ast.Name) and each.id in self.switches)]
        node.keywords = [each for each in node.keywords if each.arg not in self.switches]
        self.generic_visit(node)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        parts = [part.value for part in node.values if isinstance(part, ast.Constant)]
        if len(parts) < len(node.values):
            raise ValueError(f"expected switches alone in a condition, got {ast.unparse(node)}")
        return ast.Constant(all(parts) if isinstance(node.op, ast.And) else any(parts))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.op, ast.Not) and isinstance(node.operand, ast.Constant):
            return ast.Constant(not node.operand.value)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        return (node.body if node.test.value else node.orelse) if isinstance(node.test, ast.Constant) else node

    def visit_If(self, node: ast.If) -> ast.If | list[ast.stmt]:
        self.generic_visit(node)
        return (node.body if node.test.value else node.orelse) if isinstance(node.test, ast.Constant) else node


def _launch(version: Version, D: int) -> str:
    """One line: blocks, warps, stages, and the factor that goes into the scale."""
    launch = TUNED[D] if version.tuned else forward_launch(D, 2)
    sizes = f"BLOCK_M={launch.block_m}, BLOCK_N={launch.block_n}"
    options = f"num_warps={launch.num_warps}, num_stages={launch.num_stages}"
    kernel = "descriptors_kernel" if version.descriptors else "ladder_kernel"
    return f"{kernel}[grid](..., {'scale * LOG2_E' if version.exp2 else 'scale'}, {sizes}, {options})"
