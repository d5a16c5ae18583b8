"""Answers to the exercises of tiled_matmul that are no edit of the solution: `wrong.toml` names them."""

import torch


def blocks_columns_cut_too(N_q, N_k, D, block_q, block_k, i, j):
    rows, cols = min(block_q, N_q - i * block_q), min(block_k, N_k - j * block_k)
    return (rows, block_k), (block_k, cols), (rows, cols), (cols, block_k), (rows, block_k)


def _by_blocks(A, B, block, rows, inner, accumulate=True):
    N = B.shape[1]
    C = torch.zeros(A.shape[0], N, dtype=A.dtype)
    for i in rows:
        for j in range(0, N, block):
            for p in inner:
                product = A[i : i + block, p : p + block] @ B[p : p + block, j : j + block]
                at = slice(i, i + block), slice(j, j + block)
                C[at] = C[at] + product if accumulate else product
    return C


def tiled_overwrites(A, B, block):
    return _by_blocks(A, B, block, range(0, A.shape[0], block), range(0, A.shape[1], block), accumulate=False)


def tiled_drops_rows(A, B, block):
    rows = [i * block for i in range(A.shape[0] // block)] or [0]
    return _by_blocks(A, B, block, rows, range(0, A.shape[1], block))


def tiled_drops_the_end_of_the_sum(A, B, block):
    inner = [p * block for p in range(A.shape[1] // block)] or [0]
    return _by_blocks(A, B, block, range(0, A.shape[0], block), inner)


def tiled_sums_over_rows_of_A(A, B, block):
    return _by_blocks(A, B, block, range(0, A.shape[0], block), range(0, A.shape[0], block))


def tiled_not_at_all(A, B, block):
    return A @ B


def sizes(N_q, N_k, block_q, block_k, i, j):
    return min(block_q, N_q - i * block_q), min(block_k, N_k - j * block_k)


def keys_not_transposed(N_q, N_k, D, block_q, block_k, i, j):
    rows, cols = sizes(N_q, N_k, block_q, block_k, i, j)
    return (rows, D), (cols, D), (rows, cols), (cols, D), (rows, D)


def o_as_s(N_q, N_k, D, block_q, block_k, i, j):
    rows, cols = sizes(N_q, N_k, block_q, block_k, i, j)
    return (rows, D), (D, cols), (rows, cols), (cols, D), (rows, cols)


def i_and_j_exchanged(N_q, N_k, D, block_q, block_k, i, j):
    rows, cols = sizes(N_q, N_k, block_q, block_k, j, i)
    return (rows, D), (D, cols), (rows, cols), (cols, D), (rows, D)


def by_blocks(A, B, C, block, ends=0):
    for i in range(0, A.shape[0] - ends, block):
        for j in range(0, B.shape[1] - ends, block):
            for p in range(0, A.shape[1], block):
                C[i : i + block, j : j + block] += A[i : i + block, p : p + block] @ B[p : p + block, j : j + block]
    return C


def shaped_as_a(A, B, block):
    return by_blocks(A, B, torch.zeros_like(A), block)


def in_float32(A, B, block):
    return by_blocks(A.float(), B.float(), torch.zeros(A.shape[0], B.shape[1]), block)


def one_block_short(A, B, block):
    return by_blocks(A, B, torch.zeros(A.shape[0], B.shape[1], dtype=A.dtype), block, ends=block)


def b_exchanged(A, B, block):
    C = torch.zeros(A.shape[0], B.shape[1], dtype=A.dtype)
    for i in range(0, A.shape[0], block):
        for j in range(0, B.shape[1], block):
            for p in range(0, A.shape[1], block):
                C[i : i + block, j : j + block] += A[i : i + block, p : p + block] @ B[j : j + block, p : p + block]
    return C


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
