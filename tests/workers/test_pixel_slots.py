"""Shared memory for pixels: no array is overwritten while it is in use, and no slot is lost."""

import gc
import mmap
import os

import numpy as np
import pytest

from auditor.workers.decoder_pool import Decoded, DecoderPool, PixelSpec
from auditor.workers.pixel_slots import HALF, PixelSlots, open_slots
from tests.support.clips import make_photo

FRAME = (4, 5, 3)


def test_a_slot_is_free_again_with_the_last_reference() -> None:
    slots = PixelSlots(FRAME, total=2 * 60)
    first, second = slots.take(), slots.take()
    assert first is not None and second is not None and slots.take() is None
    pixels = slots.read(first)
    row = pixels[0][1]  # a view holds the slot as well
    del pixels
    gc.collect()
    assert slots.take() is None
    del row
    gc.collect()
    assert slots.take() == first
    slots.give_back(second)
    assert slots.take() == second


def test_both_sides_see_the_same_bytes() -> None:
    slots = PixelSlots(FRAME)
    assert slots.handle is not None
    files, theirs = open_slots(slots.handle, FRAME)
    slots.write_files(1, [b"one", b"three"])
    assert bytes(files[HALF : HALF + 8]) == b"onethree" and not any(files[:HALF])
    slot = slots.take()
    assert slot is not None
    theirs[slot] = np.arange(60, dtype=np.uint8).reshape(FRAME)
    np.testing.assert_array_equal(slots.read(slot)[0], theirs[slot])
    slots.close()


def test_a_decoder_cannot_take_the_memory_away() -> None:
    slots = PixelSlots(FRAME)
    assert slots.handle is not None
    for size in (0, 1 << 30):
        with pytest.raises(PermissionError):
            os.ftruncate(slots.handle, size)
    assert len(mmap.mmap(slots.handle, 0)) >= 60


def test_results_that_are_kept_are_never_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more results than slots, the others go through the socket."""
    monkeypatch.setattr(
        "auditor.workers.decoder_process.PixelSlots", lambda frame: PixelSlots(frame, total=4 * 32 * 32 * 3)
    )
    with DecoderPool(PixelSpec(size=(32, 32)), workers=1) as pool:
        colours = range(0, 250, 10)
        files = [(level, make_photo(40, 40, "PNG", (level, 0, 0)), "image") for level in colours]
        kept = list(pool.map(files))  # type: ignore[arg-type]
        for level, result in kept:
            assert isinstance(result, Decoded) and (result.pixels[..., 0] == level).all()
        shared = [isinstance(result.pixels.base, mmap.mmap) for _, result in kept if isinstance(result, Decoded)]
        assert sum(shared) == 4
