"""What wrong answers to the exercises of notebook 06 get wrong."""

from __future__ import annotations

import torch

NAMES = ("Q_i", "K_j^T", "S_ij", "V_j", "O_i")


def a_whole_block(block_shapes):
    """Blocks of 2 queries and 3 keys, of size 5, in the middle of large matrices."""
    want = ((2, 5), (5, 3), (2, 3), (3, 5), (2, 5))
    given = tuple(map(tuple, block_shapes(20, 30, 5, 2, 3, 4, 4)))
    if given != want and sorted(given) == sorted(want):
        return f"the shapes are right, but their order is wrong; expected {', '.join(NAMES)}"
    for name, got, right in zip(NAMES, given, want, strict=True):
        seen = f"with blocks of 2 queries and 3 keys and D = 5, {name} is {got}, not {right}"
        if got == right[::-1]:
            return f"{seen}: its two sizes are exchanged; only K_j is transposed"
        if got != right:
            cut = {"K_j^T": (1,), "S_ij": (0, 1)}.get(name, (0,))  # the sizes that a block has, not D
            if all(got[n] == right[n] for n in (0, 1) if n not in cut) and any(got[n] > right[n] for n in cut):
                return f"{seen}: a block has at most block_q or block_k rows, min(block, what is left)"
            return seen
    return ""


def the_last_block(block_shapes):
    """The block of queries number i starts at i block_q; number j of keys at j block_k."""
    rows = {at: tuple(block_shapes(7, 7, 5, 3, 3, *at)[2]) for at in ((2, 0), (0, 2))}
    if rows == {(2, 0): (3, 1), (0, 2): (1, 3)}:
        return "with 7 queries in blocks of 3, your last block is short when j = 2, not when i = 2. You exchanged i and j: i counts blocks of Q"
    for (i, j), got in rows.items():
        want = (1, 3) if i else (3, 1)
        if got != want:
            return f"with 7 queries and 7 keys in blocks of 3, S_ij for i = {i} and j = {j} is {got}, not {want}. Only the last block is shorter, it has what is left"
    return ""


def every_product_counts(tiled):
    """Of matrices of ones every entry of the product is the number of columns of A."""
    for M, K, N, block in ((4, 4, 4, 2), (3, 5, 4, 2), (2, 2, 2, 4)):
        C = tiled(torch.ones(M, K, dtype=torch.float64), torch.ones(K, N, dtype=torch.float64), block)
        if C.shape != (M, N):
            return f"for ({M}, {K}) times ({K}, {N}), C has the shape {tuple(C.shape)}; expected (M, N), the rows of A and the columns of B"
        seen = f"with ones, ({M}, {K}) times ({K}, {N}) in blocks of {block}, every entry must be {K}"
        if (C == 0).any():
            at = (C == 0).nonzero()[0].tolist()
            if C[0, 0] == 0:
                return f"{seen}, but entry {at} is 0: no product of blocks is added there"
            return f"{seen}, but entry {at} is 0: the last rows or columns are never computed; step through range(0, M, block)"
        if not torch.allclose(C, torch.full_like(C, K)):
            return f"{seen}, but it is {C.flatten()[0].item():.4g}: blocks of the inner dimension are left out, overwritten or counted twice"
    return ""


CAUSES = {"blocks": (a_whole_block, the_last_block), "tiled_matmul": (every_product_counts,)}
