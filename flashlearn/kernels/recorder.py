"""Record the reads and writes of a real kernel: the same `Step`s as the algorithms yield, from Triton itself.

    steps = record(kernel_steps(attention_forward, q, k, v, causal=True))

Triton's interpreter executes every load and store with NumPy, so that their addresses can be watched. The recorder
gives each tensor of a launch a private copy with the same strides. An address less the start of that copy is an
element, and the elements of one load are a tile. Masked elements of a load without `other` are NaN: on a GPU they are
undefined. Three silent faults of a GPU become errors: an address outside every tensor, an element written by two
programs, and an element that one program writes and another reads. (On a GPU the order of programs is not defined, so
the last two are races.)

One step is one iteration of a program's inner loop: a new one begins when a tensor is read again.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from flashlearn.core.mask import Mask
from flashlearn.core.steps import Step, Tile, hbm_bytes
from flashlearn.core.target import INTERPRETED

NAMES = ("q", "k", "v", "o", "do", "dq", "dk", "dv", "a", "b", "c")  # of a kernel's tensors
TITLES = {name: name[:-1] + name[-1].upper() for name in NAMES}  # as pictures name them: dq is dQ
REGISTERS = ("m_i", "l_i", "alpha")  # variables of a kernel that pictures show; one number for each row
COLUMNS = ("lse", "delta")  # one number per query: shown as a column, (B, H, N, 1)
UNDEFINED = float("nan")  # the value of masked elements of a load without `other`; on a GPU it is undefined
GUARD = 2**16  # elements of room on both sides of a copy: an access that misses a tensor by less hits no other


class StrayAccess(IndexError):
    """A kernel touched an address that is no element of a tensor it was given."""


class Race(RuntimeError):
    """The result of a kernel depends on the order in which its programs run."""


class Unrecordable(NotImplementedError):
    """A kernel did something that no step can show: an access that is no tile, or an atomic operation."""


def kernel_steps(launcher: Callable, *args: Any, **kwargs: Any) -> Iterator[Step]:
    """Run `launcher(*args, **kwargs)` in the interpreter; yield a step per inner iteration of every kernel.

    phase      name of the kernel, e.g. "attention_forward"
    program    position in the launch grid
    reads      tiles in HBM coordinates, with the names of the pictures: Q, K, V, O, dO, lse, ...; only what
               was loaded under the mask counts, and of a dimension of stride 0 the one entry that exists
    values     inputs of the kernel by name, each written tile, and for attention i, j, rows, cols, masked, mask
    matmuls    every tl.dot, with the padded shapes that the hardware multiplies
    output     what the launcher returned, in the last step

    values["registers"] has the kernel's variables m_i, l_i and alpha, if it has them, at the end of the step. They are
    read from the frame of the function that the interpreter runs.

    on_chip    the tiles that were read, and what the reads make: S for attention, acc for a product of A and B

    The kernels run to the end before the first step comes. StrayAccess and Race say which tensor was
    touched where, Unrecordable what cannot be shown; RuntimeError if kernels are compiled for a GPU in this process.
    """
    if not INTERPRETED:
        raise RuntimeError("expected Triton's interpreter, got compiled kernels: set TRITON_INTERPRET=1")
    steps: list[Step] = []
    with _watched_launches(steps):
        output = launcher(*args, **kwargs)
    yield from steps
    programs = len({(step.phase, step.program) for step in steps})
    traffic = hbm_bytes(steps)
    sentence = f"Done: {programs} programs read {traffic.read} bytes and wrote {traffic.written}."
    last = steps[-1] if steps else Step(sentence="")
    yield Step(sentence=sentence, phase="done", shapes=last.shapes, values=last.values, output=output)


@contextmanager
def _watched_launches(steps: list[Step]):
    """Every kernel launched inside is recorded; its steps are appended."""
    from triton.runtime.errors import InterpreterError
    from triton.runtime.interpreter import InterpretedFunction

    run = InterpretedFunction.run

    def watched_run(kernel, *args, grid, **kwargs):
        grid = launch_grid(kernel, grid, args, kwargs)
        recording = _Recording(kernel.fn.__name__.removesuffix("_kernel"), len(grid))
        copies = [recording.watch(name, arg) for name, arg in zip(kernel.arg_names, args, strict=False)]
        kwargs = {name: recording.watch(name, arg) for name, arg in kwargs.items()}
        with recording.hooks():
            try:
                run(kernel, *copies, grid=grid, **kwargs)
            except InterpreterError as error:
                raise _cause(error) from None
        recording.finish()
        steps.extend(recording.steps)

    with mock.patch.object(InterpretedFunction, "run", watched_run):
        yield


def launch_grid(kernel: Any, grid: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[int, ...]:
    """The grid of a launch, which may be a function of its arguments.

    kernel[lambda meta: (triton.cdiv(meta["N"], meta["BLOCK"]),)](...)
    """
    if callable(grid):
        own = {name: value for name, value in kwargs.items() if name in kernel.arg_names}
        grid = grid(inspect.getcallargs(kernel.fn, *args, **own))
    return tuple(map(int, grid))


def _cause(error: BaseException) -> BaseException:
    """Our error inside the interpreter's wrapping, or the wrapping if there is none."""
    inner: BaseException | None = error
    while inner is not None and not isinstance(inner, (StrayAccess, Race, Unrecordable)):
        inner = inner.__cause__
    return inner or error


class _Watched:
    """A private copy of one tensor of a launch, and who wrote what in it."""

    def __init__(self, name: str, original: Tensor):
        self.name, self.original = name, original
        size, stride = original.shape, original.stride()
        reach = sum((n - 1) * s for n, s in zip(size, stride, strict=True))
        self.elements = reach + 1 if original.numel() else 0
        storage = torch.empty(self.elements + 2 * GUARD, dtype=original.dtype, device="cpu")[
            GUARD : GUARD + self.elements
        ]
        self.copy = storage.as_strided(size, stride, GUARD)
        storage.copy_(original.detach().as_strided((self.elements,), (1,)))
        self.start, self.itemsize = storage.data_ptr(), original.element_size()
        self.order = sorted(range(original.ndim), key=lambda d: -stride[d])  # outermost dimension first
        self._check_layout(size, stride)
        self.writer = np.full(self.elements, -1)  # number of the program that wrote each element
        self.reader = np.full(self.elements, -1)
        self.column = name in COLUMNS

    def _check_layout(self, size, stride):
        inner = 0  # the largest offset that the dimensions further in can reach
        for d in reversed(self.order):
            if size[d] > 1 and stride[d]:
                if stride[d] <= inner:
                    raise ValueError(f"expected {self.name} without overlaps, got strides {stride}")
                inner += (size[d] - 1) * stride[d]

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.copy.shape, 1) if self.column else tuple(self.copy.shape)

    def holds(self, address: int) -> bool:
        return self.start <= address < self.start + self.elements * self.itemsize

    def places(self, offsets: np.ndarray) -> list[np.ndarray] | None:
        """The indices of these elements along every dimension; None if one is in a gap between strides."""
        rest, places = offsets, [np.zeros_like(offsets)] * self.copy.ndim
        for d in self.order:
            size, stride = self.copy.shape[d], self.copy.stride(d)
            if size == 1 or stride == 0:
                continue
            places[d], rest = np.divmod(rest, stride)
            if places[d].max() >= size:
                return None
        return None if rest.any() else places

    def tiles(self, offsets: np.ndarray) -> list[tuple[np.ndarray, Tile]] | None:
        """The tile of these elements, and the elements, if they are one tile; otherwise a tile for each matrix, as for
        keys in several pages. None if an element is in a gap; Unrecordable if they are no such tiles.
        """
        places = self.places(offsets)
        if places is None:
            return None
        whole = self._tile(places)
        if whole.nbytes == len(offsets) * self.itemsize:
            return [(offsets, whole)]
        found = []
        matrices = np.stack(places[:-2]) if len(places) > 2 else np.zeros((1, len(offsets)), dtype=int)
        for matrix in np.unique(matrices, axis=1).T:
            inside = (matrices == matrix[:, None]).all(0)
            tile = self._tile([at[inside] for at in places])
            if tile.nbytes != inside.sum() * self.itemsize:
                raise Unrecordable(f"expected a rectangle of {self.name}, got {len(offsets)} elements of {whole}")
            found.append((offsets[inside], tile))
        return found

    def _tile(self, places: list[np.ndarray]) -> Tile:
        """The smallest tile that contains these elements."""
        index = tuple((int(at.min()), int(at.max()) + 1) for at in places)
        return Tile(self.name, index + ((0, 1),) * self.column, self.itemsize)

    def content(self, tile: Tile) -> Tensor:
        """What the tile holds now, a copy."""
        part = self.copy[tuple(slice(*bounds) for bounds in tile.index[: self.copy.ndim])].clone()
        return part[..., None] if self.column else part


class _Recording:
    """One launch of one kernel: its tensors, its hooks in the interpreter, and its steps."""

    def __init__(self, kernel: str, axes: int):
        self.kernel, self.axes = kernel, axes
        self.tensors: list[_Watched] = []
        self.arguments: dict[str, Any] = {}
        self.steps: list[Step] = []
        self.program: tuple[int, ...] = ()
        self.programs: list[tuple[int, ...]] = []
        self._begin_program()

    def watch(self, name: str, arg: Any) -> Any:
        """Record an argument; a tensor is replaced by its private copy, also in a tuple, by the name of its field."""
        if isinstance(arg, tuple) and hasattr(arg, "_fields"):
            return type(arg)(*map(self.watch, arg._fields, arg))
        if not isinstance(arg, Tensor):
            self.arguments[name] = arg
            return arg
        name = name.removesuffix("_ptr")
        self.tensors.append(_Watched(TITLES.get(name, name), arg))
        return self.tensors[-1].copy

    @contextmanager
    def hooks(self):
        """Watch the loads, stores and products of the interpreter while the kernel runs."""
        from triton.runtime.interpreter import interpreter_builder as builder

        load, store, dot = builder.create_masked_load, builder.create_masked_store, builder.create_dot

        def watched_load(ptrs, mask, other, *rest):
            self._read(builder.grid_idx, ptrs.data, mask.data)
            loaded = load(ptrs, mask, other, *rest)
            if other is None and loaded.data.dtype.kind == "f":
                loaded.data[~np.broadcast_to(mask.data, loaded.data.shape)] = UNDEFINED
            return loaded

        def watched_store(ptrs, value, mask, *rest):
            written = self._write(builder.grid_idx, ptrs.data, mask.data)
            result = store(ptrs, value, mask, *rest)
            for tensor, tile in written:
                self.written[tensor.name] = tensor.content(tile)
            return result

        def watched_dot(a, b, *rest):
            self.matmuls.append((1, *a.data.shape, b.data.shape[-1]))
            return dot(a, b, *rest)

        def rejected(*_):
            raise Unrecordable(f"expected loads and stores, got an atomic operation in {self.kernel}")

        watched: dict[str, Any] = {
            "create_masked_load": watched_load,
            "create_masked_store": watched_store,
            "create_dot": watched_dot,
            "create_atomic_rmw": rejected,
            "create_atomic_cas": rejected,
        }
        with mock.patch.multiple(builder, **watched):
            yield

    def finish(self) -> None:
        """Make the last step, and copy the results back to the caller's tensors."""
        self._end_step()
        for tensor in self.tensors:
            if (tensor.writer >= 0).any():
                tensor.original.copy_(tensor.copy)

    def _read(self, grid_idx, addresses, mask) -> None:
        self._enter(grid_idx)
        self._look_at_registers()
        tiles = self._tiles("load", addresses, mask)
        if any(t.name == tile.name for t in self.reads for _, _, tile in tiles):
            self._end_step()
        for tensor, offsets, tile in tiles:
            strangers = (tensor.writer[offsets] >= 0) & (tensor.writer[offsets] != len(self.programs) - 1)
            self._reject_race(tensor, offsets[strangers], tensor.writer, "reads what program {} writes")
            tensor.reader[offsets] = len(self.programs) - 1
            self.reads.append(tile)
            self.on_chip[tile.name] = tile

    def _write(self, grid_idx, addresses, mask) -> list[tuple[_Watched, Tile]]:
        self._enter(grid_idx)
        self._look_at_registers()
        written = []
        for tensor, offsets, tile in self._tiles("store", addresses, mask):
            me = len(self.programs) - 1
            for others, did in ((tensor.writer, "writes"), (tensor.reader, "reads")):
                strangers = (others[offsets] >= 0) & (others[offsets] != me)
                self._reject_race(tensor, offsets[strangers], others, f"writes what program {{}} {did}")
            tensor.writer[offsets] = me
            self.writes.append(tile)
            written.append((tensor, tile))
        return written

    def _tiles(self, what, addresses, mask) -> list[tuple[_Watched, np.ndarray, Tile]]:
        """The tensor, the elements and the tile of one load or store; nothing if the mask is empty."""
        addresses, mask = np.broadcast_arrays(np.asarray(addresses), np.asarray(mask, dtype=bool))
        addresses = np.unique(addresses[mask]).astype(np.int64)
        if not addresses.size:
            return []
        ends = int(addresses[0]), int(addresses[-1])
        tensor = next((t for t in self.tensors if any(map(t.holds, ends))), None)
        if tensor is None:
            self._stray(what, int(addresses[0]), self.tensors)
        inside = (addresses >= tensor.start) & (addresses < tensor.start + tensor.elements * tensor.itemsize)
        if not inside.all():
            self._stray(what, int(addresses[~inside][0]), [tensor])
        offsets, torn = np.divmod(addresses - tensor.start, tensor.itemsize)
        tiles = None if torn.any() else tensor.tiles(offsets)
        if tiles is None:
            self._stray(what, int(addresses[0]), [tensor])
        return [(tensor, piece, tile) for piece, tile in tiles]

    def _stray(self, what, address, tensors) -> NoReturn:
        """Say how far the address is from the nearest of the tensors, in elements."""
        near = min(tensors, key=lambda t: max(t.start - address, address - t.start - t.elements * t.itemsize))
        element = (address - near.start) // near.itemsize
        raise StrayAccess(
            f"{self.kernel}, program {self.program}: {what} of what is no element of any tensor; "
            f"it would be element {element} of {near.name}, which has shape "
            f"{tuple(near.copy.shape)}, strides {near.copy.stride()} and elements 0 to {near.elements - 1}"
        )

    def _reject_race(self, tensor, offsets, others, what):
        if offsets.size:
            other = self.programs[others[offsets[0]]]
            raise Race(
                f"{self.kernel}, program {self.program} {what.format(other)}: element {offsets[0]} of "
                f"{tensor.name}, of shape {tuple(tensor.copy.shape)}"
            )

    def _enter(self, grid_idx) -> None:
        """Notice that another program runs now."""
        program = tuple(grid_idx[: self.axes])
        if program != self.program:
            self._end_step()
            self._begin_program()
            self.program = program
            self.programs.append(program)

    def _look_at_registers(self) -> None:
        """Copy what the kernel's variables hold now, from the frame in which the interpreter runs it."""
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_name.removesuffix("_kernel") != self.kernel:
            frame = frame.f_back  # type: ignore[assignment]
        for name in REGISTERS:
            data = getattr(getattr(frame and frame.f_locals.get(name), "handle", None), "data", None)
            if isinstance(data, np.ndarray) and data.ndim == 1:
                self.registers[name] = torch.from_numpy(data.copy())

    def _begin_program(self) -> None:
        self.on_chip: dict[str, Tile] = {}
        self.registers: dict[str, Tensor] = {}
        self._begin_step()

    def _begin_step(self) -> None:
        self.reads: list[Tile] = []
        self.writes: list[Tile] = []
        self.written: dict[str, Tensor] = {}
        self.matmuls: list[tuple[int, int, int, int]] = []

    def _end_step(self) -> None:
        """Make a step of what was read and written since the last."""
        if self.reads or self.writes:
            shapes = {tensor.name: tensor.shape for tensor in self.tensors}
            place, made = self._place(shapes)
            values = {t.name: t.original[..., None] if t.column else t.original for t in self.tensors}
            on_chip = (*self.on_chip.values(), *((made,) if made else ()))
            step = Step(
                sentence=self._sentence(place),
                phase=self.kernel,
                shapes=shapes,
                reads=tuple(self.reads),
                writes=tuple(self.writes),
                on_chip=on_chip,
                values={**values, **place, **self.written, "registers": dict(self.registers)},
                matmuls=tuple(self.matmuls),
                program=self.program,
            )
            self.steps.append(step)
        self._begin_step()

    def _place(self, shapes) -> tuple[dict[str, Any], Tile | None]:
        """For attention: the block of queries, the block of keys, and their tile of S. For a product of A and B:
        nothing, and the block of C that is summed, in float32.
        """
        a, b = self.on_chip.get("A"), self.on_chip.get("B")
        if self.matmuls and a and b:
            return {}, Tile("acc", (a.rows, b.cols), 4)
        q = self.on_chip.get("Q")
        if q is None or "K" not in shapes or "table" in shapes:  # of pages: the table has their keys
            return {}, None
        shapes["S"] = (*shapes["Q"][:3], shapes["K"][2])
        k = self.on_chip.get("K")
        rows, cols = q.rows, k.rows if k else (0, 0)
        self.mask = self._mask(shapes["Q"][2], shapes["K"][2], batch=q.index[0][0])
        i, j = rows[0] // self.arguments["BLOCK_M"], cols[0] // self.arguments["BLOCK_N"] if k else None
        place = {"i": i, "j": j, "rows": rows, "cols": cols, "masked": self.mask.crosses(rows, cols), "mask": self.mask}
        return place, Tile("S", (*q.index[:2], rows, cols), 4) if k else None

    def _mask(self, N_q: int, N_k: int, batch: int) -> Mask:
        """The mask of one sequence of the batch, from the arguments of a kernel. Packed sequences count as one."""
        given = {tensor.name: tensor.original for tensor in self.tensors} | self.arguments
        right = 0 if given.get("CAUSAL") else given.get("right")
        there = given.get("start")
        key_range = None
        if there is not None:  # unchecked indices may be outside
            start, stop = (min(max(int(end[batch]), 0), N_k) for end in (there, given["stop"]))
            key_range = ((start, max(start, stop)),)
        tiles = given.get("tiles")
        documents = None
        if tiles is not None and N_q == N_k and torch.equal(tiles[:, 1], tiles[:, 3]):  # first rows of both sides
            documents = tuple(sorted({0, *tiles[:, 1].tolist(), N_q}))
        return Mask(N_q, N_k, given.get("left"), right, documents, key_range)

    def _sentence(self, place) -> str:
        where = f"Program {self.program}"
        if place and place["j"] is not None:
            hidden = "part" if self.mask.attends(place["rows"], place["cols"]) else "all"
            masked = f", {hidden} of it masked" if place["masked"] else ""
            where += f": block Q{place['i']} meets block K{place['j']}{masked};"
        parts = []
        for verb, tiles in (("reads", self.reads), ("writes", self.writes)):
            if tiles:
                names = [tile.name for tile in tiles]
                listed = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
                parts.append(f"{verb} {listed} ({sum(tile.nbytes for tile in tiles)} bytes)")
        return f"{where} {', then '.join(parts)}."
