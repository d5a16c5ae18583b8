"""Attention over several processes: each has a share of N tokens, K and V travel round a ring, (o, lse) merge.

    order = "zigzag"
    q, k, v = (split(t, order=order) for t in (q, k, v))                     this process's share of the N tokens
    o = ring_attention(q, k, v, order=order, causal=True)                    its share of O; differentiable
    o = join(o, order=order)                                                 all of O, in every process

Nothing here starts processes: `torchrun` does, or `flashlearn.ring.processes` on one machine.
"""

from flashlearn.ring.attention import ring_attention
from flashlearn.ring.plan import shares
from flashlearn.ring.sharing import Places, join, split
from flashlearn.ring.steps import ring_attention_steps
from flashlearn.ring.ulysses import ulysses_attention

__all__ = ["Places", "join", "ring_attention", "ring_attention_steps", "shares", "split", "ulysses_attention"]
