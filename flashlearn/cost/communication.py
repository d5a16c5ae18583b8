"""Bytes that processes send each other for attention over N tokens, in closed form, and when computing hides them.

All are of one head of a batch of one: times B and H_kv for the ring; Ulysses counts its heads itself. Equal to the byte
to the counts of `flashlearn.ring.steps`, and to the messages of processes.

    Link        what connects two processes: bytes/s in one direction
    ring        from each process to the next; all links work at the same time
"""

from __future__ import annotations

from dataclasses import dataclass

from flashlearn.core.inputs import check_block, check_bool
from flashlearn.cost.formulas import check_heads, check_sizes, exact
from flashlearn.cost.hardware import Hardware, bf16
from flashlearn.ring.plan import check_order, cut, shares


@dataclass(frozen=True)
class Link:
    """A connection between two processes: bytes per second in one direction."""

    name: str
    bandwidth: float
    source: str


NVLINK_H200 = Link("NVLink, H200", 450e9, "NVIDIA H200 data sheet: 900 GB/s, of both directions together")
NVLINK_MEASURED = Link("NVLink, measured", 290e9, "256 MiB each way between two H200 by NCCL in 0.92 ms, 2026-11")
INFINIBAND_400 = Link("InfiniBand, 400 Gbit/s", 50e9, "NVIDIA ConnectX-7 data sheet: 400 Gbit/s")
ETHERNET_100 = Link("Ethernet, 100 Gbit/s", 12.5e9, "IEEE 802.3: 100 Gbit/s")
ETHERNET_10 = Link("Ethernet, 10 Gbit/s", 1.25e9, "IEEE 802.3: 10 Gbit/s")
LINKS = (NVLINK_H200, NVLINK_MEASURED, INFINIBAND_400, ETHERNET_100, ETHERNET_10)


@exact
def ring_bytes(N: int, P: int, D: int, order: str, *, causal: bool = False, e: int = 2) -> int:
    """Forward: K and V of all, one hop after another, from all processes together. e: bytes of an element.

    no mask          2 D e (P - 1) N
    plain, causal    2 D e sum_j n_j (P - 1 - j)         n_j tokens of process j, which later processes attend to
    zigzag, causal   2 D e (P - 1) (N - c)               c tokens of the last chunk, to which its owner alone attends

    For N >= 2 P. A process sends this over P, where all send the same number of bytes.
    """
    check_order(order)
    check_bool(causal, "causal")
    check_sizes(N=N, D=D)
    check_block(P, "P")
    check_block(e, "e")
    tokens = (P - 1) * N
    if causal and order == "plain":
        tokens = sum(n * (P - 1 - j) for j, n in enumerate(_sizes(N, P)))
    elif causal:
        tokens = (P - 1) * (N - _sizes(N, 2 * P)[-1])
    return 2 * D * e * tokens


@exact
def ring_backward_bytes(N: int, P: int, D: int, order: str, *, causal: bool = False, e: int = 2, wide: int = 4) -> int:
    """Backward: K and V once more, and dK and dV in float32 (wide: bytes of an element) from the first visitor home.

    no mask          2 D wide (P - 1) N more             as many hops as K and V
    plain, causal    2 D wide sum_j n_j (P - 1 - j)      the last visitor sends them straight home
    zigzag, causal   2 D wide sum_j ((P - 1) a_j + j b_j)   a_j, b_j tokens of the early and the late chunk of j: only the
                                                            j processes before it give to the late one
    """
    check_block(wide, "wide")
    again = ring_bytes(N, P, D, order, causal=causal, e=e)
    if not (causal and order == "zigzag"):
        return again + again // e * wide
    pairs = [[stop - start for start, stop in chunks] for chunks in shares(N, P, order)]
    return again + 2 * D * wide * sum((P - 1) * early + j * late for j, (early, late) in enumerate(pairs))


@exact
def ulysses_bytes(N: int, P: int, D: int, H_q: int, H_kv: int, *, e: int = 2) -> int:
    """Forward, all heads: q, k and v to their heads and o back, each times (P - 1) / P. Backward costs the same again.

    2 D e N (H_q + H_kv) (P - 1) / P
    """
    check_sizes(N=N, D=D)
    check_block(P, "P")
    check_block(e, "e")
    check_heads(H_q, H_kv)
    return 2 * D * e * N * (H_q + H_kv) * (P - 1) // P


@exact
def tokens_to_hide(link: Link, gpu: Hardware, *, group: int = 1, e: int = 2, reached: float = 1.0) -> float:
    """The N / P from which on a visit of the forward pass takes as long as sending the next K and V; no mask.

    n = N / P:  4 n^2 D group / F  >=  2 n D e / W    <=>    n  >=  e F / (2 group W)

    F FLOP/s (`reached`: which part of the peak), W bytes/s of the link, `group` query heads to a head of K and V. D cancels.
    Under a causal mask in zigzag order a visit is half as much work: twice as many tokens.
    """
    check_block(group, "group")
    check_block(e, "e")
    return e * gpu.peak[bf16] * reached / (2 * group * link.bandwidth)


def _sizes(N: int, parts: int) -> list[int]:
    return [stop - start for start, stop in cut(N, parts)]
