"""What wrong answers to the exercises of notebook 08 get wrong."""

from __future__ import annotations

from flashlearn.cost import A100_40GB, H100_SXM, RTX_4060_LAPTOP, placement, v2_cost


def what_a_key_costs(reread_bytes):
    """With one block of queries each key more is read once, as a row of K and a row of V."""
    D, itemsize = 3, 2
    read = [reread_bytes(8, N_k, D, 8, 64, itemsize)[0] for N_k in (10, 11)]
    more = read[1] - read[0]
    seen = f"with one block of queries and one of keys, D = {D} and itemsize {itemsize}, one more key adds {more} bytes; expected 2 D itemsize = {2 * D * itemsize}"
    if more == D * itemsize:
        return (
            f"{seen}: K or V or the itemsize is left out; both K and V are read, with {itemsize} bytes for each element"
        )
    return seen if more != 2 * D * itemsize else ""


def elements_are_no_bytes(reread_bytes):
    """Twice the itemsize, twice the bytes that are read."""
    small, large = (reread_bytes(8, 8, 4, 8, 8, itemsize)[0] for itemsize in (2, 4))
    if large != 2 * small:
        return f"with itemsize 4 instead of 2 the bytes read go from {small} to {large}: expected twice as many. Each element of Q, K and V has itemsize bytes, and itemsize is used for nothing else"
    return ""


def what_a_query_costs(reread_bytes):
    D, itemsize = 3, 2
    counts = [reread_bytes(N_q, 8, D, 64, 8, itemsize) for N_q in (10, 11)]
    read, written = (b - a for a, b in zip(*counts, strict=True))
    if read != D * itemsize:
        return f"with one block of keys, one more query adds {read} bytes to what is read; expected D itemsize = {D * itemsize}, a row of Q"
    if written != D * itemsize + 4:
        return f"one more query adds {written} bytes to what is written; expected D itemsize + 4 = {D * itemsize + 4}, a row of O and a float32 number of lse"
    return ""


def blocks_of_keys(reread_bytes):
    """With two blocks of keys Q is read twice, and O and lse are still written once."""
    one, two = (reread_bytes(8, 16, 4, 8, block_k, 2) for block_k in (16, 8))
    if two[1] != one[1]:
        return f"with two blocks of keys instead of one, {two[1]} bytes are written, not {one[1]}: O and lse are written once, after the last block"
    if two[0] - one[0] != 8 * 4 * 2:
        return f"a second block of keys adds {two[0] - one[0]} bytes to what is read; expected N_q D itemsize = 64, all of Q once more"
    return ""


def one_kernel(minimum_time):
    """A kernel takes the longer of its two times."""
    for flops, moved in ((24.0, 20.0), (4.0, 20.0)):
        compute, memory = flops / 2, moved / 4
        got = float(minimum_time([(flops, moved)], 2.0, 4.0))
        case = f"with peak 2 and bandwidth 4, a kernel of {flops:g} FLOPs and {moved:g} bytes"
        if abs(got - max(compute, memory)) > 1e-9:
            return (
                f"{case} takes {got:.4g}; expected max(flops / peak, bytes / bandwidth) = max({compute:g}, {memory:g})"
            )
    return ""


def one_after_another(minimum_time):
    """The times of kernels add up."""
    both = [(24.0, 20.0), (4.0, 20.0)]
    got = float(minimum_time(both, 2.0, 4.0))
    if abs(got - 17) > 1e-9:
        return f"two kernels that take 12 and 5 by themselves take {got:.4g} together; expected the sum, 17"
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
            return f"for N = {N} and D = {D} the answer is block_q = {got}, which is still memory-bound; expected the first one that is compute-bound"
        if got > 1 and bound(got - 1) == "compute-bound":
            return f"for N = {N} and D = {D} the answer is block_q = {got}, but {got - 1} is compute-bound, too. {got} is not the smallest: try every b, 1, 2, 3, ..."
    return ""


CAUSES = {
    "bytes": (elements_are_no_bytes, what_a_key_costs, what_a_query_costs, blocks_of_keys),
    "time": (one_kernel, one_after_another),
    "block": (the_edge,),
}
