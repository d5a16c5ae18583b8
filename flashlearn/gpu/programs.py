"""From program ids of a launch grid to blocks, heads and batch entries, as steps."""

from __future__ import annotations

import math
from collections.abc import Iterator

from flashlearn.core.inputs import check_block
from flashlearn.core.steps import Step, Tile


def program_steps(N: int, block: int, *, H: int = 1, B: int = 1, name: str = "x") -> Iterator[Step]:
    """One step per program of a launch grid of (ceil(N / block), H, B): what the program works on.

    pid -> (block, head, batch) = (pid % blocks, pid // blocks % H, pid // (blocks H))

    name     the matrix that is cut into blocks, (B, H, N)
    program  (block, head, batch), as tl.program_id(0), (1) and (2) say
    values   pid, block (elements of a program), N, valid (elements that are not masked)
    """
    for size, what in ((N, "N"), (block, "block"), (H, "H"), (B, "B")):
        check_block(size, what)
    blocks, shapes = math.ceil(N / block), {name: (B, H, N)}
    for pid in range(blocks * H * B):
        i, head, batch = pid % blocks, pid // blocks % H, pid // (blocks * H)
        first, last = i * block, min((i + 1) * block, N)
        valid = last - first
        masked = f"{block - valid} elements are masked" if valid < block else "no element is masked"
        place = f"block {i}" + (f", head {head}, batch entry {batch}" if H * B > 1 else "")
        held = f"elements {first} to {last - 1}" if valid > 1 else f"element {first}"
        tile = Tile(name, ((batch, batch + 1), (head, head + 1), (first, last)), 4)
        yield Step(
            sentence=f"Program {pid}: {place}. It holds {held}; {masked}.",
            phase="launch",
            shapes=shapes,
            reads=(tile,),
            values={"pid": pid, "block": block, "N": N, "valid": valid},
            program=(i, head, batch),
        )
    sentence = f"Done: {blocks * H * B} programs of {block} elements. On a GPU they run in no particular order."
    values = {"pid": None, "block": block, "N": N, "valid": 0}
    yield Step(sentence=sentence, phase="done", shapes=shapes, values=values, output=blocks * H * B)
