"""How names of the code are written for people, in sentences and pictures: the running sum l as ℓ, delta as δ.

The one place for it: whoever tells a step or draws one writes the names of the code.
"""

from __future__ import annotations

import re

SIGNS = {"l": "ℓ", "delta": "δ"}
# A name that stands alone, or with an index: l, l_old, delta, delta2
_NAMES = re.compile(rf"(?<![\w.'])({'|'.join(SIGNS)})(?=\d*\b(?!\()|_(?:i|old|new)\b)")


def signed(words: str) -> str:
    """These words with every sign in place of its name: "old l × 2" becomes "old ℓ × 2"."""
    return _NAMES.sub(lambda found: SIGNS[found[1]], words)
