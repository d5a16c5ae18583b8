"""What an answer raised, in plain words, with the line of the answer that raised it."""

from __future__ import annotations

import os
import re
import sys
import traceback
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[1]
OURS = (str(PACKAGE), str(Path(traceback.__file__).parent), "<frozen ", "<string>")  # and whatever is installed
SIZES = r"tensors of different sizes meet, \1 and \2 in dimension \3"
DROPS = re.compile(r"\.(sum|max|amax|min|mean|logsumexp)\(|lse|delta")  # what a row has one number of
KEEP = ". A sum or maximum over a dimension drops it: keepdim=True or [..., None] gives it back"
# What the check raises when it takes apart what was returned
CHECKS = (
    (r"values to unpack \(expected (\d+)", r"\1 values must be returned, in a tuple, and another number came back"),
    (r"cannot unpack non-iterable (\w+) object", r"several values must be returned, in a tuple, and \1 came back"),
    (r"only one element tensors can be converted", "one number must be returned, and a tensor of several came back"),
)
# (what the message contains, what it means); of several that match the first
PLAIN = (
    (
        r"object has no attribute 'scalar'|Cannot call @triton.jit'd outside",
        "a kernel ran outside of a launch, or a tensor of PyTorch met a tile of Triton: "
        "start a kernel with kernel[grid](...), which hands it pointers and numbers",
    ),
    (
        r"expected a rectangle of (\w+), got (\d+) elements",
        r"the \2 addresses form no rectangle of \1, so they are not the tile that was meant: "
        "look at the strides they are made with, and at the mask",
    ),
    (
        r"would be element (-?\d+) of (\w+), which has shape",
        r"an address lies outside of \2, at its element \1: the mask lets through what does not exist, or a stride is wrong",
    ),
    (
        r"program \S+ writes what program \S+ writes",
        "blocks overlap: two programs write the same element, where each should have a block of its own "
        "(offs = pid * BLOCK + tl.arange(0, BLOCK))",
    ),
    (
        r"reads what program \S+ writes|writes what program \S+ reads",
        "one program reads what another writes: programs run in any order, so the result would be left to chance",
    ),
    (
        r"int(\d+) overflow detected",
        r"a whole number passes the range of int\1, and becomes another one: the offset of a head far away may pass 2^31. "
        "Make the head 64 bits wide before anything multiplies it: tl.program_id(1).to(tl.int64)",
    ),
    (r"atomic operation", "this task needs no atomic operation: every element is written by one program alone"),
    (
        r"incompatible dimensions at index (\d+): (\d+) and (\d+)",
        r"two tiles of different shapes meet, \2 and \3 along axis \1: "
        "t[:, None] lays numbers along the rows, t[None, :] along the columns",
    ),
    (
        r"equal reduction dimensions|First input shape .* and second input shape",
        "tl.dot multiplies (M, K) by (K, N), and here the inner sizes differ: is a tl.trans missing, or one too many?",
    ),
    (r"range must be a power of 2", "tl.arange makes a power of two of lanes: take triton.next_power_of_2, and mask"),
    (r"arange\(\) missing", "tl.arange takes a start and an end: tl.arange(0, n)"),
    (
        r"Both operands must be same dtype|Expected lhs and rhs to have the same dtype|both operands to be of the same",
        "both factors of tl.dot must have one dtype: convert one with .to(other.dtype)",
    ),
    (
        r"mat1 and mat2 shapes cannot be multiplied \((\w+) and (\w+)\)",
        r"\1 times \2: the inner sizes of a matrix product must be equal. Is a transpose missing, or one too many?",
    ),
    (
        r"Expected size for first two dimensions of batch2|inconsistent tensor size, expected tensor",
        "the inner sizes of a matrix product must be equal. Is a transpose missing, or one too many?",
    ),
    (
        r"only one element tensors can be converted|only (0-dimensional|length-1|one-element) ",
        "a function for a single number, such as math.exp, float or int, was given a tensor of several: "
        "PyTorch has its own, torch.exp, torch.log",
    ),
    (
        r"Boolean value of Tensor with more than one value",
        "an if or a max() asks for one True or False, and got a tensor of several: use torch.where, torch.maximum, .any()",
    ),
    (
        r"torch\.return_types\.(\w+)",
        r"torch's \1 along a dimension returns a pair of values and indices: take .values",
    ),
    (
        r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\) at non-singleton dimension (\d+)",
        SIZES,
    ),
    (
        r"Sizes of tensors must match except in dimension (\d+)",
        r"tensors that are joined along dimension \1 must have equal sizes in all others: is it the right dimension?",
    ),
    (r"expand\(.*\): the expanded size|shape mismatch|must match the existing size", "a tensor does not fit its place"),
    (r"maximum recursion depth", "the function calls itself without end: is there a case in which it does not?"),
    (
        r"numel\(\) == 0|zero-size|non-zero size",
        "something is asked of an empty tensor: a slice or a piece has no elements",
    ),
    (
        r"expected (?:m1 and m2|scalar type|both).* (?:same dtype|but found|but got)",
        "two dtypes meet: make new tensors in the dtype of the input, dtype=x.dtype",
    ),
    (r"'NoneType' object", "something is None: a function without return, or a value never set"),
    (
        r"local variable '(\w+)' (?:where it is not|referenced before)|name '(\w+)' is not defined",
        r"\1\2 is used before a line gives it a value: is a line missing, or in the wrong place?",
    ),
    (r"missing (\d+) required positional argument", "a function was called with too few arguments"),
    (r"takes (\d+) positional arguments? but (\d+) w", r"a function that takes \1 arguments was called with \2"),
    (r"division by zero", "something is divided by zero"),
)


class Raised(NamedTuple):
    """What was raised: the error in one line, the line of the answer, and what it means, where that is known."""

    error: str
    line: str
    plain: str

    @property
    def text(self) -> str:
        lines = [self.error, f"    {self.line}" if self.line else "", f"That is: {self.plain}" if self.plain else ""]
        return "\n".join(filter(None, lines))


def explain(problem: BaseException) -> Raised:
    """The error without the interpreter's wrapping, in plain words, and where the answer was when it was raised."""
    inner, line = unwrapped(problem), own_line(problem)
    message = next(iter(str(inner).strip().splitlines()), "")
    return Raised(f"{type(inner).__name__}: {message}".removesuffix(": "), line, in_plain_words(str(inner), line))


def in_plain_words(message: str, line: str) -> str:
    """What the message means, empty if that is not known; `line` is empty if the check itself raised it."""
    for pattern, meaning in PLAIN if line else (*CHECKS, *PLAIN):
        found = re.search(pattern, message)
        if found:
            if meaning is SIZES and DROPS.search(line):
                meaning += KEEP
            return found.expand(meaning)
    return ""


def unwrapped(problem: BaseException) -> BaseException:
    """The error inside InterpreterError and CompilationError."""
    while type(problem).__name__ in ("InterpreterError", "CompilationError"):
        inner = problem.__cause__ or problem.__context__
        if inner is None:
            break
        problem = inner
    return problem


def own_line(problem: BaseException) -> str:
    """The innermost line of the answer itself, "line 3: ...", wherever below it the error was raised."""
    found = ""
    chain: BaseException | None = problem
    while chain is not None:
        for frame in traceback.extract_tb(chain.__traceback__):
            if frame.line and not foreign(frame.filename):
                found = f"line {frame.lineno} of {frame.name}: {frame.line}"
        wrapper = type(chain).__name__ in ("InterpreterError", "CompilationError")
        chain = (chain.__cause__ or chain.__context__) if wrapper else None
    return found


def by_the_check(problem: BaseException) -> bool:
    """Whether a check says so of what came back, in words of its own, and the answer raised nothing."""
    frames = traceback.extract_tb(problem.__traceback__)
    ours = bool(frames) and Path(frames[-1].filename).parent == Path(__file__).parent
    return ours and str(problem).startswith("expected ")


def foreign(filename: str) -> bool:
    """Whether a file is part of this package, of Python or of what is installed, and so not of an answer."""
    return (
        (filename.startswith(OURS) and not filename.endswith(f"{os.sep}wrong.py"))  # those are answers
        or any(part in filename for part in ("site-packages", "dist-packages", "/ipykernel/", "/IPython/"))
        or filename.startswith(f"{sys.base_prefix}/lib/python")
    )
