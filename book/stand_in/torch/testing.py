"""`assert_close`: two tensors equal up to rounding, and where they are not, a message that says by how much."""

import math

from torch.dtypes import bfloat16, float16, float32, float64, promote_types, rounded
from torch.elementwise import near
from torch.making import as_tensor

TOLERANCES = {float16: (1e-3, 1e-5), bfloat16: (1.6e-2, 1e-5), float32: (1.3e-6, 1e-5), float64: (1e-7, 1e-7)}


def assert_close(actual, expected, *, rtol=None, atol=None, equal_nan=False, check_dtype=True, msg=None, **_):
    """AssertionError unless |actual - expected| <= atol + rtol |expected| everywhere; the defaults depend on the type."""
    if isinstance(actual, tuple | list) and isinstance(expected, tuple | list):
        for one, other in zip(actual, expected, strict=True):
            assert_close(one, other, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=check_dtype, msg=msg)
        return
    a, e = as_tensor(actual), as_tensor(expected)
    if rtol is None:
        rtol, atol = map(max, *(TOLERANCES.get(t.dtype, (0.0, 0.0)) for t in (a, e)))
    problem = _problem(a, e, rtol, atol, equal_nan, check_dtype)
    if problem:
        raise AssertionError(msg(problem) if callable(msg) else msg or problem)


def _problem(a, e, rtol, atol, equal_nan, check_dtype):
    """What is wrong, in PyTorch's words; empty if nothing."""
    for what in ("shape", "dtype") if check_dtype else ("shape",):
        if getattr(a, what) != getattr(e, what):
            return f"The values for attribute '{what}' do not match: {getattr(a, what)} != {getattr(e, what)}."
    common = promote_types(a.dtype, e.dtype)
    pairs = list(zip(a.to(common).values(), e.to(common).values(), strict=True))
    wrong = [i for i, (x, y) in enumerate(pairs) if not near(x, y, rtol, atol, equal_nan)]
    if not wrong:
        return ""
    share = f"{len(wrong)} / {len(pairs)} ({100 * len(wrong) / len(pairs):.1f}%)"
    lines = [f"Tensor-likes are not {'close' if rtol or atol else 'equal'}!", "", f"Mismatched elements: {share}"]
    for kind, allowed, size in (
        ("absolute", atol, lambda x, y: rounded(abs(x - y), common)),
        ("relative", rtol, lambda x, y: rounded(rounded(abs(x - y), common) / abs(y), common) if y else math.inf),
    ):
        far = max(wrong, key=lambda i: math.inf if size(*pairs[i]) != size(*pairs[i]) else size(*pairs[i]))
        at = tuple(far // math.prod(a.shape[d + 1 :]) % a.shape[d] for d in range(a.ndim))
        lines.append(f"Greatest {kind} difference: {size(*pairs[far])} at index {at} (up to {allowed} allowed)")
    return "\n".join(lines)
