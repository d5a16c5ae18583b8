"""The message of Triton's compiler for a kernel that it rejects, on any machine with Triton, with a GPU or without.

    rejection = rejected(kernel, {"x_ptr": "*fp16", "N": "i32"}, {"BLOCK": 64})
    rejection.line, rejection.says, rejection.plain     "acc += tl.dot(p, v)", "AssertionError(...)", "acc changes ..."

The kernel may be one that this process interprets: the compiler gets its source, in a separate process.
"""

from __future__ import annotations

import ast
import functools
import inspect
import json
import re
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

from flashlearn.compiler import process
from flashlearn.compiler.process import in_process, job_of

# (what the compiler's message contains, what it means); of several that match the first
PLAIN = (
    (
        r"Loop-carried variable (\w+) has initial type (.+) but is re-assigned to (.+) in loop",
        "{1} enters the loop as {2} and leaves it as {3}. The compiled loop keeps {1} in one place, which cannot change its "
        "type: make {1} what it will be before the loop, tl.full or tl.zeros with its shape and dtype=tl.float32",
    ),
    (
        r"initial value for `(\w+)` is of type (.+), but the \w+ block redefines it as ([^']+)",
        "{1} is {2} before the if and {3} after it: both ways through an if must leave {1} with one shape and one "
        "dtype. Give it that before the if, or use tl.where",
    ),
    (
        r"Mismatched type for (\w+) between then block \((.+)\) and else block \((.+)\)",
        "{1} is {2} if the condition holds and {3} otherwise: both ways through an if must leave {1} with one shape and one dtype",
    ),
    (
        r"NameError\('(\w+) is not defined'\)",
        "{1} is set inside an if or a loop alone, and used behind it. Python minds only if that part never ran; the compiler "
        "minds always, because it may not run: set {1} before",
    ),
    (
        r"arange's arguments must be of type tl.constexpr",
        "tl.arange wants lengths that are known when the kernel is compiled. A name that was assigned in the kernel no longer "
        "counts as one: write the constexpr itself, or the tile's own length, as x.shape[1] of a tile x, into tl.arange",
    ),
    (
        r"Cannot access global variable (\w+)",
        "{1} is a plain number outside of the kernel, and may change after the kernel was compiled: say "
        "{1} = tl.constexpr(...), or pass it as an argument",
    ),
    (r"range must be a power of 2", "tl.arange makes a power of two of elements: take the next one, and mask"),
    (
        r"Input shapes should have M >= (\d+), N >= (\d+) and K >= (\d+)",
        "the matrix units multiply nothing that small: of a product (M, K) times (K, N), K must be at least {3}",
    ),
    (
        r"Both operands must be same dtype. Got (\w+) and (\w+)",
        "tl.dot gets two dtypes and multiplies one at a time: bring one to the other, as p.to(v.dtype)",
    ),
    (r"unsupported tensor index", "a tile has no elements to pick: s[0] does not exist. Use tl.sum with tl.where"),
    (r"unsupported AST node type: Break", "there is no break: let the end of range() say where the loop stops"),
    (
        r"Boolean value of Tensor with more than one value",
        "an if takes one number, and got a tile: tl.where chooses entry by entry",
    ),
    (r"'MatMult' object", "there is no @ between tiles: tl.dot multiplies them"),
    (
        r"AssertionError\(\)(?s:.*)tl\.dot\(|tl\.dot\((?s:.*)AssertionError\(\)",
        "the third argument of tl.dot, to which the product is added, must be float32, as the product is",
    ),
    (
        r"[Cc]annot make shape_compatible|incompatible dimensions at index (\d+): (\d+) and (\d+)",
        "two tiles of different shapes meet: t[:, None] lays numbers along the rows, t[None, :] along the columns",
    ),
)


FROZEN = (
    "{0} begins as the value of {1}, and is set to it again in each iteration, before {1} changes: compiled, the loop leaves {0} "
    "at its first value. Begin with a value of its own, or take {1} after it has changed"
)


class Rejection(NamedTuple):
    """Why a kernel does not compile: the line, the compiler's message, and its meaning, where it is known."""

    line: str
    says: str
    plain: str


def rejected(
    kernel: Any, kinds: dict[str, str], constants: dict[str, Any], capability: int = 90, num_warps: int = 4
) -> Rejection | None:
    """Compile a kernel for a GPU of this compute capability, 90 for an H100; None if the compiler accepts it.

    A kernel that it accepts and compiles wrongly (`frozen`) counts as rejected.

    kernel     with or without @triton.jit, compiled or interpreted here
    kinds      the type of each argument that is no constant: "*fp16" a pointer, "i32" or "fp32" a number
    constants  the values of the others, by name
    """
    function = getattr(kernel, "fn", kernel)
    names = list(inspect.signature(function).parameters)
    if set(names) != {*kinds, *constants}:
        raise ValueError(f"expected the arguments {', '.join((*kinds, *constants))}, got {', '.join(names)}")
    job = job_of(function, kinds, constants, capability, num_warps=num_warps)
    found = _compile(json.dumps(job))
    return in_the_loop(without_name(found, job["source"]), job["source"]) if found else frozen(job["source"])


def without_name(rejection: Rejection, source: str) -> Rejection:
    """The same, or, if a name is missing that is set nowhere, a rejection that says so."""
    missing = re.search(r"NameError\('(\w+) is not defined'\)", rejection.says)
    known = {
        node.id
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    if not missing or missing[1] in known:
        return rejection
    return rejection._replace(plain=f"nothing in the kernel is called {missing[1]}: is it spelled as where it was set?")


def in_the_loop(rejection: Rejection, source: str) -> Rejection:
    """The same; if a loop changes the type of a name, with the last line of the loop that sets the name."""
    changed = re.search(r"Loop-carried variable (\w+) has", rejection.says)
    lines = source.splitlines()
    for loop in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.For | ast.While)):
        names = [node for node in ast.walk(loop) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
        stored = [node.lineno for node in names if changed and node.id == changed[1]]
        if stored and lines[loop.lineno - 1].strip() == rejection.line:
            return rejection._replace(line=lines[max(stored) - 1].strip())
    return rejection


def frozen(source: str) -> Rejection | None:
    """The first name that a compiled loop never changes, though something reads it; None if there is none.

    It begins as another name's value, and is set to that value in each iteration before it changes: `last = now` before
    the loop and in it. Triton 3.6 to 3.9 find no change in the first iteration, and carry nothing; the interpreter
    does.
    """
    for function in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)):
        taken = list(_names_taken(function))
        loops = [node for node in ast.walk(function) if isinstance(node, ast.For | ast.While)]
        for loop in loops:
            around = min(outer.lineno for outer in loops if outer.lineno <= loop.lineno <= _last(loop) <= _last(outer))
            before = {(name, other) for name, other, node in taken if node.lineno < loop.lineno}
            names = [node for node in ast.walk(loop) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
            for name, other, node in _names_taken(loop):
                changes = min((stored.lineno for stored in names if stored.id == other), default=0)
                same = (each for each in ast.walk(function) if isinstance(each, ast.Name) and each.id == name)
                reads = [each.lineno for each in same if isinstance(each.ctx, ast.Load)]
                carried = any(around <= line < node.lineno or line > _last(loop) for line in reads)
                if (name, other) in before and node.lineno < changes and carried:
                    line = ast.unparse(node)
                    return Rejection(line, "nothing: it compiles, and is wrong", FROZEN.format(name, other))
    return None


def _last(loop: ast.stmt) -> int:
    """The number of its last line."""
    return loop.end_lineno or loop.lineno


def _names_taken(tree: ast.AST) -> Iterator[tuple[str, str, ast.Assign]]:
    """(name, other, the assignment) wherever a name becomes the unchanged value of another."""
    for node in (node for node in ast.walk(tree) if isinstance(node, ast.Assign)):
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            for name, other in pairs:
                if isinstance(name, ast.Name) and isinstance(other, ast.Name):
                    yield name.id, other.id, node


@functools.lru_cache(maxsize=256)
def _compile(job: str) -> Rejection | None:
    """Compile it; each kernel once."""
    with tempfile.TemporaryDirectory(prefix="flashlearn-") as cache:
        done = in_process([process.__file__], json.loads(job), TRITON_CACHE_DIR=cache)
    return explained(done.stderr) if done.returncode else None


def explained(said: str) -> Rejection:
    """A rejection from the traceback that ends the compiler: the innermost of its errors."""
    said = re.sub(r"\x1b\[[\d;]*m", "", said)  # Python 3.13 colours tracebacks in Jupyter
    found = re.search(r"\w+(?:Error|Construct): at (\d+):\d+:\n(.*?)(?=\n\n\S|\nThe above|\Z)", said, re.DOTALL)
    if not found:
        return Rejection("", said.strip().rpartition("\n")[2], "")
    shown, _, says = found.group(2).rpartition("^\n") if "^\n" in found.group(2) else (found.group(2), "", "")
    code = [line for line in shown.splitlines() if line.strip(" ^")]
    says = says.strip() or "AssertionError()"
    return Rejection(code[-1].strip() if code else "", says, in_plain_english(f"{says}\n{code[-1] if code else ''}"))


def in_plain_english(message: str) -> str:
    """The meaning of a message of the compiler, empty if it is not known."""
    for pattern, plain in PLAIN:
        found = re.search(pattern, message)
        if found:
            return plain.format("", *map(_in_words, found.groups(default="")))
    return ""


def _in_words(text: str) -> str:
    """A type as the compiler writes it, in words: <['16', '64'], fp32> is a float32 tile of 16 by 64."""
    tile = re.search(r"[\[<]", text)
    dtype = re.search(r"\b([fb]p|bf|int|uint)(\d+)\b", text)
    if not dtype or not (tile or dtype.group() == text):
        return text
    name = {"fp": "float", "bf": "bfloat"}.get(dtype[1], dtype[1]) + dtype[2]
    sides = re.findall(r"\d+", text.replace(dtype.group(), ""))
    return f"a {name} tile of {' by '.join(sides)}" if sides else f"one {name} number"
