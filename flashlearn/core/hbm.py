"""The two memories of a GPU: `HBM`, the large one, through which an algorithm reaches its matrices, and tiles on chip.

    hbm = HBM({"Q": q, "K": k, "V": v}, {"O": q.dtype}, shapes)
    Q_i = hbm.load("Q", rows)                   noted as a read; Q_i is a tile on chip now
    S = Q_i @ hbm.load("K", cols).mT            noted as a product; S knows where in the N x N matrix it stands
    hbm.store("O", rows, acc / l_i)             noted as a write
    yield hbm.step("blocks", S=S, acc=acc)      what was noted since the last step, as a `Step`

Nothing is declared, everything is measured. A tile meets other tiles, booleans and numbers only, and only a tile can
be stored, so that whatever reaches a result was loaded before; its products are counted where they are made. What is
on chip in a step is what it loaded, and what the program still holds at its end: a tile lives as long as a variable
holds it, or until `hbm.drop`, after which its use is an error. What is computed from a tile entry by entry takes its place, as registers
are written again: S, then P = exp(S - m), are one tile.

Sums are kept wide: a tile of a 16-bit matrix takes 16 bits an element on chip, and is computed with in float32, as
tensor cores do.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from flashlearn.core.numerics import Span, accumulator
from flashlearn.core.steps import Step, Tile

# What can be done with a tile besides `@`: the name in PyTorch -> what it counts as, for each element; "": not counted.
ELEMENTWISE = {
    "add": "add", "sub": "add", "rsub": "add", "mul": "multiply", "truediv": "divide", "div": "divide",
    "maximum": "max", "minimum": "max", "exp": "exp", "log": "log", "tanh": "tanh",
    "neg": "", "abs": "", "where": "", "masked_fill": "", "to": "", "detach": "",
}  # fmt: skip
BY_ROW = {"sum": "add", "amax": "max"}  # over the last dimension
UNNAMED = "tile"  # on chip, but not (yet) among the values of a step
ASKING = ("eq", "ne", "lt", "le", "gt", "ge", "isneginf", "isnan")  # their answers are booleans, no tiles
KNOWN = (*ELEMENTWISE, *BY_ROW, *ASKING)


class Place:
    """Room on chip: which piece of which matrix is there. It is free again when no tile is in it, or when dropped."""

    def __init__(self, name: str, index: tuple[Span, ...], itemsize: int, times: int):
        self.name, self.index, self.itemsize, self.times, self.dropped = name, index, itemsize, times, False
        self.loaded = name != UNNAMED
        self._tile: Tile | None = None

    def tile(self, name: str) -> Tile:
        """The piece under this name; made once, as it is asked for at every step."""
        if self._tile is None or self._tile.name != name:
            self._tile = Tile(name, self.index, self.itemsize, self.times)
        return self._tile


if TYPE_CHECKING:
    _Tensor = Tensor  # to a type checker a tile is a tensor; what it cannot do, it refuses when it is asked
else:
    _Tensor = object


class OnChip(_Tensor):
    """A tile on chip: a tensor that can be computed with only in ways that are counted.

    `@`, arithmetic with tiles, numbers and booleans, `torch.exp` and the others of `ELEMENTWISE`, `sum` and `amax`
    over the last dimension; `mT`; blocks of its rows (`rows`, `put`). Anything else is a TypeError.
    """

    def __init__(self, hbm: HBM, tensor: Tensor, place: Place, index: tuple[Span, ...] | None = None):
        self._hbm, self._tensor, self._place = hbm, tensor, place
        self._index = place.index if index is None else index  # where this view of the place stands

    if TYPE_CHECKING:  # operators are set below

        def __matmul__(self, other: Any) -> OnChip: ...
        def __add__(self, other: Any) -> OnChip: ...
        def __sub__(self, other: Any) -> OnChip: ...
        def __mul__(self, other: Any) -> OnChip: ...
        def __truediv__(self, other: Any) -> OnChip: ...
        def __radd__(self, other: Any) -> OnChip: ...
        def __rmul__(self, other: Any) -> OnChip: ...
        def __neg__(self) -> OnChip: ...
        def exp(self) -> OnChip: ...
        def sum(self, *dims: Any, **options: Any) -> OnChip: ...
    else:
        shape = property(lambda self: self._tensor.shape)
        dtype = property(lambda self: self._tensor.dtype)
        device = property(lambda self: self._tensor.device)

        def __neg__(self):
            return compute("neg", (self,), {})

    @property
    def mT(self) -> OnChip:  # type: ignore[override]  # a tensor's may be set
        """Transposed, in the same room."""
        return OnChip(self._hbm, self._held().mT, self._place, (*self._index[:-2], self._index[-1], self._index[-2]))

    def rows(self, span: Span) -> OnChip:
        """The rows (start, stop) of the whole matrix, of those that this tile has; in the same room."""
        return OnChip(self._hbm, self._held()[..., self._slice(span), :], self._place, self._with_rows(span))

    def put(self, span: Span, new: OnChip) -> OnChip:  # type: ignore[override]  # not the `put` of tensors
        """This tile with other values in the rows (start, stop) of the whole matrix; in the same room."""
        old, here = self._held(), self._slice(span)
        if (expected := (*old.shape[:-2], here.stop - here.start, old.shape[-1])) != new.shape:
            raise ValueError(f"expected a tile of shape {expected} for the rows {span}, got {tuple(new.shape)}")
        parts = [old[..., : here.start, :], new._held(), old[..., here.stop :, :]]
        return OnChip(self._hbm, torch.cat(parts, -2), self._place, self._index)

    def sum_groups(self, heads: int) -> OnChip:
        """(B, H, n, D) to (B, heads, n, D): what the heads of a group give to the head that they share adds up."""
        t, (batch, _, *rest) = self._held(), self._index
        if t.shape[1] == heads:
            return self
        return self._hbm._take(UNNAMED, t.unflatten(1, (heads, -1)).sum(2), (batch, (0, heads), *rest))

    def distance(self, shift: int) -> OnChip:
        """|i + shift - j| for every entry, at row i and column j of the whole matrix; a tile in room of its own."""
        t, (rows, cols) = self._held(), self._index[-2:]
        i, j = torch.arange(*rows, device=t.device)[:, None], torch.arange(*cols, device=t.device)
        return self._hbm._take(UNNAMED, (i + shift - j).abs().to(t.dtype).expand(t.shape), self._index)

    def beside(self, name: str) -> OnChip:
        """The same numbers in room of their own, for whoever needs them after this tile was computed with."""
        return self._hbm._take(name, self._held(), self._index)

    def sum_rows(self) -> OnChip:
        """(B, H, n, 1) to (1, H, 1, 1): what all rows of all sequences give to a number of their head adds up."""
        t, (_, heads, *_) = self._held(), self._index
        return self._hbm._take(UNNAMED, t.sum((0, 2, 3), keepdim=True), ((0, 1), heads, (0, 1), (0, 1)))

    def flat(self) -> OnChip:
        """(..., n, D) to (n of all, D): one matrix of all rows, in the same room."""
        t = self._held().flatten(0, -2)
        return OnChip(self._hbm, t, self._place, ((0, t.shape[0]), self._index[-1]))

    def held(self) -> Tensor:
        """A copy of the tensor, to look at; what is computed from it is no tile. ValueError if the tile was dropped."""
        return self._held().clone()

    def _held(self) -> Tensor:
        if self._place.dropped:
            raise ValueError(f"expected a tile on chip, got {self._place.tile(self._place.name)}, which was dropped")
        return self._tensor

    def __deepcopy__(self, _: Any) -> OnChip:
        raise TypeError("expected a tile to stay where it is, got a copy of it: `beside` takes room for one")

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return compute(func.__name__, args, kwargs or {})

    def __getattr__(self, name: str) -> Callable:
        if name not in KNOWN:
            raise AttributeError(f"expected one of @, {', '.join(KNOWN)} of a tile, got {name}")
        return lambda *args, **kwargs: compute(name, (self, *args), kwargs)

    def _slice(self, span: Span) -> slice:
        first, end = self._index[-2]
        if not first <= span[0] <= span[1] <= end:
            raise ValueError(f"expected rows of this tile, inside {(first, end)}, got {span}")
        return slice(span[0] - first, span[1] - first)

    def _with_rows(self, span: Span) -> tuple[Span, ...]:
        return (*self._index[:-2], span, self._index[-1])

    __hash__ = object.__hash__


def _operator(name: str, swapped: bool = False) -> Callable:
    return lambda self, other: compute(name, (other, self) if swapped else (self, other), {})


for _name in ("matmul", "add", "sub", "mul", "truediv", "eq", "ne", "lt", "le", "gt", "ge"):
    setattr(OnChip, f"__{_name}__", _operator(_name))
    if _name in ("matmul", "add", "sub", "mul", "truediv"):
        setattr(OnChip, f"__r{_name}__", _operator(_name, swapped=True))


def compute(name: str, args: tuple, kwargs: Mapping[str, Any]) -> OnChip | Tensor:
    """What PyTorch's `name` makes of tiles: its work is counted, and its result finds its room.

    TypeError for a tensor that was not loaded, and for anything that a tile does not know; ValueError for tiles of two
    memories.
    """
    name = name.removeprefix("__").removesuffix("__")
    tiles = [a for a in args if isinstance(a, OnChip)]
    for other in (*args, *kwargs.values()):
        if isinstance(other, Tensor) and other.dtype != torch.bool:
            raise TypeError(f"expected a tile, which `HBM.load` gives, in {name}, got a tensor {tuple(other.shape)}")
    if len({id(tile._hbm) for tile in tiles}) > 1:
        raise ValueError(f"expected tiles of one memory in {name}, got some of two")
    if name == "matmul" and len(tiles) == 2:
        return _product(*tiles)
    if name not in KNOWN:
        raise TypeError(f"expected one of @, {', '.join(KNOWN)} with tiles, got {name}")
    if name in BY_ROW and (dims := kwargs.get("dim", args[1] if len(args) > 1 else None)) not in (-1, (-1,), [-1]):
        raise TypeError(f"expected {name} over the last dimension, -1, of a tile, got {dims}")
    plain = [a._held() if isinstance(a, OnChip) else a for a in args]
    function = getattr(torch, name, None) or getattr(Tensor, name, None) or torch.true_divide
    result = function(*plain, **kwargs)
    if name in ASKING:
        return result
    return _by_row(name, result, tiles[0]) if name in BY_ROW else _by_entry(name, result, tiles)


def _by_entry(name: str, result: Tensor, tiles: list[OnChip]) -> OnChip:
    """The result takes the place of the first tile of its shape. Adding a product is part of the product."""
    same = next((tile for tile in tiles if tile.shape == result.shape), None)
    if same is None:
        shapes = ", ".join(str(tuple(tile.shape)) for tile in tiles)
        raise TypeError(
            f"expected {name} of tiles of which one has the shape of the result, {tuple(result.shape)}, got {shapes}: "
            f"a product of every row with every column is written @"
        )
    kind, hbm = ELEMENTWISE[name], same._hbm
    part_of_product = name == "add" and any(tile._place in hbm.fresh for tile in tiles)
    if kind and not part_of_product:
        hbm.operations[kind] += result.shape[-1]
    hbm.fresh.difference_update(tile._place for tile in tiles)
    return OnChip(hbm, result, same._place, same._index)


def _by_row(name: str, result: Tensor, tile: OnChip) -> OnChip:
    """One number a row: w - 1 additions or comparisons."""
    tile._hbm.operations[BY_ROW[name]] += max(0, tile.shape[-1] - 1)
    return tile._hbm._take(UNNAMED, result, (*tile._index[:-1], (0, 1))[: result.ndim])


def _product(left: OnChip, right: OnChip) -> OnChip:
    """left @ right, noted as (batch, m, n, p): it stands at the rows of the left one and the columns of the right."""
    a, b, hbm = left._held(), right._held(), left._hbm
    kind = a.device.type  # autocast knows no "meta"
    with torch.autocast(kind, enabled=False) if kind != "meta" and torch.is_autocast_enabled(kind) else nullcontext():
        result = a @ b  # in the dtype of the tiles, whatever the caller has around it
    hbm.products.append((result.shape[:-2].numel(), *a.shape[-2:], b.shape[-1]))
    batch = tuple((0, size) for size in result.shape[:-2])
    made = hbm._take(UNNAMED, result, (*batch, left._index[-2], right._index[-1]))
    hbm.fresh.add(made._place)
    return made


class HBM:
    """The large memory of a GPU, with the matrices of one algorithm, and the note of all that was done with them.

    given   the matrices that the algorithm starts from, by name
    made    those that it writes, by name: the dtype of each. What was never written is NaN.
    shapes  the shape of every one of them, and of what has a place in pictures only, such as S
    told    what happened in a step, in one sentence: a function of the step (see `flashlearn.algorithms.captions`)
    narrow  computed in the dtype of the matrices, not with wide sums
    whole   the operations are those of a library, on whole matrices; how it cuts each of them is its affair, so
            nothing is said to be on chip

    Heads: in (B, H, N, D) a matrix with fewer heads than Q is read by every query head of its group for itself.
    """

    def __init__(
        self,
        given: Mapping[str, Tensor],
        made: Mapping[str, torch.dtype],
        shapes: Mapping[str, tuple[int, ...]],
        told: Callable[[Step], str] | str = "",
        narrow: bool = False,
        whole: bool = False,
    ):
        self.given, self.made, self.shapes = dict(given), dict(made), {n: tuple(s) for n, s in shapes.items()}
        self._check_matrices()
        self.told, self.whole = told, whole
        self.sums = (lambda dtype: dtype) if narrow else accumulator  # the dtype of a matrix -> that of a tile
        self.products: list[tuple[int, ...]] = []
        self.operations: Counter = Counter()
        self.fresh: weakref.WeakSet[Place] = weakref.WeakSet()  # products that nothing was added to yet
        self._places: list[weakref.ref[Place]] = []  # in the order in which they were taken
        self._reads: list[Tile] = []
        self._writes: list[tuple[Tile, Tensor]] = []
        self._loaded: list[Place] = []  # in this step: they were on chip, whether or not anybody still holds them
        self._stored: dict[str, Tensor] = {}
        self._stored_as: dict[str, Tensor] = {}  # bytes of every element

    def _check_matrices(self) -> None:
        """Refuse matrices that are none, have no shape or another."""
        if not self.given:
            raise ValueError("expected at least one given matrix, got none")
        for name in (*self.given, *self.made):
            if name not in self.shapes:
                raise ValueError(f"expected a shape for every matrix, got none for {name}")
        for name, tensor in self.given.items():
            if not isinstance(tensor, Tensor):
                raise TypeError(f"expected a tensor for {name}, which is given, got {type(tensor).__name__}")
            if tuple(tensor.shape) != self.shapes[name]:
                raise ValueError(f"expected {name} of shape {self.shapes[name]}, got {tuple(tensor.shape)}")
        for name, dtype in self.made.items():
            if not isinstance(dtype, torch.dtype):
                raise TypeError(f"expected a dtype for {name}, which is made, got {dtype!r:.80}")

    def load(
        self, name: str, rows: Span | None = None, cols: Span | None = None, *, times: int | None = None
    ) -> OnChip:
        """Read a piece of a matrix: its rows (the last dimension but one) and columns (the last), all if not given.

        times   how many programs of a head read it for themselves (once for every query head of a group if not given)

        KeyError for a matrix that is not here; ValueError for a piece outside it.
        """
        matrix, index = self._matrix(name), self._index(name, rows, cols)
        tensor = matrix[tuple(slice(*span) for span in index)].clone().to(self.sums(matrix.dtype))
        group = self._group(name)
        size = self._itemsize(name, index)
        tile = Tile(name, index, size, group if times is None else times)
        self._reads.append(tile)
        tensor = tensor if group == 1 else tensor.repeat_interleave(group, dim=1)
        loaded = self._take(name, tensor, index, itemsize=size, times=tile.times)
        self._loaded.append(loaded._place)
        return loaded

    def store(
        self, name: str, rows: Span | None, tile: OnChip, cols: Span | None = None, *, unfinished=False, times: int = 1
    ) -> None:
        """Write a tile to a matrix, in the matrix's dtype; one that is `unfinished` stays wide until its last visit.

        times   how many programs write it, each for itself, as they all add to it

        TypeError for anything but a tile; ValueError if it has not the shape of the piece.
        """
        if not isinstance(tile, OnChip):
            raise TypeError(f"expected a tile to store in {name}, got {type(tile).__name__}")
        if name in self.given or tile._hbm is not self:
            what = f"{name}, which is given" if name in self.given else "a tile of another memory"
            raise ValueError(f"expected one of {list(self.made)} and a tile to store there, got {what}")
        index, tensor = self._index(name, rows, cols), tile._held()
        shape = tuple(stop - start for start, stop in index)
        if tuple(tensor.shape) != shape:
            raise ValueError(f"expected a tile of shape {shape} for {name}, got {tuple(tensor.shape)}")
        if not unfinished:
            tensor = tensor.to(self._dtype(name))
        self._matrix(name, tensor)[tuple(slice(*span) for span in index)] = tensor.to(accumulator(tensor.dtype))
        self._stored_as[name][tuple(slice(*span) for span in index)] = tensor.element_size()
        self._writes.append((Tile(name, index, tensor.element_size(), times), tensor))

    def fill(self, name: str, rows: Span | None = None, cols: Span | None = None, value: float = 0.0) -> OnChip:
        """A new tile on chip, shaped as a piece of a matrix (or as so many of its columns), full of one number."""
        lead = self._index(name, rows, None)[:-1]
        index = (*lead, (0, self.shapes[name][-1]) if cols is None else cols)
        like = next(iter(self.given.values()))
        shape = [stop - start for start, stop in index]
        return self._take(UNNAMED, torch.full(shape, value, dtype=self.sums(like.dtype), device=like.device), index)

    def _take(
        self, name: str, tensor: Tensor, index: tuple[Span, ...], *, itemsize: int | None = None, times: int = 1
    ) -> OnChip:
        """A tile in room of its own."""
        place = Place(name, tuple(index), tensor.element_size() if itemsize is None else itemsize, times)
        self._places.append(weakref.ref(place))
        return OnChip(self, tensor, place)

    def drop(self, *tiles: OnChip) -> None:
        """Give up the room of tiles: whoever uses one of them afterwards gets a ValueError."""
        for tile in tiles:
            tile._place.dropped = True

    def output(self, name: str) -> Tensor:
        """What the matrix holds now, in its dtype."""
        return self._matrix(name).to(self._dtype(name), copy=True)

    def step(self, phase: str, *, program: tuple[int, ...] = (), **values: Any) -> Step:
        """Close an iteration: all that was noted since the last one. The names of tiles are those of `values`."""
        written = {tile.name: tensor for tile, tensor in self._writes}
        before = {name: self.output(name) for name in self._stored} if self.whole else {}
        step = Step(
            sentence=self.told,
            phase=phase,
            shapes=self.shapes,
            reads=tuple(self._reads),
            writes=tuple(tile for tile, _ in self._writes),
            on_chip=() if self.whole else tuple(self._on_chip(values)),
            values={**self.given, **before, **{name: _seen(value) for name, value in values.items()}, **written},
            matmuls=tuple(self.products),
            operations=+self.operations,
            program=program,
        )
        self._reads, self._writes, self._loaded, self.products, self.operations = [], [], [], [], Counter()
        self.fresh.clear()
        return step

    def done(self, output: Any, **values: Any) -> Step:
        """The last step: the program has ended, and this is its result. RuntimeError for work after the step before."""
        if self._reads or self._writes or self.products or self.operations:
            work = [f"{len(done)} {what}" for done, what in ((self._reads, "loads"), (self.products, "products"))]
            work += [f"{len(self._writes)} stores", f"{self.operations.total()} operations"]
            raise RuntimeError(f"expected a step for all work before the last one, got {', '.join(work)} after it")
        values = {**self.given, **{name: self.output(name) for name in self.made}, **values}
        return Step(sentence=self.told, phase="done", shapes=self.shapes, values=values, output=output)

    def _on_chip(self, values: Mapping[str, Any]) -> Iterable[Tile]:
        """The tiles that are held, those that were loaded first, the others named as the first value in their place."""
        alive = [place for ref in self._places if (place := ref()) and not place.dropped]
        self._places = [weakref.ref(place) for place in alive]
        named: set[int] = set()
        for name, value in values.items():
            if isinstance(value, OnChip) and not value._place.loaded and id(value._place) not in named:
                value._place.name = name
                named.add(id(value._place))
        return [place.tile(place.name) for place in sorted(alive, key=lambda place: not place.loaded)]

    def _matrix(self, name: str, like: Tensor | None = None) -> Tensor:
        """The matrix by this name; one that is made is new if nothing was stored there, on the device of `like`, vmapped as it is."""
        if name in self.given:
            return self.given[name]
        if name not in self.made:
            raise KeyError(f"expected a matrix, one of {[*self.given, *self.made]}, got {name!r}")
        if name not in self._stored:
            like = next(iter(self.given.values())) if like is None else like
            matrix = like.new_full(self.shapes[name], float("nan"), dtype=accumulator(self.made[name]))
            self._stored[name] = self._in_the_graph(matrix)
            size = torch.full(self.shapes[name], self.made[name].itemsize, dtype=torch.int8, device="cpu")  # read by us
            self._stored_as[name] = size
        return self._stored[name]

    def _in_the_graph(self, matrix: Tensor) -> Tensor:
        """The same numbers as a result of all given matrices, so that gradients are 0 where none of them is used."""
        if not torch.is_grad_enabled():
            return matrix
        for given in self.given.values():
            if given.requires_grad:
                matrix = matrix + given[..., :0].sum().to(matrix.dtype)  # a sum of nothing is 0, whatever is given
        return matrix

    def _dtype(self, name: str) -> torch.dtype:
        return self.given[name].dtype if name in self.given else self.made[name]

    def _itemsize(self, name: str, index: tuple[Span, ...]) -> int:
        """Bytes of an element of a piece, as it was stored: what is unfinished is stored wide."""
        if name not in self._stored_as:
            return self._dtype(name).itemsize
        sizes = self._stored_as[name][tuple(slice(*span) for span in index)]
        if sizes.numel() and sizes.min() != sizes.max():
            raise ValueError(f"expected a piece of {name} that is finished or unfinished, got one of both, {index}")
        return int(sizes.max()) if sizes.numel() else self._dtype(name).itemsize

    def _group(self, name: str) -> int:
        """How many query heads share a head of this matrix."""
        shape, q = self.shapes[name], self.shapes.get("Q", ())
        return q[1] // shape[1] if len(q) == len(shape) == 4 and name in self.given and shape[1] else 1

    def _index(self, name: str, rows: Span | None, cols: Span | None) -> tuple[Span, ...]:
        if name not in self.shapes:
            raise KeyError(f"expected a matrix, one of {[*self.shapes]}, got {name!r}")
        shape = self.shapes[name]
        index = [(0, size) for size in shape]
        for dim, span in ((-2, rows), (-1, cols)):
            if span is not None:
                if not isinstance(span, tuple) or len(span) != 2:
                    raise TypeError(f"expected a span (start, stop) of {name}, got {span!r:.80}")
                index[dim] = span
        if any(not 0 <= start <= stop <= size for (start, stop), size in zip(index, shape, strict=True)):
            raise ValueError(f"expected a piece inside {name} of shape {shape}, got {index}")
        return tuple(index)


def _seen(value: Any) -> Any:
    """What the reader of a step gets: a tensor for a tile."""
    return value._held() if isinstance(value, OnChip) else value
