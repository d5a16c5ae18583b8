"""`bytes_moved("03")`: what the algorithms of a notebook move; and the map of all of them.

The numbers are counted from recorded steps (`flashlearn.show.course`), so none of them is typed.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass

import torch

import flashlearn as fl
from flashlearn.show.course import STAGES, Algorithm, Stage, before

HEADS = ("function", "loops", "reads", "read B", "written B", "extra B", "on chip B", "on chip")
LEGEND = (
    "Loops: how many loops read from the large memory. Reads: how often a matrix is read in all. "
    "Extra: stored besides the result. On chip: the most that one program holds."
)


@dataclass(frozen=True)
class Moved:
    """What the algorithms of one notebook move, as a small table."""

    stage: Stage

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """A line for what came before, if anything did, and one for every algorithm of the notebook."""
        old = before(self.stage)
        earlier = [("before: " + old.name, *cells(old))] if old else []
        return earlier + [(each.name, *cells(each)) for each in self.stage.algorithms]

    @property
    def sizes(self) -> str:
        return f"Counted for {counted_for(self.stage.algorithms)}. {LEGEND}"

    def __repr__(self) -> str:
        wide = [max(len(row[column]) for row in (HEADS, *self.rows)) for column in range(len(HEADS))]
        lines = ["  ".join(map(_padded, row, wide, range(len(wide)))).rstrip() for row in (HEADS, *self.rows)]
        return "\n".join([*lines, self.sizes])

    def _repr_html_(self) -> str:
        return f"{table(self.rows)}<p><small>{html.escape(self.sizes)}</small></p>"


def bytes_moved(number: str) -> Moved:
    """What the algorithms of the notebook of this number read, write and keep: `bytes_moved("03")` near its end."""
    if stage := next((stage for stage in STAGES if stage.number == number), None):
        return Moved(stage)
    raise ValueError(f'expected the number of a notebook, "00" to "{STAGES[-1].number}", got {number!r}')


def counted_for(algorithms: Iterable[Algorithm]) -> str:
    """The sizes of algorithms, those left out that others only add to."""
    sizes = dict.fromkeys(each.sizes for each in algorithms)
    return "; ".join(one for one in sizes if not any(other != one and other.startswith(one) for other in sizes))


def table(rows: list[tuple[str, ...]]) -> str:
    """Rows below HEADS as an HTML table, the first of each its name; numbers to the right."""
    above = "".join(f'<th scope="col"{_side(at)}>{html.escape(head)}</th>' for at, head in enumerate(HEADS))
    body = "".join(
        f'<tr><th scope="row"{_side(0)}>{html.escape(row[0])}</th>'
        + "".join(f"<td{_side(at)}>{html.escape(cell)}</td>" for at, cell in enumerate(row[1:], start=1))
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{above}</tr></thead><tbody>{body}</tbody></table>"


def cells(algorithm: Algorithm) -> tuple[str, ...]:
    """What an algorithm moves, as texts; a dash where a library decides."""
    found = algorithm.count
    held = (f"{found.on_chip:,}", ", ".join(found.held)) if found.held else ("–", "as the library likes")
    return (
        str(found.loops),
        f"{found.of} {found.reads:.4g}×",
        *(f"{number:,}" for number in (found.read, found.written, found.extra)),
        *held,
    )


def _side(column: int) -> str:
    return f' style="text-align:{"left" if _left(column) else "right"}"'


def _left(column: int) -> bool:
    return column in (0, len(HEADS) - 1)


def _padded(text: str, wide: int, column: int) -> str:
    return text.ljust(wide) if _left(column) else text.rjust(wide)


# --- all of it on one page ---

MAP_HEADS = ("", "notebook", "function", "o of 1…6", *HEADS[1:], "bytes moved")
BAR = 70  # pixels of the longest bar of a kind
STYLE = """
@page { size: A4 landscape; margin: 7mm; }
body { font: 7pt/1.1 "DejaVu Sans", "Helvetica Neue", Arial, sans-serif; color: #000; background: #fff; margin: 0 auto; max-width: 281mm; }
h1 { font-size: 15pt; margin: 0 0 2mm; }
p { margin: 1.5mm 0; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 0.5pt solid #999; padding: 0.35mm 0.7mm; text-align: left; white-space: nowrap; vertical-align: top; }
th[rowspan] { font-weight: normal; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
.part th { border-bottom: 1.5pt solid #0072b2; padding-top: 1mm; text-align: left; color: #0072b2; }
svg { display: block; }
"""


def same_number(algorithm: Algorithm) -> str:
    """What it makes of x = v = [1, ..., 6], query 1: the number that all algorithms share.

    "" for a kernel, and for what is neither softmax nor attention.
    """
    if algorithm.kind not in ("softmax", "attention") or not fl.LATER.get(algorithm.name, "").startswith(
        "flashlearn.algorithms."
    ):
        return ""
    function, x = getattr(fl, algorithm.name), torch.arange(1.0, 7.0)
    if algorithm.kind == "softmax":
        return f"{(function(x, *([2] if 'blocked' in algorithm.name else [])) @ x).item():.4f}"
    sizes = {"block_q": 1, "block_k": 2} if "tiled" in algorithm.name else {}
    query, keys = torch.ones(1, 1, 1, 1), x.view(1, 1, 6, 1)
    return f"{function(query, keys, keys, **sizes).item():.4f}"


def course_table() -> str:
    """All notebooks and their algorithms as one HTML table, with a bar for the bytes of each."""
    heads = "".join(f'<th scope="col"{_number(at)}>{html.escape(head)}</th>' for at, head in enumerate(MAP_HEADS))
    lines, part = [], ""
    for stage in STAGES[1:]:
        if stage.part != part:
            part = stage.part
            lines.append(
                f'<tr class="part"><th scope="colgroup" colspan="{len(MAP_HEADS)}">{html.escape(part)}</th></tr>'
            )
        for at, algorithm in enumerate(stage.algorithms):
            lines.append(f"<tr>{_named(stage) if at == 0 else ''}{_counts(algorithm)}</tr>")
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _named(stage: Stage) -> str:
    rows = len(stage.algorithms)
    words = f"<strong>{html.escape(stage.title)}</strong><br>{html.escape(stage.new)}"
    return (
        f'<th scope="rowgroup" rowspan="{rows}">{stage.number}</th><th scope="rowgroup" rowspan="{rows}">{words}</th>'
    )


def _counts(algorithm: Algorithm) -> str:
    texts = (same_number(algorithm), *cells(algorithm))
    tds = "".join(f"<td{_number(at)}>{html.escape(text)}</td>" for at, text in enumerate(texts, start=3))
    return f'<th scope="row">{html.escape(algorithm.name)}</th>{tds}<td>{_bar(algorithm)}</td>'


def _bar(algorithm: Algorithm) -> str:
    """Read (blue) and written (vermillion) bytes, to the scale of all of its kind; in words, what the cells say."""
    found = algorithm.count
    most = max(
        one.count.read + one.count.written for each in STAGES for one in each.algorithms if one.kind == algorithm.kind
    )
    read, written = (max(0.5, BAR * part / most) for part in (found.read, found.written))
    return (
        f'<svg width="{BAR + 2}" height="10" viewBox="0 0 {BAR + 2} 10" role="img" aria-label="{found.read:,} B read, '
        f'{found.written:,} B written"><rect width="{read:.1f}" height="10" fill="#0072b2"/>'
        f'<rect x="{read:.1f}" width="{written:.1f}" height="10" fill="#d55e00"/></svg>'
    )


def _number(column: int) -> str:
    return ' class="number"' if 3 <= column < len(MAP_HEADS) - 2 else ""


def legend() -> str:
    """What the table is counted for."""
    sizes = counted_for(each for stage in STAGES[1:] for each in stage.algorithms)
    return (
        f"Counted from recorded steps for {sizes}. {LEGEND} Bars: read, then written, each kind to its own scale. "
        "o of 1…6: attention of the query 1 over keys and values 1 to 6, the same number for every algorithm."
    )


def page() -> str:
    """The map on one A4 page, as an HTML file."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>The ladder on one page</title><style>{STYLE}</style>'
        f"</head><body><h1>From one row of softmax to FlashAttention: the same numbers, fewer bytes</h1>{course_table()}"
        f"<p>{html.escape(legend())}</p></body></html>\n"
    )
