"""Substitutes for Gluon's names when a kernel's source is simulated: descriptors, buffers, tiles in registers and
their arithmetic, by PyTorch. `flashlearn.simulator.simulated` puts them in the place of the names that a kernel uses."""

from __future__ import annotations

import inspect
import linecache
import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, make_dataclass
from functools import partial
from types import FrameType, FunctionType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from flashlearn.simulator.barriers import Access, Barrier, Race, Simulator, Task
from flashlearn.simulator.scheduler import Deadlock

SHARED = 232448  # bytes of shared memory that one program may have on Hopper
REGISTERS = 65536  # of an SM
UINT32 = "uint32"  # PyTorch has the type, but does not compare its numbers


class Values(Tensor):
    """A tile in registers, or a number.

    One that a product under way will fill holds NaN, and `value` the future result.
    """

    @property
    def type(self) -> Any:
        return SimpleNamespace(layout=None)

    def split(self) -> tuple[Values, Values]:  # type: ignore[override]
        """The two halves of a last axis of 2, as Gluon's `split` gives them."""
        return values(self[..., 0]), values(self[..., 1])

    def to(self, *args: Any, **kwargs: Any) -> Values:
        """In another type; numbers without a sign, `UINT32`, are kept in int64."""
        if args == (UINT32,):
            return values(super().to(torch.int64) & 0xFFFFFFFF)
        return values(super().to(*args, **kwargs))


def values(t: Any) -> Values:
    return torch.as_tensor(t, device="cpu").as_subclass(Values)


@dataclass(frozen=True)
class Descriptor:
    """A tensor in HBM, of which TMA moves tiles of the shape `block`; past the edges it reads zeros."""

    name: str
    tensor: Tensor
    block: tuple[int, ...]
    layout: None = None

    @property
    def dtype(self) -> torch.dtype:
        return self.tensor.dtype

    @property
    def block_type(self) -> Any:
        return SimpleNamespace(shape=list(self.block), nbytes=math.prod(self.block) * self.tensor.element_size())

    def inside(self, at: Sequence[int]) -> tuple[list[slice], list[slice]]:
        """The part of the tile at `at` that is inside the tensor: in the tensor's indices, and in the tile's."""
        ends = [min(a + b, n) for a, b, n in zip(at, self.block, self.tensor.shape, strict=True)]
        return [slice(a, max(a, end)) for a, end in zip(at, ends, strict=True)], [
            slice(0, max(0, end - a)) for a, end in zip(at, ends, strict=True)
        ]

    def read(self, at: Sequence[int]) -> Tensor:
        there, here = self.inside(at)
        tile = torch.zeros(self.block, device="cpu")
        tile[tuple(here)] = self.tensor[tuple(there)].float()
        return tile

    def write(self, at: Sequence[int], tile: Tensor, add: bool = False) -> None:
        there, here = self.inside(at)
        part = tile.reshape(self.block)[tuple(here)].to(self.dtype)
        self.tensor[tuple(there)] = self.tensor[tuple(there)] + part if add else part

    def called(self, at: Sequence[int]) -> str:
        """K2 for the third block of rows."""
        return f"{self.name}{at[-2] // self.block[-2]}"


@dataclass(frozen=True)
class Pointer:
    """An address in HBM: where in the flat tensor."""

    flat: Tensor
    at: Any = 0

    def __add__(self, offset: Any) -> Pointer:
        return Pointer(self.flat, self.at + offset)


@dataclass(frozen=True)
class Buffer:
    """Shared memory with a name; a part of it is a buffer too. In this simulator the next buffer is past its end."""

    sim: Simulator
    name: str
    data: Tensor
    dtype: torch.dtype
    end: Callable[[], int]  # of all that is allocated

    @property
    def shape(self) -> list[int]:
        return list(self.data.shape)

    def _of(self, data: Tensor, name: str = "") -> Buffer:
        return Buffer(self.sim, name or self.name, data, self.dtype, self.end)

    def index(self, i: Any) -> Buffer:
        data, i = self.data, int(i)
        start = data.storage_offset() + i * data.stride(0)
        if not 0 <= start <= start + data[0].numel() <= self.end():
            raise IndexError(f"expected a tile of {self.name} inside of what is allocated, got number {i}")
        return self._of(data.as_strided(data.shape[1:], data.stride()[1:], start), f"{self.name}[{i}]")

    def reshape(self, shape: list[int]) -> Buffer:
        return self._of(self.data.view(shape))

    def permute(self, order: tuple[int, ...]) -> Buffer:
        return self._of(self.data.permute(order))

    def slice(self, start: int, length: int, dim: int = 0) -> Buffer:
        return self._of(self.data.narrow(dim, start, length))

    def load(self, layout: Any = None) -> Values:
        self.sim.access(self.data, f"{self.sim.me.name} reads {self.name}")
        return values(self.data.clone() if self.dtype.is_floating_point else self.data.to(self.dtype))

    def store(self, tile: Tensor) -> None:
        if not isinstance(tile, Tensor) or tile.is_meta or tile.shape != self.data.shape:
            shape = tuple(tile.shape) if isinstance(tile, Tensor) else type(tile).__name__
            raise TypeError(f"expected a tile of {tuple(self.shape)} to be stored in {self.name}, got {shape}")
        new = self.sim.access(self.data, f"{self.sim.me.name} writes {self.name}", write=True)
        self.sim.unfenced.append((self.sim.me.name, new.start, new.stop))
        self.data.copy_(tile.to(self.dtype))


@dataclass(frozen=True)
class Row:
    """Barriers in shared memory."""

    barriers: list[Barrier]
    shape: list[int]

    def index(self, i: Any) -> Barrier:
        if not 0 <= int(i) < len(self.barriers):
            raise IndexError(f"expected one of {len(self.barriers)} barriers, got number {int(i)}")
        return self.barriers[int(i)]


class Names:
    """Gluon's names for one program, at `at` in the grid; `last` are tensors that the kernel before writes."""

    def __init__(self, sim: Simulator, grid: tuple[int, ...], at: tuple[int, ...], last: Sequence[Tensor] = ()):
        self.sim, self.grid, self.at = sim, grid, at
        self.last = {t.untyped_storage().data_ptr() for t in last}
        self.waited: set[str] = set()  # the threads that have waited for the kernel before
        self.memory = torch.full(
            (SHARED,), float("nan"), device="cpu"
        )  # elements, as all kinds are kept as float32 here
        self.used = self.bytes = 0
        self.spaces: dict[int, dict[str, Any]] = {}
        self.aggregates: dict[Any, type] = {}

    # Functions of the kernel, with these names in place of Gluon's

    def here(self, function: Any, replaced: dict[str, Any]) -> Callable:
        """The function as in its source, except for the names."""
        plain = inspect.unwrap(getattr(function, "fn", function))
        old = plain.__globals__
        if id(old) not in self.spaces:
            self.spaces[id(old)] = space = dict(old)
            for name, value in (old | replaced).items():
                if type(value).__name__ == "constexpr":
                    space[name] = value.value
                elif getattr(value, "__triton_aggregate__", False):
                    space[name] = self.aggregate(value, replaced)
                elif name in replaced or hasattr(getattr(value, "fn", None), "__code__") or _plain(value, old):
                    space[name] = self.here(value, replaced)
            space.update(self.names())
        made = FunctionType(plain.__code__, self.spaces[id(old)], plain.__name__, plain.__defaults__, plain.__closure__)
        made.__kwdefaults__ = plain.__kwdefaults__
        return made

    def aggregate(self, aggregate: Any, replaced: dict[str, Any]) -> type:
        """A Gluon aggregate as a plain class; `replaced` may name its methods, such as "Pipeline.consumer_wait"."""
        if aggregate not in self.aggregates:
            name, fields = aggregate.__name__, aggregate.__aggregate_fields__
            made = self.aggregates[aggregate] = make_dataclass(
                name, [(each, Any, aggregate.__aggregate_defaults__.get(each, MISSING)) for each in fields]
            )
            for method, function in vars(aggregate).items():
                if hasattr(getattr(function, "fn", None), "__code__"):
                    setattr(made, method, self.here(replaced.get(f"{name}.{method}", function), replaced))
        return self.aggregates[aggregate]

    def names(self) -> dict[str, Any]:
        barriers = SimpleNamespace(
            MBarrierLayout=lambda: Barrier,
            init=lambda barrier, count: barrier.init(count),
            expect=lambda barrier, nbytes: barrier.change(self.sim.me.clock, 1, nbytes),
            arrive=lambda barrier, count=1: barrier.change(
                self.sim.me.clock | {self.sim.me.name: self.sim.me.tick()}, count
            ),
            wait=self.sim.wait,
        )
        return {
            "gl": self,
            "tl": self,
            "mbarrier": barriers,
            "tma": SimpleNamespace(store_wait=self.store_wait),
            "warpgroup_mma": self.multiply,
            "warpgroup_mma_wait": self.multiplied,
            "mma_v2": self.multiply_registers,
            "fence_async_shared": self.fence,
            "gdc_launch_dependents": lambda: None,
            "gdc_wait": lambda: self.waited.add(self.sim.me.name),
            "barrier": lambda: None,  # the warps of a warpgroup are one thread here
            "async_load": self.copy_in,
            "async_store": self.copy_out,
            "async_add": lambda descriptor, at, buffer: self.copy_out(descriptor, at, buffer, add=True),
        }

    # Shared memory, copies, products

    def allocate_shared_memory(self, dtype: Any, shape: list[int], layout: Any = None) -> Buffer | Row:
        name = _assigned(sys._getframe(1))
        if layout is Barrier:
            return Row([Barrier(self.sim, f"{name}[{i}]") for i in range(shape[0])], shape)
        size = math.prod(shape)
        self.bytes += size * dtype.itemsize
        if self.bytes > SHARED:
            raise RuntimeError(f"expected at most {SHARED} bytes of shared memory, got {self.bytes}")
        data = self.memory[self.used : self.used + size].view(shape)
        self.used += size
        return Buffer(self.sim, name, data, dtype, lambda: self.used)

    def copy_in(self, descriptor: Descriptor, at: Sequence, barrier: Barrier, buffer: Buffer) -> None:
        place = [int(a) for a in at]
        called = descriptor.called(place)
        self._early(descriptor.tensor, f"reads {called}")
        self.sim.copy(
            descriptor.read(place).view(buffer.data.shape), buffer.data, barrier, called, buffer.name,
            descriptor.block_type.nbytes,
        )  # fmt: skip

    def copy_out(self, descriptor: Descriptor, at: Sequence, buffer: Buffer, add: bool = False) -> None:
        words = f"TMA reads {buffer.name}"
        self._early(descriptor.tensor, f"writes {descriptor.name}", write=True)
        self.sim.me.copies.append(self.sim.access(buffer.data, words, ended=False, engine=True))
        self.sim.me.leaving.append(descriptor.name)
        descriptor.write([int(a) for a in at], buffer.data.clone(), add)

    def store_wait(self, pendings: int) -> None:
        self._over(self.sim.me.copies)
        self.sim.me.copies = []

    def _early(self, tensor: Tensor, does: str, write: bool = False) -> None:
        """Reject accesses of a thread to HBM before the kernel before has ended: reads of its results, and writes."""
        early = self.last and self.sim.me.name not in self.waited
        if early and (write or tensor.untyped_storage().data_ptr() in self.last):
            raise Race(f"slot {self.sim.now}: {self.sim.me.name} {does}, and has not waited for the kernel before")

    def _over(self, accesses: list[Access]) -> None:
        """They are over, and this thread knows."""
        for access in accesses:
            access.ended.append(self.sim.me.tick())

    def fence(self) -> None:
        self.sim.unfenced = [each for each in self.sim.unfenced if each[0] != self.sim.me.name]

    def multiply(self, a: Any, b: Buffer, acc: Any, use_acc: bool = True, is_async: bool = False) -> Values:
        sim = self.sim
        operands = [each for each in (a, b) if isinstance(each, Buffer)]
        reads = [
            sim.access(each.data, f"a product of {sim.me.name} reads {each.name}", ended=False, engine=True)
            for each in operands
        ]
        result = (a.data if isinstance(a, Buffer) else a.float()) @ b.data
        result = result + getattr(acc, "value", acc) if use_acc else result
        start = max(sim.now, sim.tensor_cores)
        sim.tensor_cores = end = start + sim.times.product
        sim.tasks.append(Task(sim.me.name, "product", b.name, start, end))
        later = values(torch.full_like(result, float("nan")))
        later.value = values(result)  # type: ignore[attr-defined]
        sim.me.in_flight.append((end, later, reads))
        return later if is_async else self.multiplied(0, [later])

    def multiply_registers(self, a: Tensor, b: Tensor, acc: Tensor) -> Values:
        """The product of two tiles in registers: done when the next instruction is."""
        return values(a.float() @ b.float() + acc)

    def multiplied(self, left: int, deps: list[Any]) -> Any:
        """Wait until at most `left` products of this thread are under way; the values of `deps`, NaN if not among them."""
        issued = self.sim.me.in_flight
        over, self.sim.me.in_flight = issued[: len(issued) - left], issued[len(issued) - left :]
        for end, _, reads in over:
            self.sim.pause(time=end)
            self._over(reads)
        missing = [later for _, later, _ in self.sim.me.in_flight]
        done = [dep if any(dep is each for each in missing) else getattr(dep, "value", dep) for dep in deps]
        return done[0] if len(done) == 1 else tuple(done)

    def warp_specialize(self, partitions: list[tuple], warps: list[int], registers: list[int]) -> None:
        """Each partition in a thread of its own; the first has the warps that the kernel began with."""
        # four warps release registers together: partitions of fewer warps share such groups
        few = [(w, r) for w, r in zip(warps, registers, strict=True) if w < 4]
        given = sum(32 * w * r for w, r in zip(warps, registers, strict=True) if w >= 4)
        given += 128 * -(-sum(w for w, _ in few) // 4) * max((r for _, r in few), default=0)
        if given + 128 * 24 > REGISTERS:
            raise RuntimeError(f"expected at most {REGISTERS} registers, got {given} for the requested partitions")
        workers = []
        for function, args in partitions:
            name = f"{function.__name__} {args[0]}" if args and type(args[0]) is int else function.__name__
            workers.append(self.sim.start(name, partial(function, *args)))
        self.sim.pause(lambda: all(worker.done for worker in workers))

    # Language: types, layouts (which mean nothing here), arithmetic

    constexpr, int32, uint32, int64 = None, torch.int32, UINT32, torch.int64
    float16, bfloat16, float32 = torch.float16, torch.bfloat16, torch.float32
    static_range = range

    def __getattr__(self, name: str) -> Any:
        if name.endswith("Layout"):
            return _Layout()
        raise AttributeError(f"flashlearn.simulator.gluon_names has no {name}")

    def program_id(self, axis: int) -> Values:
        return values(self.at[axis])

    def num_warps(self) -> int:
        return 1  # the warps of a warpgroup are one thread here

    def num_programs(self, axis: int) -> int:
        return self.grid[axis]

    def cdiv(self, a: Any, b: Any) -> Any:
        return -(-a // b)

    def full(self, shape: list[int], value: float, dtype: torch.dtype, layout: Any = None) -> Values:
        return values(torch.full(shape, value, dtype=dtype, device="cpu"))

    def zeros(self, shape: list[int], dtype: torch.dtype, layout: Any = None) -> Values:
        return self.full(shape, 0, dtype)

    def arange(self, start: int, end: int, layout: Any = None) -> Values:
        return values(torch.arange(start, end, device="cpu"))

    def cast(self, number: Any, dtype: torch.dtype) -> Values:
        return values(torch.as_tensor(number, device="cpu").to(dtype))

    def convert_layout(self, tile: Values, layout: Any) -> Values:
        return tile

    def maximum(self, a: Any, b: Any) -> Values:
        return values(torch.maximum(*torch.broadcast_tensors(values(a), values(b).to(values(a).dtype))))

    def minimum(self, a: Any, b: Any) -> Values:
        return values(torch.minimum(*torch.broadcast_tensors(values(a), values(b).to(values(a).dtype))))

    where = staticmethod(lambda condition, a, b: values(torch.where(values(condition), a, b)))
    abs = staticmethod(lambda tile: values(tile.abs()))
    max = staticmethod(lambda tile, axis: values(tile.amax(axis)))
    sum = staticmethod(lambda tile, axis: values(tile.sum(axis)))
    log2 = staticmethod(lambda tile: values(torch.log2(tile)))
    join = staticmethod(lambda low, high: values(torch.stack((low, high), -1)))

    def associative_scan(self, tile: Tensor, axis: int, combine: Callable) -> Values:
        parts = list(tile.unbind(axis))
        for i in range(1, len(parts)):
            parts[i] = combine(parts[i - 1], parts[i])
        return values(torch.stack(parts, axis))

    def exp2(self, tile: Tensor) -> Values:
        if tile.ndim > 1:
            sim, began = self.sim, self.sim.now
            sim.pause(time=began + sim.times.exponentials)
            sim.tasks.append(Task(sim.me.name, "softmax", "", began, sim.now))
        return values(torch.exp2(tile))

    def inline_asm_elementwise(
        self, asm: str, constraints: str, args: list, dtype: Any, is_pure: bool, pack: int
    ) -> Any:
        """The instructions that kernels name: two float32 to 16 bits each, in one register, and the two out of it; waits."""
        if "ld.acquire.gpu" in asm:
            return self._wait_until(*args)
        instruction = asm.split()[0]
        if instruction == "mov.b32" and len(args) == 1 and dtype is torch.int32:
            return values(args[0])
        if instruction == "mov.b32":
            return values(torch.stack(tuple(args), -1).view(dtype[0])).split()
        if instruction == "cp.async.bulk.wait_group":
            self.sim.me.leaving = []
            return self.store_wait(0)
        kinds = {"cvt.rn.f16x2.f32": torch.float16, "cvt.rn.bf16x2.f32": torch.bfloat16}
        if instruction not in kinds:
            raise NotImplementedError(f"expected mov.b32 or one of {list(kinds)}, got {asm!r}")
        return values(torch.stack(tuple(args), -1).to(kinds[instruction]).view(torch.int32).squeeze(-1))

    def load(self, pointer: Pointer, mask: Any = None, other: float = 0.0) -> Values:
        self._early(pointer.flat, "loads what the kernel before writes")
        inside = pointer.at.clamp(0, len(pointer.flat) - 1)
        return values(pointer.flat[inside] if mask is None else torch.where(mask, pointer.flat[inside], other))

    def atomic_add(self, pointer: Pointer, number: int, sem: str) -> Values:
        """The old value, to which a number is added; a releasing thread says that its stores have arrived."""
        self._early(pointer.flat, "adds to a number", write=True)
        me = self.sim.me
        if sem == "release" and me.leaving:
            raise Race(
                f"slot {self.sim.now}: {me.name} releases a semaphore, and {me.leaving[-1]} may not have arrived"
            )
        at = int(pointer.at)
        seen = int(pointer.flat[at])
        pointer.flat[at] += number
        return values(seen)

    def _wait_until(self, pointer: Pointer, number: int) -> None:
        """Programs run one after another: a thread that finds another number waits for ever."""
        self._early(pointer.flat, "looks at a number")
        if int(pointer.flat[int(pointer.at)]) != int(number):
            sim = self.sim
            raise Deadlock(f"slot {sim.now}: {sim.me.name} waits for a semaphore that no program before it releases")

    def store(self, pointer: Pointer, tile: Tensor, mask: Any = None) -> None:
        self._early(pointer.flat, "stores", write=True)
        at, tile = values(pointer.at).reshape(-1), values(tile).reshape(-1)
        keep = slice(None) if mask is None else mask.reshape(-1)
        pointer.flat[at[keep]] = tile[keep].to(pointer.flat.dtype)


def _plain(value: Any, names: dict[str, Any]) -> bool:
    """A function of the same module, which may be one of the kernel's, without Gluon's decorator."""
    return inspect.isfunction(value) and value.__globals__ is names and not value.__closure__


def _assigned(caller: FrameType | None) -> str:
    """The name to which a function's result is assigned, where it is called or where its caller returns it."""
    while caller:
        line = linecache.getline(caller.f_code.co_filename, caller.f_lineno).strip()
        if not line.startswith("return "):
            return (re.match(r"(\w+) =", line) or ["", "buffer"])[1]
        caller = caller.f_back
    return "buffer"


class _Layout:
    """The layout of a tile: of no matter here."""

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        return None

    get_default_for = __call__
