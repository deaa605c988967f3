"""Captions out of untrusted bytes: text files, JSON records, and strings that Arrow can hold."""

import json
import re
from typing import Any, Literal

TOO_LONG = 16 * 2**20  # a caption file of more bytes than this is not a caption file
_UNSAFE = re.compile("[\x00\ud800-\udfff]")  # NUL ends strings early in places; lone surrogates are no UTF-8
_UID = re.compile(r"[0-9a-fA-F]{32}")


def safe_text(text: str) -> str:
    """The text with what no UTF-8 column can hold replaced by U+FFFD."""
    return _UNSAFE.sub("�", text)


def decode_text(data: bytes) -> str:
    """Bytes as text whatever they are: UTF-8, UTF-16 where marked so, else with replacement characters."""
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    return safe_text(data.decode(encoding, "replace"))


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


def parse_record(data: bytes) -> dict[str, Any] | None:
    """The JSON object in `data`; None where there is none."""
    try:
        record = json.loads(decode_text(data))
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def record_captions(record: dict[str, Any]) -> tuple[str, ...]:
    """`captions` (a list) or `caption` (a string) of a sample's .json."""
    return captions_of(record.get("captions")) or captions_of(record.get("caption"))


def record_uid(record: dict[str, Any]) -> str | None:
    """The corpus's own `uid`, if it is 128 bits in hex as DataComp's are."""
    uid = record.get("uid")
    return uid.lower() if isinstance(uid, str) and _UID.fullmatch(uid) else None
