"""The two memories of a GPU: `HBM`, with an algorithm's matrices, and tiles on chip.

    hbm = HBM({"Q": q, "K": k, "V": v}, {"O": q.dtype}, shapes)
    Q_i = hbm.load("Q", rows)                   recorded as a read; Q_i is a tile on chip now
    S = Q_i @ hbm.load("K", cols).mT            recorded as a product; S knows its rows and columns
    hbm.store("O", rows, acc / l_i)             recorded as a write
    yield hbm.step("blocks", S=S, acc=acc)      what was recorded since the last step, as a `Step`

A tile is combined with tiles, booleans and numbers only, and only a tile can be stored. So every input of a result was
loaded, and every product is counted where it is made.

On chip at the end of a step are
- the tiles that were loaded, until a later step loads the next tile of the same matrix, which takes their place;
- the computed tiles that the step names, as S and acc above;
- the tiles that `HBM.keep` was called with.
`HBM.drop` ends the life of any tile, and a step of another program starts with an empty chip. It is a ValueError to use a
tile that is no longer on chip.

The result of an operation entry by entry takes the place of its tile, as in registers: S and P = exp(S - m) are one
tile. A tile of a 16-bit matrix takes 16 bits an element, and is computed with in float32, as tensor cores do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from flashlearn.core.numerics import Span, accumulator
from flashlearn.core.steps import Step, Tile

# Operations of a tile other than `@`: the name in PyTorch -> what it counts as, for each element; "": not counted.
ELEMENTWISE = {
    "add": "add", "sub": "add", "rsub": "add", "mul": "multiply", "truediv": "divide", "div": "divide",
    "maximum": "max", "minimum": "max", "exp": "exp", "log": "log", "tanh": "tanh",
    "neg": "", "abs": "", "where": "", "masked_fill": "", "to": "", "detach": "",
}  # fmt: skip
BY_ROW = {"sum": "add", "amax": "max"}  # over the last dimension
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", "isneginf", "isnan")  # they give booleans, no tiles
KNOWN = (*ELEMENTWISE, *BY_ROW, *COMPARISONS)
COMPUTED = "tile"  # the name of a computed tile until a step names it
Index = tuple[Span, ...]


class HBM:
    """The large memory of a GPU with the matrices of one algorithm, and a record of all accesses.

    given    the matrices that the algorithm starts from, by name
    made     those that it writes, by name: the dtype of each. What was never written is NaN.
    shapes   the shape of every one of them, and of those that only pictures show, such as S
    caption  a step in one sentence: a function of the step (see `flashlearn.algorithms.captions`)
    narrow   computed in the dtype of the matrices, not with wide sums
    whole    the operations are those of a library, on whole matrices. How it cuts them is not known, so nothing is
             said to be on chip

    Heads: in (B, H, N, D) a matrix with fewer heads than Q is read by every query head of its group for itself.
    """

    def __init__(
        self,
        given: Mapping[str, Tensor],
        made: Mapping[str, torch.dtype],
        shapes: Mapping[str, tuple[int, ...]],
        caption: Callable[[Step], str] | str = "",
        narrow: bool = False,
        whole: bool = False,
    ):
        self.given, self.made, self.shapes = dict(given), dict(made), {n: tuple(s) for n, s in shapes.items()}
        self._check_matrices()
        self.caption, self.narrow, self.whole = caption, narrow, whole
        self.products: list[tuple[int, ...]] = []
        self.operations: Counter[str] = Counter()
        self.fresh: set[Buffer] = set()  # products that nothing was added to yet
        self._reads: list[Tile] = []
        self._writes: list[tuple[Tile, Tensor]] = []
        self._buffers: list[Buffer] = []  # in the order in which they were taken
        self._earlier = 0  # how many of them the last step left on chip
        self._program: tuple[int, ...] = ()  # that of the last step
        self._loaded: dict[str, OnChip] = {}  # the last tile of every matrix
        self._stored: dict[str, Tensor] = {}
        self._stored_as: dict[str, Tensor] = {}  # bytes of every element

    def _check_matrices(self) -> None:
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

    # Tiles: loaded, stored, kept, dropped

    def load(
        self, name: str, rows: Span | None = None, cols: Span | None = None, *, times: int | None = None
    ) -> OnChip:
        """Read a piece of a matrix: its rows (the last dimension but one) and columns (the last), all if not given.

        times   how many programs of a head read it for themselves (once for every query head of a group if not given)

        KeyError for a matrix that is not here; ValueError for a piece outside it.
        """
        matrix, index, group = self._matrix(name), self._index(name, rows, cols), self._group(name)
        tensor = matrix[_slices(index)].clone().to(self._tile_dtype(matrix.dtype))
        tensor = tensor if group == 1 else tensor.repeat_interleave(group, dim=1)
        tile = Tile(name, index, self._itemsize(name, index), group if times is None else times)
        self._reads.append(tile)
        self._loaded[name] = self.take(name, tensor, index, itemsize=tile.itemsize, times=tile.times)
        return self._loaded[name]

    def store(
        self, name: str, rows: Span | None, tile: Tensor, cols: Span | None = None, *,
        unfinished: bool = False, times: int = 1,
    ) -> None:  # fmt: skip
        """Write a tile to a matrix, in the matrix's dtype; one that is `unfinished` stays wide until its last visit.

        times   how many programs write it, each for itself, as they all add to it

        TypeError for anything but a tile; ValueError if it has not the shape of the piece.
        """
        if not isinstance(tile, OnChip):
            raise TypeError(f"expected a tile to store in {name}, got {type(tile).__name__}")
        if name in self.given or tile.hbm is not self:
            what = f"{name}, which is given" if name in self.given else "a tile of another memory"
            raise ValueError(f"expected one of {list(self.made)} and a tile to store there, got {what}")
        index, tensor = self._index(name, rows, cols), tile.tensor
        shape = tuple(stop - start for start, stop in index)
        if tuple(tensor.shape) != shape:
            raise ValueError(f"expected a tile of shape {shape} for {name}, got {tuple(tensor.shape)}")
        if not unfinished:
            tensor = tensor.to(self._dtype(name))
        self._matrix(name, tensor)[_slices(index)] = tensor.to(accumulator(tensor.dtype))
        self._stored_as[name][_slices(index)] = tensor.element_size()
        self._writes.append((Tile(name, index, tensor.element_size(), times), tensor))

    def fill(self, name: str, rows: Span | None = None, cols: Span | None = None, value: float = 0.0) -> OnChip:
        """Make a tile on chip, shaped as a piece of a matrix (or as some of its columns), full of one number."""
        lead = self._index(name, rows, None)[:-1]
        index = (*lead, (0, self.shapes[name][-1]) if cols is None else cols)
        like = next(iter(self.given.values()))
        shape, dtype = [stop - start for start, stop in index], self._tile_dtype(like.dtype)
        return self.take(COMPUTED, torch.full(shape, value, dtype=dtype, device=like.device), index)

    def take(self, name: str, tensor: Tensor, index: Index, *, itemsize: int | None = None, times: int = 1) -> OnChip:
        """A tile in a buffer of its own; a loaded one takes the place of those that earlier steps loaded by this name."""
        buffer = Buffer(name, tuple(index), tensor.element_size() if itemsize is None else itemsize, times)
        if buffer.loaded:
            former = (old for old in self._buffers[: self._earlier] if old.loaded and old.name == name and not old.kept)
            _end(former, "whose place a later one has taken")
        self._buffers.append(buffer)
        return OnChip(self, tensor, buffer)

    def loaded(self, name: str) -> OnChip:
        """The tile of a matrix that was loaded last."""
        return self._loaded[name]

    def keep(self, *tiles: OnChip) -> None:
        """Let tiles stay on chip until they are dropped, or until their program ends."""
        for tile in tiles:
            tile.buffer.kept = True

    def drop(self, *tiles: OnChip | str) -> None:
        """End the life of tiles, or of all tiles of a matrix by its name, and of what was computed in their places."""
        ended = [tile.buffer for tile in tiles if isinstance(tile, OnChip)]
        ended += [
            buffer for buffer in self._buffers if buffer.name in [name for name in tiles if isinstance(name, str)]
        ]
        _end(
            ended,
            "which was dropped; a tile that is computed from it entry by entry has the same place, and ends with it",
        )

    def clear(self) -> None:
        """End the life of all tiles: another kernel starts."""
        _end(self._buffers, "which another kernel had")

    def output(self, name: str) -> Tensor:
        """What the matrix holds now, in its dtype."""
        return self._matrix(name).to(self._dtype(name), copy=True)

    # Steps

    def step(self, phase: str, *, program: tuple[int, ...] = (), **values: Any) -> Step:
        """Close an iteration: all that was recorded since the last one. The names of tiles are those of `values`."""
        written = {tile.name: tensor for tile, tensor in self._writes}
        before = {name: self.output(name) for name in self._stored} if self.whole else {}
        on_chip = self._stay(program, values)
        step = Step(
            sentence=self.caption,
            phase=phase,
            shapes=self.shapes,
            reads=tuple(self._reads),
            writes=tuple(tile for tile, _ in self._writes),
            on_chip=() if self.whole else on_chip,
            values={**self.given, **before, **_seen(values), **written},
            matmuls=tuple(self.products),
            operations=+self.operations,
            program=program,
        )
        self._reads, self._writes, self.products, self.operations = [], [], [], Counter()
        self.fresh.clear()
        return step

    def done(self, output: Any, **values: Any) -> Step:
        """The last step: the program has ended, and this is its result. RuntimeError for work after the step before."""
        if self._reads or self._writes or self.products or self.operations:
            work = [f"{len(done)} {what}" for done, what in ((self._reads, "loads"), (self.products, "products"))]
            work += [f"{len(self._writes)} stores", f"{self.operations.total()} operations"]
            raise RuntimeError(f"expected a step for all work before the last one, got {', '.join(work)} after it")
        values = {**self.given, **{name: self.output(name) for name in self.made}, **_seen(values)}
        return Step(sentence=self.caption, phase="done", shapes=self.shapes, values=values, output=_seen(output))

    def _stay(self, program: tuple[int, ...], values: Mapping[str, Any]) -> tuple[Tile, ...]:
        """The tiles that are on chip, those that were loaded first. One buffer has the first name that a value gives it."""
        if program != self._program:
            _end(self._buffers[: self._earlier], "which another program had")
        named: set[Buffer] = set()
        for name, value in values.items():
            if isinstance(value, OnChip) and not value.buffer.loaded and value.buffer not in named:
                value.buffer.name = name
                named.add(value.buffer)
        _end((b for b in self._buffers if not (b.loaded or b.kept or b in named)), "which the last step did not name")
        self._buffers = [buffer for buffer in self._buffers if not buffer.gone]
        self._earlier, self._program = len(self._buffers), program
        return tuple(buffer.tile() for buffer in sorted(self._buffers, key=lambda buffer: not buffer.loaded))

    # Matrices

    def _matrix(self, name: str, like: Tensor | None = None) -> Tensor:
        """The matrix by this name; one that is made is new if nothing was stored there: on the device of `like`, vmapped as it is."""
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

    def _tile_dtype(self, dtype: torch.dtype) -> torch.dtype:
        return dtype if self.narrow else accumulator(dtype)

    def _itemsize(self, name: str, index: Index) -> int:
        """Bytes of an element of a piece, as it was stored: what is unfinished is stored wide."""
        if name not in self._stored_as:
            return self._dtype(name).itemsize
        sizes = self._stored_as[name][_slices(index)]
        if sizes.numel() and sizes.min() != sizes.max():
            raise ValueError(f"expected a piece of {name} that is finished or unfinished, got one of both, {index}")
        return int(sizes.max()) if sizes.numel() else self._dtype(name).itemsize

    def _group(self, name: str) -> int:
        """The number of query heads that share a head of this matrix."""
        shape, q = self.shapes[name], self.shapes.get("Q", ())
        return q[1] // shape[1] if len(q) == len(shape) == 4 and name in self.given and shape[1] else 1

    def _index(self, name: str, rows: Span | None, cols: Span | None) -> Index:
        if name not in self.shapes:
            raise KeyError(f"expected a matrix, one of {[*self.shapes]}, got {name!r}")
        shape = self.shapes[name]
        index = [(0, size) for size in shape]
        for dim, span in ((-2, rows), (-1, cols)):
            if span is not None:
                if not isinstance(span, tuple) or len(span) != 2:
                    raise TypeError(f"expected a range (start, stop) of {name}, got {span!r:.80}")
                index[dim] = span
        if any(not 0 <= start <= stop <= size for (start, stop), size in zip(index, shape, strict=True)):
            raise ValueError(f"expected a piece inside {name} of shape {shape}, got {index}")
        return tuple(index)


class Buffer:
    """Memory on chip for one tile: a piece of a matrix, or a result computed from such pieces."""

    def __init__(self, name: str, index: Index, itemsize: int, times: int):
        self.name, self.index, self.itemsize, self.times = name, index, itemsize, times
        self.loaded = name != COMPUTED
        self.kept = False
        self.gone = ""  # why its tile is no longer on chip
        self._tile: Tile | None = None

    def tile(self) -> Tile:
        """The piece by its name; made once, as every step uses it."""
        if self._tile is None or self._tile.name != self.name:
            self._tile = Tile(self.name, self.index, self.itemsize, self.times)
        return self._tile


if TYPE_CHECKING:
    _Tensor = Tensor  # to a type checker a tile is a tensor; an unsupported operation raises when it is used
else:
    _Tensor = object


class OnChip(_Tensor):
    """A tile on chip: a tensor with counted operations only.

    `@`, arithmetic with tiles, numbers and booleans, `torch.exp` and the others of `ELEMENTWISE`, `sum` and `amax`
    over the last dimension; `mT`; blocks of its rows (`rows`, `put`). Anything else is a TypeError.
    """

    def __init__(self, hbm: HBM, tensor: Tensor, buffer: Buffer, index: Index | None = None):
        self.hbm, self._tensor, self.buffer = hbm, tensor, buffer
        self.at = buffer.index if index is None else index  # of this view of the buffer

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
    def tensor(self) -> Tensor:
        """The numbers. ValueError for a tile that is no longer on chip."""
        if self.buffer.gone:
            raise ValueError(f"expected a tile on chip, got {self.buffer.tile()}, {self.buffer.gone}")
        return self._tensor

    def held(self) -> Tensor:
        """A copy of the tensor, to look at; what is computed from it is no tile."""
        return self.tensor.clone()

    @property
    def mT(self) -> OnChip:  # type: ignore[override]  # a tensor's may be set
        """Transposed, in the same buffer."""
        return OnChip(self.hbm, self.tensor.mT, self.buffer, (*self.at[:-2], self.at[-1], self.at[-2]))

    def rows(self, span: Span) -> OnChip:
        """The rows (start, stop) of the whole matrix, of those that this tile has; in the same buffer."""
        index = (*self.at[:-2], span, self.at[-1])
        return OnChip(self.hbm, self.tensor[..., self._slice(span), :], self.buffer, index)

    def put(self, span: Span, new: OnChip) -> OnChip:  # type: ignore[override]  # not the `put` of tensors
        """This tile with other values in the rows (start, stop) of the whole matrix; in the same buffer."""
        old, here = self.tensor, self._slice(span)
        if (expected := (*old.shape[:-2], here.stop - here.start, old.shape[-1])) != new.shape:
            raise ValueError(f"expected a tile of shape {expected} for the rows {span}, got {tuple(new.shape)}")
        parts = [old[..., : here.start, :], new.tensor, old[..., here.stop :, :]]
        return OnChip(self.hbm, torch.cat(parts, -2), self.buffer, self.at)

    def flat(self) -> OnChip:
        """(..., n, D) to (n of all, D): one matrix of all rows, in the same buffer."""
        t = self.tensor.flatten(0, -2)
        return OnChip(self.hbm, t, self.buffer, ((0, t.shape[0]), self.at[-1]))

    def copy(self, name: str) -> OnChip:
        """The same numbers in a buffer of their own, to be used after this tile was computed with."""
        return self.hbm.take(name, self.tensor, self.at)

    def sum_groups(self, heads: int) -> OnChip:
        """(B, H, n, D) to (B, heads, n, D): the sum over the heads of every group."""
        t, (batch, _, *rest) = self.tensor, self.at
        if t.shape[1] == heads:
            return self
        groups = t.reshape(t.shape[0], heads, t.shape[1] // heads, *t.shape[2:])
        return self.hbm.take(COMPUTED, groups.sum(2), (batch, (0, heads), *rest))

    def sum_rows(self) -> OnChip:
        """(B, H, n, 1) to (1, H, 1, 1): the sum over all rows of all sequences, a number for every head."""
        t, (_, heads, *_) = self.tensor, self.at
        return self.hbm.take(COMPUTED, t.sum((0, 2, 3), keepdim=True), ((0, 1), heads, (0, 1), (0, 1)))

    def distance(self, shift: int) -> OnChip:
        """|i + shift - j| for every entry, at row i and column j of the whole matrix; a tile in a buffer of its own."""
        t, (rows, cols) = self.tensor, self.at[-2:]
        i, j = torch.arange(*rows, device=t.device)[:, None], torch.arange(*cols, device=t.device)
        return self.hbm.take(COMPUTED, (i + shift - j).abs().to(t.dtype).expand(t.shape), self.at)

    def __deepcopy__(self, _: Any) -> OnChip:
        raise TypeError("expected a tile to stay where it is, got a copy of it: `copy` takes a buffer for one")

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(func.__name__, args, kwargs or {})

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in KNOWN:
            raise AttributeError(f"expected one of @, {', '.join(KNOWN)} of a tile, got {name}")
        return lambda *args, **kwargs: compute(name, (self, *args), kwargs)

    def _slice(self, span: Span) -> slice:
        first, end = self.at[-2]
        if not first <= span[0] <= span[1] <= end:
            raise ValueError(f"expected rows of this tile, inside {(first, end)}, got {span}")
        return slice(span[0] - first, span[1] - first)

    __hash__ = object.__hash__


def _operator(name: str, swapped: bool = False) -> Callable[[Any, Any], Any]:
    return lambda self, other: compute(name, (other, self) if swapped else (self, other), {})


for _name in ("matmul", "add", "sub", "mul", "truediv", "eq", "ne", "lt", "le", "gt", "ge"):
    setattr(OnChip, f"__{_name}__", _operator(_name))
    if _name in ("matmul", "add", "sub", "mul", "truediv"):
        setattr(OnChip, f"__r{_name}__", _operator(_name, swapped=True))


def compute(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> OnChip | Tensor:
    """The result of PyTorch's `name` on tiles: its work is counted, and its result gets a buffer.

    TypeError for a tensor that was not loaded, and for an operation that tiles do not have; ValueError for tiles of two
    memories.
    """
    name = name.removeprefix("__").removesuffix("__")
    tiles = [a for a in args if isinstance(a, OnChip)]
    for other in (*args, *kwargs.values()):
        if isinstance(other, Tensor) and other.dtype != torch.bool:
            raise TypeError(f"expected a tile, which `HBM.load` gives, in {name}, got a tensor {tuple(other.shape)}")
    if len({id(tile.hbm) for tile in tiles}) > 1:
        raise ValueError(f"expected tiles of one memory in {name}, got some of two")
    if name == "matmul" and len(tiles) == 2:
        return _product(*tiles)
    if name not in KNOWN:
        raise TypeError(f"expected one of @, {', '.join(KNOWN)} with tiles, got {name}")
    if name in BY_ROW and (dims := kwargs.get("dim", args[1] if len(args) > 1 else None)) not in (-1, (-1,), [-1]):
        raise TypeError(f"expected {name} over the last dimension, -1, of a tile, got {dims}")
    plain = [a.tensor if isinstance(a, OnChip) else a for a in args]
    function = getattr(torch, name, None) or getattr(Tensor, name, None) or torch.true_divide
    result: Tensor = function(*plain, **kwargs)
    if name in COMPARISONS:
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
    kind, hbm = ELEMENTWISE[name], same.hbm
    part_of_product = name == "add" and any(tile.buffer in hbm.fresh for tile in tiles)
    if kind and not part_of_product:
        hbm.operations[kind] += result.shape[-1]
    hbm.fresh.difference_update(tile.buffer for tile in tiles)
    return OnChip(hbm, result, same.buffer, same.at)


def _by_row(name: str, result: Tensor, tile: OnChip) -> OnChip:
    """One number a row: w - 1 additions or comparisons."""
    tile.hbm.operations[BY_ROW[name]] += max(0, tile.shape[-1] - 1)
    return tile.hbm.take(COMPUTED, result, (*tile.at[:-1], (0, 1))[: result.ndim])


def _product(left: OnChip, right: OnChip) -> OnChip:
    """left @ right, recorded as (batch, m, n, p): it has the rows of the left one and the columns of the right."""
    a, b, hbm = left.tensor, right.tensor, left.hbm
    kind = a.device.type  # autocast knows no "meta"
    with torch.autocast(kind, enabled=False) if kind != "meta" and torch.is_autocast_enabled(kind) else nullcontext():
        result = a @ b  # in the dtype of the tiles, whatever the caller has around it
    hbm.products.append((result.shape[:-2].numel(), *a.shape[-2:], b.shape[-1]))
    batch = tuple((0, size) for size in result.shape[:-2])
    made = hbm.take(COMPUTED, result, (*batch, left.at[-2], right.at[-1]))
    hbm.fresh.add(made.buffer)
    return made


def _end(buffers: Iterable[Buffer], why: str) -> None:
    """The tiles in these buffers are no longer on chip."""
    for buffer in buffers:
        buffer.gone = buffer.gone or why


def _seen(value: Any) -> Any:
    """The values of a step: a tensor for every tile, on chip or not."""
    if isinstance(value, dict):
        return {name: _seen(each) for name, each in value.items()}
    if type(value) is tuple:
        return tuple(map(_seen, value))
    return value._tensor if isinstance(value, OnChip) else value


def _slices(index: Index) -> tuple[slice, ...]:
    return tuple(slice(*span) for span in index)
