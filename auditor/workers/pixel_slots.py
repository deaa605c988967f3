"""Shared memory between a decoder process and its parent: pixels are written once and copied only into a batch.

The parent writes files into one of two halves of `FILE_BYTES`, so that the decoder always has files to go on with. A
slot holds one fitted image. It is free again when nothing refers to its array any more. The decoder can change the
content of the slots, but can neither shrink nor grow the memory, so no hostile file can crash the parent through it.
"""

import fcntl
import mmap
import os
import weakref
from collections import deque
from collections.abc import Sequence

import numpy as np

from model.pixels import Pixels

TOTAL_BYTES = 64 << 20  # for one decoder; more pixels go through the socket
FILE_BYTES = 4 << 20  # for files, in halves
HALF = FILE_BYTES // 2


class PixelSlots:
    """The parent's side."""

    def __init__(self, frame: tuple[int, int, int], total: int = TOTAL_BYTES) -> None:
        self.frame = frame
        self.size = int(np.prod(frame))
        self.handle: int | None = None
        self._free: deque[int] = deque()
        if hasattr(os, "memfd_create"):  # Linux; on other systems all pixels go through the socket
            count = max(1, total // self.size)
            self.handle = os.memfd_create("pixels", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(self.handle, FILE_BYTES + count * self.size)
            fcntl.fcntl(self.handle, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            self._memory = mmap.mmap(self.handle, FILE_BYTES + count * self.size)
            self._free.extend(reversed(range(count)))
            self._readers: list[weakref.ref[Pixels] | None] = [None] * count

    def take(self) -> int | None:
        """Return a free slot, the most recently used first, so that unneeded memory is never touched."""
        return self._free.pop() if self._free else None

    def give_back(self, slot: int) -> None:
        self._free.append(slot)

    def write_files(self, half: int, files: Sequence[bytes]) -> None:
        """Write files one after another into a half."""
        position = half * HALF
        for data in files:
            self._memory[position : position + len(data)] = data
            position += len(data)

    def read(self, slot: int) -> Pixels:
        """Return the content of a slot, (1, H, W, 3); the slot is free again when the array is garbage-collected."""
        pixels: Pixels = np.ndarray((1, *self.frame), np.uint8, self._memory, FILE_BYTES + slot * self.size)
        give_back = self._free.append
        self._readers[slot] = weakref.ref(pixels, lambda _: give_back(slot))
        return pixels

    def close(self) -> None:
        """Close the file; the memory is freed with the last array."""
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None


def open_slots(handle: int, frame: tuple[int, int, int]) -> tuple[memoryview, Pixels]:
    """Return the memory for files and all slots, (N, H, W, 3): the decoder's side."""
    memory = mmap.mmap(handle, 0)
    count = (len(memory) - FILE_BYTES) // int(np.prod(frame))
    return memoryview(memory)[:FILE_BYTES], np.ndarray((count, *frame), np.uint8, memory, FILE_BYTES)
