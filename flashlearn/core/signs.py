"""Names of the code as sentences and pictures write them: the running sum l as ℓ, delta as δ.

The only place for it: code that describes or draws a step writes the names of the code.
"""

from __future__ import annotations

import functools
import math
import re

SIGNS = {"l": "ℓ", "delta": "δ"}
# A name alone or with an index: l, l_old, delta, delta2
_NAMES = re.compile(rf"(?<![\w.'])({'|'.join(SIGNS)})(?=\d*\b(?!\()|_[{{]?(?:i|old|new)\b)")
# A hyphen before a number, or between spaces where a number or a name follows: -0.5, m_old - m_new, not 0-3, x[-1] or e-05
_MINUS = re.compile(r"(?<![\w\[.)\]-])-(?=\.?\d|inf\b)|(?<=[\w)\]] )-(?= [\w(])")


@functools.lru_cache(4096)
def signed(words: str) -> str:
    """These words with every sign in place of its name: "old l × -2" becomes "old ℓ × −2"."""
    return _MINUS.sub("−", _NAMES.sub(lambda found: SIGNS[found[1]], words)).replace("−inf", "−∞")


def number(value: float, digits: int = 4) -> str:
    """A number as sentences and pictures print it; infinities and NaN by their signs, no minus sign before a zero.

    >>> number(-2.5), number(float("-inf")), number(1e-7)
    ('−2.5', '−∞', '1.0e−07')
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value != 0 and not 1e-3 <= abs(value) < 1e5:
        return f"{value:.1e}".replace("-", "−")
    return f"{round(value, digits) + 0.0:.{digits}f}".rstrip("0").rstrip(".").replace("-", "−")


def fixed(value: float, digits: int) -> str:
    """A number with that many digits, so that columns line up; no minus sign before a zero."""
    return number(value) if not math.isfinite(value) else f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")
