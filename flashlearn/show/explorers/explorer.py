"""An explorer: a player with a panel of controls, each of them a trait, that record another run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

from traitlets import Dict, Enum, List, Unicode

from flashlearn.core.steps import Step
from flashlearn.show.bundle import LIVE, browser_text, show
from flashlearn.show.draw.style import stylesheet
from flashlearn.show.frame import Draw
from flashlearn.show.player import Player, count, on_chip

Runs = Mapping[str, list[Step]]
SCRIPTS = ("picture.js", "player.js", "saved.js", "view.js", "explorer.js", "explored.js")


class Control(NamedTuple):
    """A trait that a reader can set.

    label    the words next to it
    help     one phrase more
    values   what it can be: numbers make a slider, words a choice, (False, True) a box
    argument what it is called where an explorer is made, if not as the trait
    """

    label: str
    help: str
    values: tuple[Any, ...]

    def described(self, name: str) -> dict[str, Any]:
        """The control as explorer.js takes it."""
        about = {"name": name, "label": self.label, "help": self.help}
        if isinstance(self.values[0], bool):
            return {**about, "check": True}
        return {**about, "options" if isinstance(self.values[0], str) else "values": list(self.values)}


class Shown(NamedTuple):
    """What an explorer shows for one setting of its controls.

    draw         paints a step
    text         a sentence about the run
    need, room   elements on chip, needed and there; 0 where that is not the question
    """

    runs: Runs
    draw: Draw
    alt: str
    text: str
    need: int = 0
    room: int = 0


class Setting(Enum):
    """The trait of a control: one of the values of that control."""

    def __init__(self, control: Control, default: Any):
        super().__init__(list(control.values), default_value=default)
        self.control = control
        self.tag(sync=True)

    def validate(self, obj: Any, value: Any) -> Any:
        """TraitError for what is none of the values; True and False are no numbers."""
        if isinstance(value, bool) and not isinstance(self.control.values[0], bool):
            self.error(obj, value)
        return super().validate(obj, value)


class Explorer(Player):
    """A player whose run follows its settings: `explorer.N = 16` is what the slider does.

    Each setting is a trait, readable and linkable; `report` is the sentence about the run.
    """

    _esm = Unicode(browser_text(*SCRIPTS)).tag(sync=True)
    _css = Unicode(browser_text("player.css", "explorer.css") + LIVE + stylesheet()).tag(sync=True)
    controls: Any = List().tag(sync=True)  # as explorer.js has them
    chosen: Any = List().tag(sync=True)  # settings that are decided by another one
    hidden: Any = List().tag(sync=True)  # settings that do not matter now
    said = Dict().tag(sync=True)
    call = Unicode().tag(sync=True)
    function: ClassVar[str]  # the function that makes one
    buttons: ClassVar[dict[str, tuple[str, str]]] = {}  # {method: (label, help)}
    _animated = False  # one picture is stored

    def __init__(self, start: Mapping[str, Any], *, step: int = 0, **how: Any):
        self._quiet = True
        self._settings = {name: each.control for name, each in vars(type(self)).items() if isinstance(each, Setting)}
        for name, value in self._checked(start).items():
            setattr(self, name, value)
        self._shown = self._show()
        super().__init__(self._shown.runs, self._shown.draw, alt=self._shown.alt, still=step, **how)
        buttons = [{"press": name, "label": label, "help": help} for name, (label, help) in self.buttons.items()]
        with self.hold_sync():
            self.controls = [control.described(name) for name, control in self._settings.items()] + buttons
            self.step = step
            self._say()
        self._quiet = False
        self.observe(lambda change: self._changed(change["name"]), list(self._settings))
        self.observe(lambda change: self._say(), "step")
        self.on_msg(self._pressed)

    def _checked(self, start: Mapping[str, Any]) -> Mapping[str, Any]:
        """The first values; TypeError or ValueError for what no control can be set to."""
        for name, value in start.items():
            if name not in self._settings:
                raise TypeError(f"expected some of {', '.join(self._settings)}, step, got {name}")
            values = self._settings[name].values
            if all(isinstance(each, int) for each in values) and type(value) is not type(values[0]):
                raise TypeError(f"expected {name} to be {_kind(values[0])}, got {type(value).__name__}")
            if value not in values:
                raise ValueError(f"expected {name} {_named(values)}, got {value!r}")
        return start

    def _still_number(self) -> int:
        """The first step from the one shown on with something on chip in every run."""
        last = count(self.runs) - 1
        first = min(self.step, last)
        return next((n for n in range(first, last + 1) if on_chip(self.runs, n)), first)

    # --- of each explorer ---

    def _show(self) -> Shown:
        """What the settings say; it may set some of them itself."""
        raise NotImplementedError

    # --- changes ---

    def _changed(self, name: str = "") -> None:
        """Record what the settings say, and show it, unless this change is part of another one."""
        if self._quiet:
            return
        with self._together():
            shown, before = self._show(), self.draw_step
            try:
                self.draw_step = shown.draw
                self.show(shown.runs, alt=shown.alt)
            except BaseException:
                self.draw_step = before
                raise
            self._shown = shown
            self._say()

    @contextlib.contextmanager
    def _together(self) -> Iterator[None]:
        """Changes that are parts of one."""
        quiet, self._quiet = self._quiet, True
        try:
            with self.hold_sync():
                yield
        finally:
            self._quiet = quiet

    def _say(self) -> None:
        shown = self._shown
        self.said = {"text": shown.text, "need": shown.need, "room": shown.room}
        given = {name: value for name, value in self.settings.items() if value != self.trait_defaults(name)}
        given |= {"step": self.step} if self.step else {}
        self.call = f"{self.function}({', '.join(f'{name}={value!r}' for name, value in given.items())})"

    def _pressed(self, widget: Any, content: dict, buffers: list) -> None:
        if content.get("press") in self.buttons:
            getattr(self, content["press"])()

    @property
    def settings(self) -> dict[str, Any]:
        """All settings by name."""
        return {name: getattr(self, name) for name in self._settings}

    @property
    def report(self) -> str:
        """The sentence about the run."""
        return self._shown.text

    def set(self, **settings: Any) -> None:
        """Change several settings at once."""
        with self._together():
            for name, value in settings.items():
                setattr(self, name, value)
        self._changed()

    def _ipython_display_(self) -> None:
        show(self._repr_mimebundle_(), "move it")

    def __repr__(self) -> str:
        return f"[explorer, {self.call}] {self.alt}"


def _kind(value: Any) -> str:
    return "True or False" if isinstance(value, bool) else "an int"


def _named(values: Iterable[Any]) -> str:
    values = list(values)
    if isinstance(values[0], int) and values == list(range(values[0], values[-1] + 1)):
        return f"from {values[0]} to {values[-1]}"
    return f"to be one of {', '.join(map(repr, values))}"


def numbers(label: str, low: int, high: int, help: str) -> Control:
    """A slider over whole numbers."""
    return Control(label, help, tuple(range(low, high + 1)))
