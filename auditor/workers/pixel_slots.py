"""Shared memory between one decoder process and its reader: pixels are written there once and copied only into a batch.

A slot holds one fitted image. It is free again when nobody refers to the array any more. The decoder can change what is
in the slots, but neither shrink nor grow the memory, so that nothing a hostile file does to it crashes the reader.
"""

import contextlib
import fcntl
import mmap
import os
import weakref
from collections import deque

import numpy as np

from model.pixels import Pixels

TOTAL_BYTES = 64 << 20  # of one decoder; beyond it pixels go through the socket


class Slots:
    """The reader's side."""

    def __init__(self, frame: tuple[int, int, int], total: int = TOTAL_BYTES) -> None:
        self.frame = frame
        self.size = int(np.prod(frame))
        self.handle: int | None = None
        self._free: deque[int] = deque()
        if hasattr(os, "memfd_create"):  # Linux; elsewhere everything goes through the socket
            count = max(1, total // self.size)
            self.handle = os.memfd_create("pixels", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(self.handle, count * self.size)
            fcntl.fcntl(self.handle, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            self._memory = mmap.mmap(self.handle, count * self.size)
            self._free.extend(reversed(range(count)))

    def take(self) -> int | None:
        """A free slot, the one used last first: memory that was never needed is never touched."""
        with contextlib.suppress(IndexError):
            return self._free.pop()
        return None

    def give_back(self, slot: int) -> None:
        self._free.append(slot)

    def pixels(self, slot: int) -> Pixels:
        """What is in a slot, (1, H, W, 3); the slot is given back with the last reference to it."""
        found: Pixels = np.ndarray((1, *self.frame), np.uint8, self._memory, slot * self.size)
        weakref.finalize(found, self._free.append, slot).atexit = False
        return found

    def close(self) -> None:
        """Let go of the file; the memory goes with the last array."""
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None


def open_slots(handle: int, frame: tuple[int, int, int]) -> Pixels:
    """The decoder's side: all slots, (N, H, W, 3)."""
    memory = mmap.mmap(handle, 0)
    size = int(np.prod(frame))
    return np.ndarray((len(memory) // size, *frame), np.uint8, memory)
