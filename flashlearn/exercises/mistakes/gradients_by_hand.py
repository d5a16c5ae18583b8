"""Known wrong answers to the exercises of notebook 09."""

from flashlearn.exercises.grading import Mistake


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
    "09.matmul_backward": (
        Mistake("nothing is transposed", matmul_no_transposes, "all sizes equal"),
        Mistake("dX and dW are returned in the wrong order", matmul_other_way_round, "all sizes differ"),
        Mistake("dW comes out transposed", matmul_dw_transposed, "all sizes equal"),
        Mistake("dW is averaged over the rows of X, not summed", matmul_mean_over_rows, "many rows"),
        Mistake("only the first row of X adds to dW", matmul_first_row_only, "many rows"),
    ),
    "09.softmax_backward": (
        Mistake("delta is left out", softmax_without_delta, "one row"),
        Mistake("only the diagonal of the Jacobian is used", softmax_diagonal_only, "one row"),
        Mistake("the plain mean of dP is subtracted, not the one weighted by P", softmax_plain_mean, "uneven weights"),
        Mistake("one delta is used for all rows", softmax_one_delta_for_all_rows, "several rows"),
        Mistake("the sum runs over dimension 1 instead of the last", softmax_two_dimensions_only, "two batches"),
    ),
}
