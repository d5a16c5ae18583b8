"""What wrong answers to the exercises of notebook 08 get wrong."""

from __future__ import annotations

from flashlearn.cost import A100_40GB, H100_SXM, RTX_4060_LAPTOP, placement, v2_cost


def what_a_key_costs(bytes_moved):
    """With one block of queries each key more is read once, as a row of K and a row of V."""
    D, itemsize = 3, 2
    read = [bytes_moved(8, N_k, D, 8, 64, itemsize)[0] for N_k in (10, 11)]
    more = read[1] - read[0]
    seen = f"one block of each, D = {D}, itemsize {itemsize}: a key more makes {more} bytes more to read, where 2 D itemsize = {2 * D * itemsize} are expected"
    if more == D * itemsize:
        return (
            f"{seen}: either K or V, or the itemsize, is left out; K and V are both read, {itemsize} bytes each element"
        )
    return seen if more != 2 * D * itemsize else ""


def elements_are_no_bytes(bytes_moved):
    """Twice the itemsize, twice the bytes that are read."""
    small, large = (bytes_moved(8, 8, 4, 8, 8, itemsize)[0] for itemsize in (2, 4))
    if large != 2 * small:
        return f"with itemsize 4 in place of 2 the bytes read go from {small} to {large}: they must double, each element of Q, K and V has itemsize bytes, and itemsize counts nowhere else"
    return ""


def what_a_query_costs(bytes_moved):
    D, itemsize = 3, 2
    counts = [bytes_moved(N_q, 8, D, 64, 8, itemsize) for N_q in (10, 11)]
    read, written = (b - a for a, b in zip(*counts, strict=True))
    if read != D * itemsize:
        return f"with one block of keys a query more makes {read} bytes more to read; a row of Q is D itemsize = {D * itemsize}"
    if written != D * itemsize + 4:
        return f"a query more makes {written} bytes more to write; a row of O and its lse, in float32, are D itemsize + 4 = {D * itemsize + 4}"
    return ""


def blocks_of_keys(bytes_moved):
    """With two blocks of keys Q is read twice, and O and lse are still written once."""
    one, two = (bytes_moved(8, 16, 4, 8, block_k, 2) for block_k in (16, 8))
    if two[1] != one[1]:
        return f"with two blocks of keys in place of one {two[1]} bytes are written, not {one[1]}: O and lse are written once, after the last block"
    if two[0] - one[0] != 8 * 4 * 2:
        return f"with two blocks of keys in place of one {two[0] - one[0]} bytes more are read; Q once more is N_q D itemsize = 64"
    return ""


def the_edge(smallest_block):
    """The block that comes back is compute-bound, and the next smaller one is not."""
    for N, D, hardware in ((1024, 64, A100_40GB), (2048, 64, H100_SXM), (1000, 128, RTX_4060_LAPTOP)):

        def bound(b, N=N, D=D, hardware=hardware):
            return placement(v2_cost(1, 1, N, N, D, block_q=b), hardware).bound

        got = smallest_block(N, D, hardware)
        if not got:
            continue
        if bound(got) != "compute-bound":
            return f"for N = {N}, D = {D} block_q = {got} comes back, which is still memory-bound: the first that is compute-bound is wanted"
        if got > 1 and bound(got - 1) == "compute-bound":
            return f"for N = {N}, D = {D} block_q = {got} comes back, but {got - 1} is compute-bound too: it is not the smallest; try every b, 1, 2, 3, ..."
    return ""


CAUSES = {"bytes": (elements_are_no_bytes, what_a_key_costs, what_a_query_costs, blocks_of_keys), "block": (the_edge,)}
