"""Before the ring starts, check that all processes have shares of the same problem.

A process with another shape, dtype or option would send messages of another size: a hang, or wrong numbers. Every
process gets the notes of all, so all raise the same error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from flashlearn.core.inputs import check_bool, check_qkv, dual, resolve_scale, resolve_scale_in_float32
from flashlearn.core.mask import check_window
from flashlearn.ring.plan import Plan, check_order, plan_of

ERRORS = {kind.__name__: kind for kind in (TypeError, ValueError, NotImplementedError)}
LONGEST = 300  # characters of an error in a note; each takes at most 6 bytes


def agree(comm: Any, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Plan, float]:
    """The plan and the scale; ValueError or TypeError in every process if one of them has something that does not fit.

    NotImplementedError for derivatives that a ring does not have.
    """
    if (
        torch._C._are_functorch_transforms_active()
    ):  # before anything is sent: here not even a note is an ordinary tensor
        raise NotImplementedError(
            "ring_attention and ulysses_attention have a derivative for torch.autograd, not for torch.func (grad, vjp, jvp, "
            "jacrev, vmap): call o.backward() or torch.autograd.grad, or use flashlearn.standard_attention on the whole sequence"
        )
    notes = compare_notes(comm, lambda: _note(q, k, v, **options))
    return plan_of_notes(notes), notes[0]["scale"]


def compare_notes(comm: Any, note: Callable[[], dict]) -> list[dict]:
    """The notes of all processes, which differ in the tokens alone; an error in one of them is raised in every process.

    ValueError, TypeError or NotImplementedError: what `note` raises here or elsewhere, or that the notes differ.
    """
    try:
        mine, found = note(), None
    except tuple(ERRORS.values()) as error:
        text = str(error)
        text = text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
        mine, found = {"error": text, "type": type(error).__name__}, error
    if found and comm.size == 1:
        raise found
    notes = comm.all_gather(mine) if comm.size > 1 else [mine]
    for r, other in enumerate(notes):
        if "error" in other:
            kind = ERRORS.get(other["type"], ValueError)  # of a ValueError there are kinds
            raise kind(f"process {r} of {comm.size}: {other['error']}") from found
    _same(notes)
    return notes


def check_numbers(device: torch.device, name: str) -> None:
    """ValueError for tensors that have a shape and no numbers: there is nothing to send."""
    if device.type == "meta":
        raise ValueError(f"expected {name} with numbers in them, on a GPU or the CPU, got tensors on {device}")


def _note(q: Tensor, k: Tensor, v: Tensor, *, order, causal, window, scale, return_lse) -> dict:
    """The values on which all must agree, and the number of tokens of this process."""
    check_order(order)
    check_bool(return_lse, "return_lse")
    size = check_qkv(q, k, v)
    check_numbers(q.device, "q, k and v")
    if dual(q, k, v):
        raise NotImplementedError(
            "ring_attention and ulysses_attention have a backward pass and no forward-mode derivative; use "
            "flashlearn.standard_attention on the whole sequence"
        )
    if size.N_q != size.N_k:
        raise ValueError(f"expected as many queries as keys in a share, got {size.N_q} and {size.N_k}")
    check_bool(causal, "causal")
    left, right = check_window(window)  # of the whole sequence, of which this is a share
    grads = torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v))
    return {
        "tokens": size.N_q,
        "B": size.B,
        "H of q": size.H_q,
        "H of k and v": size.H_kv,
        "D": size.D,
        "dtype": str(q.dtype),
        "device": q.device.type,
        "order": order,
        "left": None if left is None else int(left),
        "right": 0 if causal else None if right is None else int(right),
        "causal and window": f"causal={causal}, window={window}",
        "scale": scale_of(scale, size.D, q.dtype),
        "gradients wanted": grads,
    }


def scale_of(scale: float | None, D: int, dtype: torch.dtype) -> float:
    """The factor on q.k, finite in what sums over this dtype are kept in, as `flash_attention` has it."""
    return resolve_scale(scale, D) if dtype == torch.float64 else resolve_scale_in_float32(scale, D)


def _same(notes: list[dict]) -> None:
    """Reject notes that differ in anything but the tokens, and the words for a mask: causal is a window, too."""
    for key, first in notes[0].items():
        for r, note in enumerate(notes):
            if key not in ("tokens", "causal and window") and note[key] != first:
                kind = TypeError if key == "dtype" else ValueError
                said = "causal and window" if key in ("left", "right") else key
                raise kind(
                    f"expected every process to hand in the same {said}, got {notes[0][said]} in process 0 "
                    f"and {note[said]} in {r}"
                )


def plan_of_notes(notes: list[dict]) -> Plan:
    """The plan of all tokens, unmasked if the notes have no mask; ValueError if the shares are not those of `split`."""
    tokens, order = [note["tokens"] for note in notes], notes[0]["order"]
    plan = plan_of(sum(tokens), len(tokens), order, notes[0].get("left"), notes[0].get("right"))
    wanted = [plan.size(r) for r in range(plan.P)]
    if tokens != wanted:
        raise ValueError(f"expected shares as `split` makes them in {order} order, of {wanted} tokens, got {tokens}")
    return plan
