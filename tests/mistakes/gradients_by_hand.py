"""Planted mistakes for the exercises of notebook 09: what is wrong, the function, the case that must catch it."""


def matmul_no_transposes(dy, x, w):
    return dy @ w, x @ dy


def matmul_other_way_round(dy, x, w):
    return x.mT @ dy, dy @ w.mT


def matmul_dw_transposed(dy, x, w):
    return dy @ w.mT, dy.mT @ x


def matmul_mean_over_rows(dy, x, w):
    return dy @ w.mT, x.mT @ dy / len(x)


def matmul_first_row_only(dy, x, w):
    return dy @ w.mT, x[:1].mT @ dy[:1]


def softmax_without_delta(dp, p):
    return p * dp


def softmax_diagonal_only(dp, p):
    return p * (1 - p) * dp


def softmax_plain_mean(dp, p):
    return p * (dp - dp.mean(-1, keepdim=True))


def softmax_one_delta_for_all_rows(dp, p):
    return p * (dp - (p * dp).sum())


def softmax_two_dimensions_only(dp, p):
    return p * (dp - (p * dp).sum(1 if p.ndim > 1 else 0, keepdim=True))


MISTAKES = {
    "09.matmul_backward": [
        ("nothing transposed", matmul_no_transposes, "all sizes equal"),
        ("dW and dX swapped", matmul_other_way_round, "all sizes differ"),
        ("dW transposed", matmul_dw_transposed, "all sizes equal"),
        ("dW averaged over the rows", matmul_mean_over_rows, "many rows"),
        ("dW of the first row only", matmul_first_row_only, "many rows"),
    ],
    "09.softmax_backward": [
        ("no delta", softmax_without_delta, "one row"),
        ("the diagonal of the Jacobian only", softmax_diagonal_only, "one row"),
        ("the plain mean of dP", softmax_plain_mean, "uneven weights"),
        ("one delta for all rows", softmax_one_delta_for_all_rows, "several rows"),
        ("summed over dimension 1", softmax_two_dimensions_only, "two batches"),
    ],
}
