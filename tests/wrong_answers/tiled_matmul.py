"""Wrong answers to the exercises of notebook 06."""

import torch


def blocks_by(rows, cols, D=lambda D, *_: D):
    """Shapes whose rows, columns or width may be wrong ones."""

    def block_shapes(N_q, N_k, D_, block_q, block_k, i, j):
        args = N_q, N_k, block_q, block_k, i, j
        r, c, d = rows(*args), cols(*args), D(D_, *args)
        return (r, d), (d, c), (r, c), (c, d), (r, d)

    return block_shapes


def rows(N_q, N_k, block_q, block_k, i, j):
    return min(block_q, N_q - i * block_q)


def cols(N_q, N_k, block_q, block_k, i, j):
    return min(block_k, N_k - j * block_k)


def blocks_one_remainder(N_q, N_k, D, block_q, block_k, i, j):
    r, c = block_q, block_k
    if (i + 1) * block_q > N_q:
        r = N_q - i * block_q
    elif (j + 1) * block_k > N_k:
        c = N_k - j * block_k
    return (r, D), (D, c), (r, c), (c, D), (r, D)


def blocks_output_of_keys(N_q, N_k, D, block_q, block_k, i, j):
    r, c = rows(N_q, N_k, block_q, block_k, i, j), cols(N_q, N_k, block_q, block_k, i, j)
    return (r, D), (D, c), (r, c), (c, D), (c, D)


def blocks_scores_transposed(N_q, N_k, D, block_q, block_k, i, j):
    r, c = rows(N_q, N_k, block_q, block_k, i, j), cols(N_q, N_k, block_q, block_k, i, j)
    return (r, D), (D, c), (c, r), (c, D), (r, D)


def blocks_keys_not_transposed(N_q, N_k, D, block_q, block_k, i, j):
    r, c = rows(N_q, N_k, block_q, block_k, i, j), cols(N_q, N_k, block_q, block_k, i, j)
    return (r, D), (c, D), (r, c), (c, D), (r, D)


def blocks_of_a_whole_value(N_q, N_k, D, block_q, block_k, i, j):
    r, c = rows(N_q, N_k, block_q, block_k, i, j), cols(N_q, N_k, block_q, block_k, i, j)
    return (r, D), (D, c), (r, c), (N_k, D), (r, D)


def tiled_by(product, outer=True, step=lambda block: block):
    """Three loops over blocks whose product, size or cuts may be wrong."""

    def tiled(A, B, block):
        size = step(block)
        (M, K), N = A.shape, B.shape[1]
        C = torch.zeros(M, N, dtype=A.dtype)
        for i in range(0, M, size):
            for j in range(0, N, size):
                for p in range(0, K, size):
                    C[i : i + size, j : j + size] += product(
                        A[i : i + size, p : p + size], B[p : p + size, j : j + size]
                    )
        return C

    return tiled


def tiled_rows_of_blocks(A, B, block):
    """Whole rows of A by whole columns of B: K is not cut."""
    C = torch.zeros(A.shape[0], B.shape[1], dtype=A.dtype)
    for i in range(0, A.shape[0], block):
        for j in range(0, B.shape[1], block):
            C[i : i + block, j : j + block] = A[i : i + block] @ B[:, j : j + block]
    return C


def tiled_row_panels(A, B, block):
    return torch.cat([A[i : i + block] @ B for i in range(0, A.shape[0], block)])


def tiled_inner_panels(A, B, block):
    return sum(A[:, p : p + block] @ B[p : p + block] for p in range(0, A.shape[1], block))


def tiled_single_columns(A, B, block):
    """Rows and columns are cut by block, the sum is taken one entry after the other."""
    C = torch.zeros(A.shape[0], B.shape[1], dtype=A.dtype)
    for i in range(0, A.shape[0], block):
        for j in range(0, B.shape[1], block):
            for p in range(A.shape[1]):
                C[i : i + block, j : j + block] += A[i : i + block, p : p + 1] @ B[p : p + 1, j : j + block]
    return C


def tiled_rank_one_updates(A, B, block):
    return sum(A[:, p : p + 1] * B[p : p + 1] for p in range(A.shape[1]))


def tiled_entry_by_entry(A, B, block):
    C = torch.zeros(A.shape[0], B.shape[1], dtype=A.dtype)
    for i in range(A.shape[0]):
        for j in range(B.shape[1]):
            C[i, j] = (A[i] * B[:, j]).sum()
    return C


def tiled_by_broadcasting(A, B, block):
    return (A[:, :, None] * B[None]).sum(1)


def tiled_by_scalars(A, B, block):
    C = torch.zeros(A.shape[0], B.shape[1], dtype=A.dtype)
    for i in range(A.shape[0]):
        for j in range(B.shape[1]):
            for p in range(A.shape[1]):
                C[i, j] += A[i, p] * B[p, j]
    return C


def tiled_in_numpy(A, B, block):
    return torch.from_numpy(A.numpy() @ B.numpy())


def tiled_blocks_at_once(A, B, block):
    """Blocks in the shape, and one einsum that multiplies them all."""
    (M, K), N = A.shape, B.shape[1]
    rows, inner, columns = (-(-n // block) for n in (M, K, N))
    left = torch.nn.functional.pad(A, (0, inner * block - K, 0, rows * block - M))
    right = torch.nn.functional.pad(B, (0, columns * block - N, 0, inner * block - K))
    left, right = left.reshape(rows, block, inner, block), right.reshape(inner, block, columns, block)
    return torch.einsum("rapb,pbcd->racd", left, right).reshape(rows * block, columns * block)[:M, :N]


def blocks_by_slicing(N_q, N_k, D, block_q, block_k, i, j):
    """The shapes of slices."""
    q, k = torch.empty(N_q, D), torch.empty(N_k, D)
    Q_i, K_j = q[i * block_q : (i + 1) * block_q], k[j * block_k : (j + 1) * block_k]
    return [Q_i.shape, K_j.T.shape, (Q_i @ K_j.T).shape, K_j.shape, Q_i.shape]


def tiled_by_splitting(A, B, block):
    rows = []
    for a in A.split(block):
        columns = [
            sum(x @ y for x, y in zip(a.split(block, 1), b.split(block), strict=True)) for b in B.split(block, 1)
        ]
        rows.append(torch.cat(columns, 1))
    return torch.cat(rows)


def tiled_by_padding(A, B, block):
    """Whole blocks only, stacked: the products of a step are one bmm of blocks."""
    (M, K), N = A.shape, B.shape[1]
    rows, inner, columns = (-(-n // block) for n in (M, K, N))
    A = torch.nn.functional.pad(A, (0, inner * block - K, 0, rows * block - M))
    B = torch.nn.functional.pad(B, (0, columns * block - N, 0, inner * block - K))
    A = A.reshape(rows, block, inner, block).transpose(1, 2)
    B = B.reshape(inner, block, columns, block).transpose(1, 2)
    C = sum(A[:, None, p] @ B[None, p] for p in range(inner))
    return C.transpose(1, 2).reshape(rows * block, columns * block)[:M, :N]


def tiled_with_addmm(A, B, block):
    C = A.new_zeros(len(A), B.shape[1])
    for i in range(0, len(A), block):
        for p in range(0, len(B), block):
            for j in range(0, B.shape[1], block):
                C[i : i + block, j : j + block].addmm_(A[i : i + block, p : p + block], B[p : p + block, j : j + block])
    return C


WRONG = {
    "06.blocks": (
        ("only one side is shortened at a time", blocks_one_remainder, "both last"),
        ("rows are left over of the keys", blocks_by(lambda N_q, N_k, bq, bk, i, j: min(bq, N_k - i * bq), cols)),
        ("keys are left over of the queries", blocks_by(rows, lambda N_q, N_k, bq, bk, i, j: min(bk, N_q - j * bk))),
        ("i and j change places", blocks_by(lambda *a: rows(*a[:4], a[5], a[4]), lambda *a: cols(*a[:4], a[5], a[4]))),
        (
            "the last block is N % block long, 0 where it divides",
            blocks_by(lambda N_q, N_k, bq, bk, i, j: N_q % bq if i == (N_q - 1) // bq else bq, cols),
        ),
        ("blocks are made equally long", blocks_by(lambda N_q, N_k, bq, bk, i, j: -(-N_q // -(-N_q // bq)), cols)),
        ("blocks are counted from 1", blocks_by(lambda N_q, N_k, bq, bk, i, j: min(bq, N_q - (i - 1) * bq), cols)),
        ("O has a row for each key", blocks_output_of_keys),
        ("S has a row for each key", blocks_scores_transposed),
        ("K is not transposed", blocks_keys_not_transposed),
        ("all of V is taken", blocks_of_a_whole_value),
        (
            "D is the same as the block where it is smaller",
            blocks_by(rows, cols, lambda D, N_q, N_k, bq, *_: min(D, 8 * bq)),
        ),
    ),
    "06.tiled_matmul": (
        ("one whole einsum", lambda A, B, block: torch.einsum("mk,kn->mn", A, B), "blocks"),
        ("one whole tensordot", lambda A, B, block: torch.tensordot(A, B, 1), "blocks"),
        ("one whole linear layer", lambda A, B, block: torch.nn.functional.linear(A, B.T), "blocks"),
        ("one whole addmm", lambda A, B, block: torch.addmm(torch.zeros(1, dtype=A.dtype), A, B), "blocks"),
        ("one whole bmm", lambda A, B, block: torch.bmm(A[None], B[None])[0], "blocks"),
        ("one einsum over the blocks of all", tiled_blocks_at_once, "blocks"),
        ("the product is taken in NumPy", tiled_in_numpy, "no product"),
        ("the whole matrices are broadcast, then summed", tiled_by_broadcasting, "blocks"),
        ("whole rows meet whole columns: the sum is not cut", tiled_rows_of_blocks, "blocks"),
        ("only the rows of A are cut", tiled_row_panels, "blocks"),
        ("only the sum is cut", tiled_inner_panels, "blocks"),
        ("the sum is cut into single entries", tiled_single_columns, "single columns"),
        ("columns times rows, one after the other", tiled_rank_one_updates, "blocks"),
        ("entry by entry, each a whole row times a whole column", tiled_entry_by_entry, "blocks"),
        ("numbers are multiplied one by one, block is not used", tiled_by_scalars, "block"),
        ("block is always 2", tiled_by(torch.matmul, step=lambda block: 2), "block"),
        ("blocks are twice as large", tiled_by(torch.matmul, step=lambda block: 2 * block), "blocks"),
        ("blocks are multiplied entry by entry", tiled_by(lambda a, b: a * b if a.shape == b.shape else a @ b)),
        ("the block of A is transposed", tiled_by(lambda a, b: a.T @ b if a.shape[0] == a.shape[1] else a @ b)),
        ("the sum is rounded to 32 bits", tiled_by(lambda a, b: (a.float() @ b.float()).double())),
    ),
}

RIGHT = {
    "06.blocks": (
        ("shapes of slices", blocks_by_slicing),
        (
            "lists and ranges",
            lambda N_q, N_k, D, bq, bk, i, j: [
                (r := len(range(N_q)[i * bq : (i + 1) * bq]), D),
                (D, c := len(range(N_k)[j * bk : (j + 1) * bk])),
                (r, c),
                (c, D),
                (r, D),
            ],
        ),
    ),
    "06.tiled_matmul": (
        ("torch.split", tiled_by_splitting),
        ("padding, and stacks of blocks", tiled_by_padding),
        ("addmm in place", tiled_with_addmm),
        ("an einsum for each pair of blocks", tiled_by(lambda a, b: torch.einsum("mk,kn->mn", a, b))),
        ("a pair of blocks by broadcasting", tiled_by(lambda a, b: (a[:, :, None] * b).sum(1))),
        ("a pair of blocks row by row", tiled_by(lambda a, b: torch.stack([row @ b for row in a]))),
        (
            "a pair of blocks entry by entry",
            tiled_by(lambda a, b: torch.stack([torch.stack([torch.dot(x, y) for y in b.T]) for x in a])),
        ),
    ),
}
