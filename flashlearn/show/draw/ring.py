"""Attention over a ring of processes: who computes which block of S in which step, whose K and V pass by, and who waits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from flashlearn.core.steps import Step
from flashlearn.ring.plan import shares
from flashlearn.show.draw.letters import width
from flashlearn.show.draw.memories import PAD
from flashlearn.show.draw.scene import NARROW, WIDE, Grid, Look, Rect, Scene, blocks_of
from flashlearn.show.draw.values import check_step, check_steps_of

WANTED = ("s", "processes", "order", "owners", "work", "messages")
Rows = list[tuple[float, float]]  # (y, height) of each process


def draw_ring(step: Step, *, narrow: bool = False) -> Scene:
    """One step of the ring: the table of scores at the left, with the number of the process in what it computes; the
    processes, one a row, with the queries they keep and the K and V they have; and their clocks."""
    check_step("ring attention", step)
    run = [s for s in step.so_far if "work" in s.values]
    here = run[-1] if run else step  # the last step of a run does no work
    check_steps_of("ring attention", here if step.phase == "done" else step, values=WANTED)
    run = [s for s in run if s.phase == here.phase]
    whole = [s for s in (step.run or run) if s.phase == here.phase and "work" in s.values]
    s, P = here.values["s"], here.values["processes"]
    size, top = (220, 96) if narrow else (260, 66)
    high = 36 if narrow else size / P
    scene = Scene(NARROW, top + size + 40 + high * P + 30) if narrow else Scene(WIDE, top + size + 44)
    what = "done" if step.phase == "done" else f"ring step {s} (from 0 to {P - 1})"
    words = [f"{here.phase}, {here.values['order']} order:", what]
    for line, each in enumerate(words if narrow else [" ".join(words)]):
        scene.text(PAD if narrow else 350, 16 + 18 * line, each, 14, bold=True)
    scene.text(PAD if narrow else 44, 58 if narrow else 16, "S, and who computes it", 14, bold=True)
    _table(scene, Rect(44, top, size, size), run, whole, step.phase == "done")
    left, first = (PAD, top + size + 40) if narrow else (350, top)
    rows: Rows = [(first + r * high, high) for r in range(P)]
    for r, (y, h) in enumerate(rows):
        _process(scene, here, r, left, y + h / 2, h)
    clock = Rect(212 if narrow else 620, 0, scene.width - (212 if narrow else 620) - PAD, 0)
    scene.text(clock.x, first - 10, "time", 12)
    _clocks(scene, run, clock, rows, _time(whole), here)
    _key(scene, left)
    return scene


def draw_clocks(runs: Mapping[str, Sequence[Step]], *, narrow: bool = False) -> Scene:
    """The clocks of all processes for several runs, one above the other on one scale: busy, and idle, hatched."""
    kept = {name: [s for s in run if s.phase == "forward"] for name, run in runs.items()}
    if not kept or not all(kept.values()):
        raise ValueError(f"expected recorded steps of ring attention for every name, got none for {list(runs)}")
    full, high, left = max(_time(run) for run in kept.values()), 30, 84
    processes = [run[0].values["processes"] for run in kept.values()]
    head = 52 if narrow else 34
    scene = Scene(NARROW if narrow else WIDE, sum(head + high * P + 10 for P in processes) + 34)
    top = 0.0
    for (name, run), P in zip(kept.items(), processes, strict=True):
        busy = sum(block.pairs for s in run for block in s.values["work"]) / P / _time(run)
        words = [f"{name}: {_time(run):,} units of time,", f"busy {busy:.0%}"]
        for line, each in enumerate(words if narrow else [" ".join(words)]):
            scene.text(PAD, top + 18 + 18 * line, each, 14, bold=True)
        rows = [(top + head + r * high, float(high)) for r in range(P)]
        for r, (y, h) in enumerate(rows):
            scene.text(left - 8, y + h / 2, f"process {r}", 12, anchor="end")
        _clocks(scene, run, Rect(left, 0, scene.width - left - PAD, 0), rows, full)
        top += head + high * P + 10
    _key(scene, left, idle="waits")
    return scene


# --- parts -------------------------------------------------------------------------------------------------


def _table(scene: Scene, area: Rect, run: Sequence[Step], whole: Sequence[Step], done: bool) -> None:
    """S: hatched what is never computed, tinted what was computed, strong with a number what is computed now."""
    N = run[-1].shapes["S"][-1]
    grid = Grid(area.x, area.y, N, N, area.w / N, area.h / N)
    scene.rect(grid.rect(), "blank")
    never = [[True] * N for _ in range(N)]  # what no process computes in any step
    for block in (block for step in whole for block in step.values["work"]):
        for r in range(*block.rows):
            never[r][slice(*block.cols)] = [False] * (block.cols[1] - block.cols[0])
    for rows, cols in blocks_of(never):
        scene.hatch(grid.rect(rows, cols), "masked")
    for step in run:
        now = step is run[-1] and not done
        for block in step.values["work"]:
            rect = grid.rect(block.rows, block.cols)
            scene.rect(rect, "S", "" if now else "light", "blank")
            if now:
                scene.text(*rect.centre, block.process, 13, anchor="middle", bold=True, role="on")
                scene.outline(rect, 1.5)
    scene.rect(grid.rect(), edge="quiet")
    order, P = run[-1].values["order"], run[-1].values["processes"]
    for r, (start, stop) in ((r, c) for r, chunks in enumerate(shares(N, P, order)) for c in chunks if c[0] < c[1]):
        middle = (start + stop) / 2
        scene.text(grid.x - 8, grid.y + middle * grid.h, f"Q{r}", 12, anchor="end")
        scene.text(grid.x + middle * grid.w, grid.y - 10, f"K{r}", 12, anchor="middle")


def _process(scene: Scene, step: Step, r: int, left: float, y: float, high: float) -> None:
    """A process: its number, its queries, and the K and V that it has now; an arrow if it sends them on."""
    owner, box, narrow = step.values["owners"][r], min(28.0, high - 8), scene.width == NARROW
    scene.text(left, y, str(r) + ":" if narrow else f"process {r}", 13)
    x, wide = left + (20 if narrow else 76), 34 if narrow else 38
    for name, words in (("Q", f"Q{r}"), ("K", f"K{owner}"), ("V", f"V{owner}")):
        scene.rect((x, y - box / 2, wide, box), name, edge="quiet", id=f"{name}-of-{owner if name in 'KV' else r}")
        ink = "on-Q" if name == "Q" else "on"
        scene.text(x + wide / 2, y, words, 13, anchor="middle", bold=True, role=ink)
        x += wide + (8 if name == "Q" else 0)
    sent = [parcel for parcel in step.values["messages"] if parcel.source == r]
    if sent:
        to = ", ".join(str(to) for to in dict.fromkeys(parcel.to for parcel in sent))
        words = f"▸ to {to}"
        scene.text(x + 6, y, words if width(words, 13) < 60 or not narrow else f"▸ {to}", 13)


def _time(run: Iterable[Step]) -> int:
    """Units of time: in every step all wait for the one with most pairs."""
    return sum(max(_busy(step)) for step in run)


def _busy(step: Step) -> list[int]:
    """Pairs that each process computes in a step."""
    busy = [0] * step.values["processes"]
    for block in step.values["work"]:
        busy[block.process] += block.pairs
    return busy


def _clocks(scene: Scene, run: Sequence[Step], area: Rect, rows: Rows, full: int, now: Step | None = None) -> None:
    """What every process did with its time: filled where it computed, hatched where it waited; lines between steps."""
    x, unit = area.x, area.w / full
    for step in run:
        busy = _busy(step)
        wide = max(busy) * unit
        for work, (y, h) in zip(busy, rows, strict=True):
            high = min(h - 8, 28.0)
            top, end = y + (h - high) / 2, x + work * unit
            if work < max(busy):
                scene.hatch((end, top, x + wide - end, high), "masked")
            if work:
                scene.rect((x, top, work * unit, high), "S", "" if step is now else "half")
        x += wide
        scene.line((x, rows[0][0]), (x, rows[-1][0] + rows[-1][1]), role="quiet", stroke=1)


def _key(scene: Scene, left: float, idle: str = "waits, or hidden by the mask") -> None:
    """What the faces mean, in one line at the foot."""
    entries = [("computes", Look("S", "half")), (idle, Look("masked", hatched=True))]
    scene.legend(left, scene.height - 14, entries, 12, right=scene.width)
