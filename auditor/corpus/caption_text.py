"""Read captions from untrusted bytes (text files and JSON records) as strings that Arrow can store."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

ENCODING_SAMPLE_BYTES = 65_536  # examined to guess an encoding
# byte order marks
MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe\0\0": "utf-32", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_UNSAFE = re.compile("[\x00\ud800-\udfff]")  # NUL truncates C strings; UTF-8 cannot encode lone surrogates
_WORD = re.compile(rb"[A-Za-z\x80-\xff]{3,}")
_UID = re.compile(r"[0-9a-fA-F]{32}")


def replace_unsafe(text: str) -> str:
    """Replace characters that a UTF-8 column cannot hold by U+FFFD."""
    return _UNSAFE.sub("�", text)


def decode_text(data: bytes, encoding: str | None = None) -> str:
    """Decode any bytes, in the encoding that `find_encoding` chooses."""
    return replace_unsafe(data.decode(find_encoding(data, encoding), "replace"))


def find_encoding(data: bytes, default: str | None = None) -> str:
    """Return UTF-8 or UTF-16 if the bytes show it, else the `default`, else the most probable encoding."""
    if encoding := next((name for mark, name in MARKS.items() if data.startswith(mark)), default):
        return encoding
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return _guess_encoding(data)
    return _detect_utf16(data) or "utf-8"


def _detect_utf16(data: bytes) -> str | None:
    """Detect UTF-16 without a byte order mark: every second byte of plain text is zero."""
    if len(data) < 4 or len(data) % 2 or b"\0" not in data:
        return None
    first, second = data[::2].count(0), data[1::2].count(0)
    threshold = 0.6 * len(data) / 2
    if second > threshold > first:
        return "utf-16-le"
    return "utf-16-be" if first > threshold > second else None


def _guess_encoding(data: bytes) -> str:
    """Guess Windows-1252 if few letters of a word are beyond ASCII (a Latin script), else ask a detector.

    A detector separates Latin encodings by the statistics of long texts, and captions are short. It is reliable for
    scripts that use no ASCII letters, such as Cyrillic, Chinese or Japanese.
    """
    if encoding := _detect_utf16(data):
        return encoding
    sample = data[:ENCODING_SAMPLE_BYTES]
    words = [word for word in _WORD.findall(sample) if not word.isascii()]
    if sum(byte > 127 for word in words for byte in word) <= 0.5 * sum(map(len, words)):
        try:
            data.decode("cp1252")
        except UnicodeDecodeError:
            return "latin-1"
        return "cp1252"
    from charset_normalizer import from_bytes

    best = from_bytes(b"\n".join(line for line in sample.splitlines() if not line.isascii())).best()
    return best.encoding if best is not None else "latin-1"


def split_lines(text: str) -> list[str]:
    """Split at line ends only; str.splitlines also splits at form feeds and U+2028, which occur inside captions."""
    return re.split(r"\r\n|\r|\n", text)


def split_captions(text: str, mode: Literal["lines", "whole"]) -> tuple[str, ...]:
    """Return the captions of a .txt file: its nonblank lines, or the whole text."""
    parts = split_lines(text) if mode == "lines" else [text]
    return tuple(stripped for part in parts if (stripped := part.strip()))


def parse_captions(value: Any) -> tuple[str, ...]:
    """Return the captions in a string or a list of strings; any other value has none."""
    values = value if isinstance(value, list | tuple) else [value]
    return tuple(safe for item in values if isinstance(item, str) and (safe := replace_unsafe(item).strip()))


def parse_record(text: str) -> dict[str, Any] | None:
    """Parse a JSON object; return None if the text is anything else."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def read_record_captions(record: dict[str, Any]) -> tuple[str, ...]:
    """Return `captions` (a list) or `caption` (a string) of a sample's .json file."""
    return parse_captions(record.get("captions")) or parse_captions(record.get("caption"))


def read_record_sources(record: Mapping[str, Any], captions: int) -> tuple[str | None, ...]:
    """Return `caption_sources`, which an export writes beside as many captions."""
    sources = record.get("caption_sources")
    if not isinstance(sources, list) or len(sources) != captions:
        return ()
    return tuple(replace_unsafe(source) if isinstance(source, str) else None for source in sources)


def dump_carried_fields(fields: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """Return the fields that are carried into the audit as JSON, or None if `names` is empty."""
    if not names:
        return None
    return replace_unsafe(json.dumps({name: fields.get(name) for name in names}, ensure_ascii=False, default=str))


def parse_uid(uid: Any) -> str | None:
    """Return the corpus's own `uid` if it has 32 hexadecimal digits, as in DataComp."""
    return uid.lower() if isinstance(uid, str) and _UID.fullmatch(uid) else None
