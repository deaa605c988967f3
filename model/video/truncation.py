"""How much of a video is missing, by what its container says of its own length: a cut-off file may still play.

MP4 and MOV (boxes), Matroska and WebM (the segment), AVI (the RIFF chunk); other formats do not say how long they are.
"""

from model.video.video_formats import ISO_BOXES, MATROSKA

SEGMENT = b"\x18\x53\x80\x67"
MOST_BOXES = 10_000


def truncation(data: bytes) -> str | None:
    """In words; None where nothing is missing that the container speaks of."""
    missing = missing_bytes(data)
    if missing <= 0:
        return None
    return f"truncated: {len(data) / (len(data) + missing):.0%} of the file is there, {missing:,} bytes are missing"


def missing_bytes(data: bytes) -> int:
    if data[4:8] in ISO_BOXES:
        return max(0, iso_end(data) - len(data))
    if data.startswith(MATROSKA):
        return max(0, matroska_end(data) - len(data))
    if data[:4] == b"RIFF":
        size = int.from_bytes(data[4:8], "little")
        return max(0, size + 8 - len(data)) if size < 0xFFFF_0000 else 0  # some writers leave all ones
    return 0


def iso_end(data: bytes) -> int:
    """Where the last box that begins in the file ends."""
    place = 0
    for _ in range(MOST_BOXES):
        header = data[place : place + 16]
        if len(header) < 8:
            break
        size = int.from_bytes(header[:4], "big")
        if size == 1 and len(header) == 16:
            size = int.from_bytes(header[8:], "big")
        if size < 8:  # 0: to the end of the file; else damage
            return len(data)
        if not header[4:8].isalnum():  # no box: padding, or something appended
            return place
        place += size
    return place


def matroska_end(data: bytes) -> int:
    """Where the segment ends; 0 where it does not say, as in a live stream."""
    size, place = vint(data, 4)
    if size is None:
        return 0
    place += size
    if data[place : place + 4] != SEGMENT:
        return 0
    size, place = vint(data, place + 4)
    return place + size if size is not None else 0


def vint(data: bytes, place: int) -> tuple[int | None, int]:
    """A size of EBML's and where it ends; None where all its bits are set: unknown."""
    first = data[place] if place < len(data) else 0
    if not first:
        return None, place + 1
    length = 9 - first.bit_length()
    value = int.from_bytes(data[place : place + length], "big") & ((1 << 7 * length) - 1)
    return (None if value == (1 << 7 * length) - 1 else value), place + length
