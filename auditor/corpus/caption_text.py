"""Captions out of untrusted bytes: text files, JSON records, and strings that Arrow can hold."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

TOO_LONG = 16 * 2**20  # a caption file of more bytes than this is not a caption file
LOOKED_AT = 65_536  # bytes that tell an encoding
BYTE_ORDER_MARKS = {
    b"\xef\xbb\xbf": "utf-8-sig",
    b"\xff\xfe\0\0": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
_UNSAFE = re.compile("[\x00\ud800-\udfff]")  # NUL ends strings early in places; lone surrogates are no UTF-8
_WORD = re.compile(rb"[A-Za-z\x80-\xff]{3,}")
_UID = re.compile(r"[0-9a-fA-F]{32}")


def safe_text(text: str) -> str:
    """The text with what no UTF-8 column can hold replaced by U+FFFD."""
    return _UNSAFE.sub("�", text)


def decode_text(data: bytes, encoding: str | None = None) -> str:
    """Bytes as text whatever they are: see `find_encoding`."""
    return safe_text(data.decode(find_encoding(data, encoding), "replace"))


def find_encoding(data: bytes, given: str | None = None) -> str:
    """UTF-8 and UTF-16 where the bytes say so, else the encoding given, else the most probable one."""
    for mark, encoding in BYTE_ORDER_MARKS.items():
        if data.startswith(mark):
            return encoding
    if given is not None:
        return given
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return _guess(data)
    return _utf16(data) or "utf-8"


def _utf16(data: bytes) -> str | None:
    """UTF-16 without a mark: every second byte of plain text is zero."""
    if len(data) < 4 or len(data) % 2 or b"\0" not in data:
        return None
    first, second = data[::2].count(0), data[1::2].count(0)
    most = 0.6 * len(data) / 2
    return "utf-16-le" if second > most > first else "utf-16-be" if first > most > second else None


def _guess(data: bytes) -> str:
    """Where words have few letters beyond ASCII it is some Latin script, and Windows-1252 the usual encoding of it.

    A detector tells these by the statistics of long texts, which captions are not; the scripts it is sure of, such as
    Cyrillic, Chinese or Japanese, are beyond ASCII throughout.
    """
    if found := _utf16(data):
        return found
    looked_at = data[:LOOKED_AT]
    words = [word for word in _WORD.findall(looked_at) if not word.isascii()]
    if sum(byte > 127 for word in words for byte in word) <= 0.5 * sum(map(len, words)):
        try:
            data.decode("cp1252")
        except UnicodeDecodeError:
            return "latin-1"
        return "cp1252"
    from charset_normalizer import from_bytes

    best = from_bytes(b"\n".join(line for line in looked_at.splitlines() if not line.isascii())).best()
    return best.encoding if best is not None else "latin-1"


def other_encoding(data: bytes, given: str | None) -> str | None:
    """The encoding that text is read in, where it is none of Unicode's."""
    found = find_encoding(data, given)
    return None if found.startswith("utf") else found


def split_lines(text: str) -> list[str]:
    """Not str.splitlines: form feeds and U+2028 do occur inside captions."""
    return re.split(r"\r\n|\r|\n", text)


def split_captions(text: str, how: Literal["lines", "whole"]) -> tuple[str, ...]:
    """Captions of a .txt: its lines without the blank ones, or all of it."""
    parts = split_lines(text) if how == "lines" else [text]
    return tuple(stripped for part in parts if (stripped := part.strip()))


def captions_of(value: Any) -> tuple[str, ...]:
    """A string or a list of strings, as JSON and tables hold captions; anything else is none."""
    values = value if isinstance(value, list | tuple) else [value]
    return tuple(safe for item in values if isinstance(item, str) and (safe := safe_text(item).strip()))


def parse_record(data: bytes | str, encoding: str | None = None) -> dict[str, Any] | None:
    """The JSON object in `data`; None where there is none."""
    try:
        record = json.loads(data if isinstance(data, str) else decode_text(data, encoding))
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def record_captions(record: dict[str, Any]) -> tuple[str, ...]:
    """`captions` (a list) or `caption` (a string) of a sample's .json."""
    return captions_of(record.get("captions")) or captions_of(record.get("caption"))


def carried_json(fields: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """The fields of a record that are carried into the audit, as JSON; None where none is asked for."""
    if not names:
        return None
    return safe_text(json.dumps({name: fields.get(name) for name in names}, ensure_ascii=False, default=str))


def record_uid(record: dict[str, Any]) -> str | None:
    """The corpus's own `uid`, if it is 128 bits in hex as DataComp's are."""
    uid = record.get("uid")
    return uid.lower() if isinstance(uid, str) and _UID.fullmatch(uid) else None
