"""Draw the picture at the top of the README, docs/tiling.png, from a recorded run of both versions.

python tools/readme_picture.py
"""

from pathlib import Path
from typing import Any

import torch

import flashlearn as fl
from flashlearn.show import play
from flashlearn.show.draw import draw_tiling

q, k, v = torch.randn(3, 1, 1, 12, 4, generator=torch.Generator().manual_seed(1))
blocks: dict[str, Any] = {"block_q": 3, "block_k": 3, "causal": True}
shown = play(
    {
        "FlashAttention-1 · K, V outside": fl.tiled_attention_v1_steps(q, k, v, **blocks),
        "FlashAttention-2 · Q outside": fl.tiled_attention_v2_steps(q, k, v, **blocks),
    },
    draw_tiling,
    alt="FlashAttention-1 and FlashAttention-2 side by side on the same twelve tokens",
    figsize=(12.8, 5.2),
    seconds=1.0,
    still=6,
)
path = Path(__file__).parent.parent / "docs" / "tiling.png"
shown.save(path)
print(f"{path.name}: {len(shown.png) / 1000:.0f} KB, {len(shown.transcript)} frames")
