"""A tensor as text, as PyTorch prints it: four digits, all entries of one width."""

import math

from torch.dtypes import FLOATING, bool_, float32, int64

WIDTH, MOST, EDGE = 80, 1000, 3


def text(tensor):
    """tensor([0.5000, 0.2500]), with the type where it is not that of Python's numbers."""
    more = "" if tensor.dtype in (bool_, int64, float32) else f", dtype={tensor.dtype}"
    more = f", size={tuple(tensor.shape)}{more}" if not tensor.numel() and tensor.shape != (0,) else more
    return f"tensor({_nested(tensor, _entry(tensor), 7, tensor.numel() > MOST)}{more})"


def _entry(tensor):
    """A function that writes an entry, so that all have one width."""
    values = tensor.reshape(-1).tolist()
    if tensor.dtype.kind != FLOATING:
        width = max(map(len, map(str, values)), default=1) if tensor.shape else 0
        return lambda v: f"{v!s:>{width}}"
    sizes = [abs(v) for v in values if v and v - v == 0]
    whole = all(v == math.ceil(v) for v in sizes)
    wide = bool(sizes) and (max(sizes) / min(sizes) > 1000 or max(sizes) > 1e8 or (not whole and min(sizes) < 1e-4))
    form = ".4e" if wide else ".0f" if whole else ".4f"
    width = max((len(_number(v, form)) for v in values if v and v - v == 0), default=1) if tensor.shape else 0
    return lambda v: f"{_number(v, form):>{width}}"


def _number(v, form):
    return f"{v:{form}}" + ("." if form == ".0f" and v - v == 0 else "")


def _nested(tensor, entry, indent, long):
    """The entries in brackets; of a long tensor three from either end of every dimension."""
    if not tensor.shape or not tensor.numel():
        return entry(tensor.item()) if not tensor.shape else "[]"
    parts = [*tensor[:EDGE], None, *tensor[-EDGE:]] if long and len(tensor) > 2 * EDGE else list(tensor)
    if tensor.ndim > 1:
        between = "," + "\n" * (tensor.ndim - 1) + " " * indent
        return (
            "["
            + (between + " ").join(
                " ..."[part is not None :] if part is None else _nested(part, entry, indent + 1, long) for part in parts
            )
            + "]"
        )
    words = [" ..." if part is None else entry(part.item()) for part in parts]
    per_line = max(1, (WIDTH - indent) // (max(map(len, words), default=1) + 2))
    lines = [", ".join(words[i : i + per_line]) for i in range(0, len(words), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"
