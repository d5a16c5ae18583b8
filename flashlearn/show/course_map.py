"""`here`: where a notebook stands in the course, and what its algorithms move.

    here("03")

The numbers are counted from recorded steps (`flashlearn.show.course`), so none of them is typed.
"""

from __future__ import annotations

import html
from dataclasses import dataclass

from flashlearn.show.course import STAGES, Algorithm, Stage, before

HEADS = ("function", "loops", "reads", "read B", "written B", "extra B", "on chip B", "on chip")
LEGEND = (
    "Loops: those that read from the large memory. Reads: how often a matrix is read in all. "
    "Extra: stored besides the result. On chip: the most that one program holds."
)
CHIP = "display:inline-block;padding:0 .45em;border:1px solid currentColor;border-radius:.4em;"
THERE = "background:#0072b2;color:#fff;font-weight:bold"


@dataclass(frozen=True)
class Here:
    """The place of one notebook; displays itself as a line of all notebooks and a small table."""

    stage: Stage

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """A line for what came before, if anything did, and one for every algorithm of the notebook."""
        old = before(self.stage)
        earlier = [("before: " + old.name, *cells(old))] if old else []
        return earlier + [(each.name, *cells(each)) for each in self.stage.algorithms]

    @property
    def sizes(self) -> str:
        sizes = dict.fromkeys(each.sizes for each in self.stage.algorithms)
        longest = [one for one in sizes if not any(other != one and other.startswith(one) for other in sizes)]
        return f"Counted for {'; '.join(longest)}. {LEGEND}"

    def __repr__(self) -> str:
        place = f"Notebook {self.stage.number} of {STAGES[-1].number}, {self.stage.title}: {self.stage.new}."
        wide = [max(len(row[column]) for row in (HEADS, *self.rows)) for column in range(len(HEADS))]
        lines = ["  ".join(map(_padded, row, wide, range(len(wide)))).rstrip() for row in (HEADS, *self.rows)]
        return "\n".join([place, *lines, self.sizes])

    def _repr_html_(self) -> str:
        stage = self.stage
        label = html.escape(f"You are at notebook {stage.number} of {STAGES[-1].number}: {stage.title}")
        return (
            f'<section aria-label="{label}"><p style="line-height:2.2">{way(stage)}</p>'
            f"<p><strong>{stage.number} {html.escape(stage.title)}</strong>: {html.escape(stage.new)}.</p>"
            f"{table(HEADS, self.rows, '')}<p><small>{html.escape(self.sizes)}</small></p></section>"
        )


def here(number: str) -> Here:
    """Where the notebook of this number stands: `here("03")` as its first cell."""
    for stage in STAGES:
        if stage.number == number:
            return Here(stage)
    raise ValueError(f'expected the number of a notebook, "00" to "{STAGES[-1].number}", got {number!r}')


def way(stage: Stage) -> str:
    """All notebooks in a line, by part, this one marked."""
    parts: dict[str, list[str]] = {}
    for each in STAGES:
        title = html.escape(each.title, quote=True)
        if each is stage:
            chip = f'<strong aria-current="step" style="{CHIP}{THERE}">▸ {each.number} {title}</strong>'
        else:
            chip = f'<span title="{title}" style="{CHIP}">{each.number}</span>'
        parts.setdefault(each.part, []).append(chip)
    groups = (f"{html.escape(part)} {' '.join(chips)}".strip() for part, chips in parts.items())
    return " &nbsp; ".join(f'<span style="white-space:nowrap">{group}</span>' for group in groups)


def table(heads: tuple[str, ...], rows: list[tuple[str, ...]], caption: str) -> str:
    """Rows as an HTML table, the first of each its name; numbers to the right."""
    above = "".join(f'<th scope="col"{_side(at)}>{html.escape(head)}</th>' for at, head in enumerate(heads))
    body = "".join(
        f'<tr><th scope="row"{_side(0)}>{html.escape(row[0])}</th>'
        + "".join(f"<td{_side(at)}>{html.escape(cell)}</td>" for at, cell in enumerate(row[1:], start=1))
        + "</tr>"
        for row in rows
    )
    named = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f"<table>{named}<thead><tr>{above}</tr></thead><tbody>{body}</tbody></table>"


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
