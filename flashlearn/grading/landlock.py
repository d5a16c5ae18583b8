"""Landlock: a process of Linux permanently gives up rights, for itself and all that it starts.

    fence(readable=[...], writable=[...])     files elsewhere cannot be opened

From Linux 6.7 on TCP connections are blocked too, and from 6.12 on signals to other processes. Folders can still be
listed, and open files stay open. Root is bound as well. Linux 5.13 or later has it, unless it was switched off at boot
or a container does not allow it.

Source: man 7 landlock; <linux/landlock.h>.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # system calls, by the same number on every machine
VERSION, BENEATH = 1, 1
PR_SET_NO_NEW_PRIVS = 38
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = (1 << n for n in range(4))
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
OF_A_FILE = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV  # the others are rights to a folder
SINCE = {REFER: 2, TRUNCATE: 3, IOCTL_DEV: 5}  # the version of Landlock that first has a right
NETWORK, SCOPES = 4, 6  # the versions that first limit TCP, and signals to other processes


def version() -> int:
    """The version of Landlock, 0 for none."""
    if sys.platform != "linux":
        return 0
    return max(0, _libc().syscall(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(VERSION)))


def fence(readable: Iterable[Path], writable: Iterable[Path]) -> None:
    """From now on this process reads and executes only beneath these paths, and writes only beneath `writable`."""
    everything = (1 << 16) - 1
    for right, first in SINCE.items():
        everything &= ~right if version() < first else everything
    everything &= ~READ_DIR
    net, scoped = 3 if version() >= NETWORK else 0, 3 if version() >= SCOPES else 0
    ruleset = struct.pack("QQQ", everything, net, scoped)[: 24 if scoped else 16 if net else 8]
    handle = _call(CREATE_RULESET, ruleset, ctypes.c_size_t(len(ruleset)), ctypes.c_uint32(0))
    try:
        for path in readable:
            _allow(handle, path, everything & (EXECUTE | READ_FILE))
        for path in writable:
            _allow(handle, path, everything)
        _libc().prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        _call(RESTRICT_SELF, handle, ctypes.c_uint32(0))
    finally:
        os.close(handle)


def _allow(handle: int, path: Path, rights: int) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # gone by now
        return
    try:
        rights &= (1 << 16) - 1 if path.is_dir() else OF_A_FILE
        _call(ADD_RULE, handle, ctypes.c_int(BENEATH), struct.pack("=Qi", rights, opened), ctypes.c_uint32(0))
    finally:
        os.close(opened)


def without(root: Path, hidden: Iterable[Path]) -> Iterator[Path]:
    """Paths that hold all of `root` except the hidden ones."""
    inside = [path for path in hidden if path.is_relative_to(root)]
    if not inside:
        yield root
    elif root not in inside:
        for child in root.iterdir():
            if not child.is_symlink():  # it contains a path with a rule of its own, or a hidden one
                yield from without(child, inside)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(number: int, *args) -> int:
    result = _libc().syscall(number, *args)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"Landlock: {os.strerror(ctypes.get_errno())}")
    return result
