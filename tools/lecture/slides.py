"""Slides, read from Markdown files: one file a notebook, one slide below each `# title`.

    # Online softmax
    minutes: 8, 7
    run: online_softmax
    ask 3: 5 is larger than the maximum so far. What becomes of ℓ?

    Text in Markdown, with formulas between dollar signs and {{numbers}} by name.

    Note:
    What to say.

Below the title, up to the first empty line:

    minutes    in the long lecture, in the short one; 0: left out there. A slide without them is in both and takes none
    run        a run of runs.py, or plot: a picture, explorer: tiling, question: one of the course, by its id, or poll: a
               question whose choices are the list below, each "- text :: why", the right one "- [x] text :: why". One at most
    steps      of the run, from 1, at which Page Down stops, "1, 3, 5-8"; about eight unless given
    still      the step that the handout shows, the last unless given
    ask N      the question that is asked before step N is shown
    needs      a package without which the slide is left out
    only       2x45: the slide is in the lecture of two halves alone

Files are read in the order of their names, which begin with the number of a notebook. No HTML is made here.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from flashlearn.exercises.questions import QUESTIONS

LENGTHS = {"90": 0, "45": 1, "2x45": 0}  # each with its column of minutes; the last is the long one in two halves
SHOWS = ("run", "plot", "explorer", "question", "poll")
KNOWN = {"minutes", "steps", "still", "needs", "only", *SHOWS}


@dataclass(frozen=True)
class Choice:
    """An answer to a poll, and what is said of it once the hall has voted."""

    text: str
    because: str


@dataclass(frozen=True)
class Poll:
    """A question asked before the answer is shown.

    right   the place of the right choice, from 0
    plain   whether its words are text, not Markdown
    """

    question: str
    choices: tuple[Choice, ...]
    right: int
    plain: bool = False

    def __post_init__(self):
        if not 3 <= len(self.choices) <= 5:
            raise ValueError(f"expected three to five choices, got {len(self.choices)} for {self.question!r}")
        if len({choice.text for choice in self.choices}) < len(self.choices):
            raise ValueError(f"expected choices that differ, got {[choice.text for choice in self.choices]}")

    @classmethod
    def of(cls, name: str) -> Poll:
        """The question of this name, as a notebook asks it. KeyError if there is none."""
        question = QUESTIONS[name]
        because = {text: f"You may be thinking that {believes}." for text, believes in question.beliefs.items()}
        because[question.right] = f"Right. {question.why}"
        choices = tuple(Choice(text, because[text]) for text in question.choices)
        return cls(question.text, choices, question.choices.index(question.right), plain=True)


@dataclass(frozen=True)
class Slide:
    """One slide.

    minutes   (in the long lecture, in the short one); None: no time of its own
    run       the name of a run, or ""; likewise plot and explorer
    steps     of the run, from 0, at which Page Down stops; empty: chosen from the run
    asks      {step, from 0: the question before it}
    still     the step, from 0, that stands for the run on paper; -1 is the last
    only      the lecture that it is in, or "" for all
    """

    notebook: str
    title: str
    minutes: tuple[float, float] | None
    text: str
    notes: str
    run: str = ""
    plot: str = ""
    explorer: str = ""
    poll: Poll | None = None
    steps: tuple[int, ...] = ()
    asks: dict[int, str] = field(default_factory=dict)
    still: int = -1
    only: str = ""


@dataclass(frozen=True)
class Planned:
    """A slide of a lecture, and how many minutes it has there."""

    slide: Slide
    minutes: float


def read(folder: Path, numbers: Mapping[str, str]) -> list[Slide]:
    """All slides of a folder, with these numbers in place of their names; ValueError says in which file what is wrong."""
    found = []
    for path in sorted(folder.glob("[0-9][0-9]_*.md")):
        parts = re.split(r"^# ", with_numbers(path, numbers), flags=re.MULTILINE)[1:]
        found += [slide for part in parts for slide in _slide(part, path)]
    if not found:
        raise ValueError(f"expected slides in files like 03_online_softmax.md in {folder}, found none")
    return found


def planned(slides: list[Slide], length: str) -> list[Planned]:
    """The slides of a lecture of "90", "45" or "2x45" minutes."""
    if length not in LENGTHS:
        raise ValueError(f"expected a lecture of {', '.join(LENGTHS)} minutes, got {length}")
    mine = [slide for slide in slides if slide.only in ("", length)]
    minutes = ((slide, slide.minutes[LENGTHS[length]] if slide.minutes else None) for slide in mine)
    return [Planned(slide, each or 0) for slide, each in minutes if each != 0]


def with_numbers(path: Path, numbers: Mapping[str, str]) -> str:
    """The text of a file, {{names}} replaced by numbers, but for {{minutes}}, which are known when a lecture is planned."""
    names = {**numbers, "minutes": "{{minutes}}"}

    def number(name: re.Match) -> str:
        if name[1] not in names:
            raise ValueError(f"expected one of {', '.join(sorted(names))} in {path.name}, got {name[0]}")
        return names[name[1]]

    return re.sub(r"\{\{(\w+)\}\}", number, path.read_text(encoding="utf-8"))


def _slide(part: str, path: Path) -> Iterator[Slide]:
    """The slide of one part of a file; none if it needs what is not installed."""
    title, _, rest = part.partition("\n")
    head, _, rest = rest.partition("\n\n") if not rest.startswith("\n") else ("", "", rest)
    keys, asks = _keys(head, f"{path.name}, {title!r}")
    if "needs" in keys and importlib.util.find_spec(keys["needs"]) is None:
        return
    text, _, notes = rest.partition("Note:\n")
    text, poll = _poll(keys["poll"], text) if "poll" in keys else (text, None)
    if "question" in keys:
        poll = Poll.of(keys["question"])
    yield Slide(
        notebook=path.name[:2],
        title=title.strip(),
        minutes=_minutes(keys["minutes"]) if "minutes" in keys else None,
        text=text.strip(),
        notes=notes.strip(),
        run=keys.get("run", ""),
        plot=keys.get("plot", ""),
        explorer=keys.get("explorer", ""),
        poll=poll,
        steps=_steps(keys.get("steps", "")),
        asks=asks,
        still=int(keys.get("still", 0)) - 1,
        only=keys.get("only", ""),
    )


def _keys(head: str, where: str) -> tuple[dict[str, str], dict[int, str]]:
    """The lines below a title, and of them the questions before steps (from 0)."""
    keys, asks = {}, {}
    for line in filter(None, map(str.strip, head.splitlines())):
        key, colon, value = map(str.strip, line.partition(":"))
        if asked := re.fullmatch(r"ask (\d+)", key):
            asks[int(asked[1]) - 1] = value
        elif colon and key in KNOWN:
            keys[key] = value
        else:
            raise ValueError(f"expected one of {', '.join(sorted(KNOWN))}, ask N in {where}, got {line!r}")
    if sum(key in keys for key in SHOWS) > 1:
        raise ValueError(f"expected at most one of {', '.join(SHOWS)} in {where}")
    return keys, asks


def _minutes(value: str) -> tuple[float, float]:
    long, short = map(float, value.split(","))
    return long, short


def _steps(value: str) -> tuple[int, ...]:
    """ "1, 3, 5-8" as steps from 0."""
    parts = (part.split("-") for part in value.replace(" ", "").split(",") if part)
    return tuple(step - 1 for first, *last in parts for step in range(int(first), int((last or [first])[0]) + 1))


def _poll(question: str, text: str) -> tuple[str, Poll]:
    """The text without its list, and the poll that the list makes."""
    lines = re.findall(r"^- (\[x\] )?(.*?) :: (.*)$", text, flags=re.MULTILINE)
    right = [place for place, (mark, _, _) in enumerate(lines) if mark]
    if len(right) != 1:
        raise ValueError(f"expected one right choice, marked [x], got {len(right)} for {question!r}")
    rest = re.sub(r"^- .*\n?", "", text, flags=re.MULTILINE)
    return rest, Poll(question, tuple(Choice(choice, because) for _, choice, because in lines), right[0])
