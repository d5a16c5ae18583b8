"""Values between the process that grades and the one with the student's functions: numbers and tensors, never code.

A message is JSON followed by bytes. It is checked before it is used, and, unlike a pickle, nothing in it is executed.
Tensors that share memory in a message share it again on the other side.
"""

from __future__ import annotations

import builtins
import json
import math
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

import torch

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    )
}
DEPTH, TEXT, BYTES, STORAGES, ELEMENTS = 32, 2**24, 2**28, 2**17, 2**24  # the maximum for a message, or a tensor
HEAD = struct.Struct("!QQ")  # bytes of JSON, bytes behind it


class MessageError(ValueError):
    """A message that is malformed, or too large."""


class Other:
    """A value that cannot cross: only the name of its type does."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class Channel:
    """One end of a connection. `callables.name(value)` names a function or record that is sent, None if it cannot cross;
    `callables.make(name)` makes the callable of a received name."""

    def __init__(self, end: socket.socket, callables: Any):
        self._end, self._callables = end, callables

    def send(self, value: Any, deadline: float | None = None) -> None:
        """TimeoutError after `deadline` (time.monotonic()), EOFError if the other side is gone."""
        writer = _Writer(self._callables.name)
        tree = writer.tree(value)
        storages, data = writer.storages()
        text = json.dumps([tree, storages]).encode()
        if len(text) > TEXT or len(data) > BYTES:
            raise MessageError(
                f"expected a message of at most {TEXT} and {BYTES} bytes, got {len(text)} and {len(data)}"
            )
        try:
            self._wait(deadline)
            self._end.sendall(HEAD.pack(len(text), len(data)) + text + data)
        except OSError as error:
            raise _gone(error) from None

    def receive(self, deadline: float | None = None) -> Any:
        """The next message; errors as `send`, and MessageError for a malformed one."""
        text, data = HEAD.unpack(self._bytes(HEAD.size, deadline))
        if text > TEXT or data > BYTES:
            raise MessageError(f"expected a message of at most {TEXT} and {BYTES} bytes, got {text} and {data}")
        raw, data = self._bytes(text, deadline), self._bytes(data, deadline)
        try:
            tree, storages = json.loads(raw)
            return _Reader(storages, data, self._callables.make).value(tree)
        except MessageError:
            raise
        except (ValueError, TypeError, LookupError, RuntimeError, OverflowError) as error:
            raise MessageError(f"expected a message, got one with a {type(error).__name__}") from None

    def _bytes(self, count: int, deadline: float | None) -> bytearray:
        got, at = bytearray(count), 0
        view = memoryview(got)
        while at < count:
            try:
                self._wait(deadline)
                more = self._end.recv_into(view[at:], min(count - at, 2**20))
            except OSError as error:
                raise _gone(error) from None
            if not more:
                raise EOFError("the process ended")
            at += more
        return got

    def _wait(self, deadline: float | None) -> None:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise TimeoutError
        self._end.settimeout(left)


def _gone(error: OSError) -> Exception:
    return error if isinstance(error, TimeoutError) else EOFError("the process ended")


def error_of(described: Any) -> Exception:
    """The error that the other side described by name and text, one of Python's own if it has that name."""
    pair = isinstance(described, tuple) and len(described) == 2
    if not pair or not all(isinstance(text, str) for text in described):
        return MessageError("expected an error with a name and a text")
    name, text = described[0][:60], described[1][:2000]
    kind = getattr(builtins, name, None)
    if not (isinstance(kind, type) and issubclass(kind, Exception)) or issubclass(kind, UnicodeError | ExceptionGroup):
        kind = type(name if name.isidentifier() else "Error", (RuntimeError,), {})
    return kind(text)


class _Writer:
    """Turns values into JSON, and the memory of their tensors into bytes."""

    def __init__(self, name: Callable[[Any], Any]):
        self._name = name
        self._storages: dict[int, tuple[int, torch.UntypedStorage]] = {}
        self._ranges: list[list[int]] = []
        self._kept: list[torch.Tensor] = []  # so that no address is used twice

    def tree(self, value: Any, depth: int = 0) -> Any:
        if depth > DEPTH:
            raise MessageError(f"expected at most {DEPTH} values inside each other, got more")
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int | str):
            return int(value) if isinstance(value, int) else str(value)
        if isinstance(value, float):
            return ["f", float(value).hex()]
        if isinstance(value, tuple | list):
            return ["t" if isinstance(value, tuple) else "l", *(self.tree(one, depth + 1) for one in value)]
        if isinstance(value, dict):
            return ["m", *([self.tree(key, depth + 1), self.tree(one, depth + 1)] for key, one in value.items())]
        if isinstance(value, torch.dtype):
            return ["d", str(value).removeprefix("torch.")]
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        named = self._name(value)
        return ["o", type(value).__name__] if named is None else ["c", self.tree(named, depth + 1)]

    def _tensor(self, t: torch.Tensor) -> list:
        with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            t = t.detach().cpu().resolve_conj().resolve_neg()
            name = str(t.dtype).removeprefix("torch.")
            if t.layout is not torch.strided or t.is_quantized or name not in DTYPES or t.is_meta:
                return ["o", f"{t.dtype} {t.layout}"]
            t = t.as_subclass(torch.Tensor)
            if t.numel() > ELEMENTS:
                raise MessageError(f"expected a tensor of at most {ELEMENTS} elements, got {t.numel()}")
            self._kept.append(t)
            storage = t.untyped_storage()
            number, _ = self._storages.setdefault(storage.data_ptr(), (len(self._ranges), storage))
            if number == len(self._ranges):
                self._ranges.append([storage.nbytes(), 0])
            size, first = t.element_size(), int(t.storage_offset()) * t.element_size()
            self._ranges[number][0] = min(self._ranges[number][0], first // 16 * 16)
            self._ranges[number][1] = max(self._ranges[number][1], first + _reach(t.shape, t.stride()) * size)
        return ["T", number, first, name, list(t.shape), list(t.stride())]

    def storages(self) -> tuple[list[list[int]], bytes]:
        """The start and end of each storage, of the bytes that some tensor has, and the bytes, one after another."""
        parts = []
        for number, storage in self._storages.values():
            start, stop = self._ranges[number]
            empty = torch.empty(0, dtype=torch.uint8)
            parts.append(empty.set_(storage, start, (max(0, stop - start),), (1,)).numpy().tobytes())
        return self._ranges, b"".join(parts)


def _reach(shape, stride) -> int:
    """The number of elements of memory from a tensor's first to its last."""
    return 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True)) if math.prod(shape) else 0


class _Reader:
    """Turns JSON and bytes back into values; everything is checked, for both may come from anywhere."""

    def __init__(self, storages: Any, data: bytearray, make: Callable[[Any], Any]):
        self._make = make
        self._starts: list[int] = []
        self._storages: list[torch.Tensor] = []
        if not isinstance(storages, list) or len(storages) > STORAGES:
            raise MessageError("expected a list of storages")
        at = 0
        for start, stop in storages:
            size = max(0, _count(stop) - _count(start))
            if at + size > len(data):
                raise MessageError("expected as many bytes as the storages have, got fewer")
            piece = torch.empty(size, dtype=torch.uint8)
            if size:
                piece.copy_(torch.frombuffer(data, dtype=torch.uint8, count=size, offset=at))
            self._storages.append(piece)
            self._starts.append(start)
            at += size

    def value(self, tree: Any, depth: int = 0) -> Any:
        if depth > DEPTH:
            raise MessageError(f"expected at most {DEPTH} values inside each other, got more")
        if tree is None or isinstance(tree, bool | int | str):
            return tree
        if not isinstance(tree, list) or not tree:
            raise MessageError(f"expected a value, got {type(tree).__name__}")
        kind, *rest = tree
        if kind == "f":
            return float.fromhex(rest[0])
        if kind in ("t", "l"):
            values = [self.value(one, depth + 1) for one in rest]
            return tuple(values) if kind == "t" else values
        if kind == "m":
            return {_key(self.value(key, depth + 1)): self.value(one, depth + 1) for key, one in rest}
        if kind == "d":
            return DTYPES[rest[0]]
        if kind == "T":
            return self._tensor(*rest)
        if kind == "c":
            return self._make(self.value(rest[0], depth + 1))
        if kind == "o":
            return type(str(rest[0])[:60], (Other,), {})()
        raise MessageError("expected a kind of value that is known")

    def _tensor(self, number: int, first: int, name: str, shape: list, stride: list) -> torch.Tensor:
        dtype, memory = DTYPES[name], self._storages[_count(number)]
        offset = _count(first) - self._starts[number]
        shape, stride = [_count(n) for n in shape], [_count(n) for n in stride]
        if len(shape) != len(stride) or len(shape) > 16 or math.prod(shape) > ELEMENTS:
            raise MessageError(
                f"expected a tensor of at most {ELEMENTS} elements in 16 dimensions, got {str(shape)[:100]}"
            )
        if not math.prod(shape):
            return torch.empty_strided(shape, stride, dtype=dtype)
        if offset < 0 or offset % dtype.itemsize or offset + _reach(shape, stride) * dtype.itemsize > memory.numel():
            raise MessageError("expected a tensor inside its memory")
        return torch.empty(0, dtype=dtype).set_(memory.untyped_storage(), offset // dtype.itemsize, shape, stride)


def _key(value: Any) -> str | int | torch.dtype:
    """A key of a dictionary, of a type for which many equal hashes cannot be made, as these make look-ups slow."""
    if not isinstance(value, str | int | torch.dtype) or (isinstance(value, int) and abs(value) >= 2**60):
        raise MessageError("expected texts, small integers or dtypes as keys")
    return value


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**40:
        raise MessageError("expected a number of things")
    return value
