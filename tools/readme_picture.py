"""Draw the pictures of the README: docs/tiling.png, a recorded run of both versions, and the badges in docs/badges.

python tools/readme_picture.py
"""

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BADGES = ROOT / "docs" / "badges"
BADGE = """<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{name}: {value}">
<rect width="{width}" height="20" rx="3" fill="#00588a"/>
<rect width="{split}" height="20" rx="3" fill="#444"/>
<g fill="#fff" font-family="Verdana, DejaVu Sans, sans-serif" font-size="11">
<text x="7" y="14">{name}</text>
<text x="{start}" y="14">{value}</text>
</g>
</svg>
"""


def badges() -> dict[str, str]:
    """Name of a file -> its picture; all values are those of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    first, last = map(int, re.findall(r"3\.(\d+)", project["requires-python"]))
    found = {"python": ("Python", f"3.{first} to 3.{last - 1}"), "licence": ("licence", project["license"])}
    return {f"{file}.svg": badge(*words) for file, words in found.items()}


def badge(name: str, value: str) -> str:
    split = 14 + 7 * len(name)
    return BADGE.format(name=name, value=value, split=split, start=split + 7, width=split + 14 + 7 * len(value))


def tiling() -> Any:
    """FlashAttention-1 and -2 on the same inputs, as an animated picture."""
    import torch

    import flashlearn as fl
    from flashlearn.show import play
    from flashlearn.show.draw import draw_tiling

    q, k, v = torch.randn(3, 1, 1, 12, 4, generator=torch.Generator().manual_seed(1))
    blocks: dict[str, Any] = {"block_q": 3, "block_k": 3, "causal": True}
    runs = {
        "FlashAttention-1 · K, V outside": fl.tiled_attention_v1_steps(q, k, v, **blocks),
        "FlashAttention-2 · Q outside": fl.tiled_attention_v2_steps(q, k, v, **blocks),
    }
    alt = "FlashAttention-1 and FlashAttention-2 on the same twelve tokens"
    return play(runs, draw_tiling, alt=alt, figsize=(12.8, 5.2), seconds=1.0, still=6)


if __name__ == "__main__":
    BADGES.mkdir(exist_ok=True)
    for file, text in badges().items():
        (BADGES / file).write_text(text, encoding="utf-8")
    shown = tiling()
    shown.save(ROOT / "docs" / "tiling.png")
    print(f"tiling.png: {len(shown.png) / 1000:.0f} KB, {len(shown.transcript)} frames")
