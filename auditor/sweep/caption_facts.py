"""Describes captions by their text alone: length, repetition, language, and whether they are URLs, file names, ...

Most captions are ASCII; for them, byte operations replace regular expressions.
"""

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from auditor.schema import Defect
from auditor.sweep.caption_defects import SPAN, find_defect, find_preamble
from auditor.sweep.languages import detect_languages

Likeness = Literal["file name", "url", "html", "mojibake", "stock title", Defect]

_DIGITS = re.compile(r"\d+")
_APART = re.compile(r"[\W_]+")
_WORD = re.compile(r"\w+")
_URL = re.compile(r"(?:https?://|www\.)\S+|\b[\w-]+(?:\.[\w-]+)*\.(?:com|org|net|io|co|de|uk|info)(?:/\S*)?\b", re.I)
_HTML = re.compile(r"</?[a-z][a-z0-9]*(?:\s[^<>]*)?/?>|&(?:[a-z]{2,8}|#\d{2,6});", re.I)
_FILE = re.compile(
    r"\S*\.(?:jpe?g|png|gif|webp|bmp|tiff?|mp4|mov|avi|mkv|webm|svg|heic)$"
    r"|(?:img|dsc[fn]?|dscn|pict?|image|photo|video|mvi|screenshot|untitled|vid)[\s_-]*\d*[\s_-]*\d*$",
    re.I,
)
# UTF-8 read as Latin-1 or Windows-1252: a capital A with tilde or circumflex, or the "a-circumflex euro" of quotes
_MOJIBAKE = re.compile(r"[ÃÂ][\u0080-\u00bf‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]|â€|Ð[\u0080-\u00bf]|�")
# Titles of stock agencies: "... Stock Photo #1234", "Royalty-Free Images, ...", "image id: 1234567"
_STOCK = re.compile(
    r"\b(?:stock (?:photo(?:graph)?|picture|image|illustration|vector|video|footage|clip)s?|royalty[ -]free"
    r"|(?:image|photo|picture|video) (?:id|no\.?|number|#):? *\d{4,})\b",
    re.I,
)

_ASCII = [chr(code) for code in range(128)]
_BLANKS = "".join(filter(str.isspace, _ASCII)).encode()
_LETTERS_AND_BLANKS = "".join(char for char in _ASCII if char.isspace() or char.isalpha()).encode()
_END = "\xff"  # separates ASCII texts
_PLAIN = [char.lower() if char.isalpha() else "0" if char.isdigit() else " " for char in _ASCII]
_TO_PLAIN = "".join(_PLAIN).encode().ljust(256, _END.encode("latin-1"))


def normalize_caption(caption: str) -> str:
    """Remove case, punctuation and the values of numbers; captions that are then equal count as the same caption."""
    text = unicodedata.normalize("NFKC", caption).casefold()
    return _APART.sub(" ", _DIGITS.sub("0", text)).strip()


def normalize_captions(captions: Sequence[str]) -> list[str]:
    plain = list(filter(str.isascii, captions))
    texts = dict(zip(plain, normalize_ascii(plain), strict=True)) if plain else {}
    return [texts[caption] if caption in texts else normalize_caption(caption) for caption in captions]


def normalize_ascii(captions: Sequence[str]) -> list[str]:
    """`normalize_caption` of captions that are all ASCII, together."""
    text = _END.join(captions).encode("latin-1").translate(_TO_PLAIN).decode("latin-1")
    for run in ("00", "  "):
        while run in text:
            text = text.replace(run, run[0])
    return text.strip(" ").replace(f" {_END}", _END).replace(f"{_END} ", _END).split(_END)


def hash_caption(caption: str) -> int:
    """64 bits that are equal for captions with the same normalized text."""
    return _hash_text(normalize_caption(caption))


def _hash_text(text: str) -> int:
    digest = hashlib.blake2b(text.encode(errors="replace"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def measure_repetition(words: list[str]) -> float:
    """The share of pairs of neighboring words that occurred before: "dog dog dog dog" has 0.67."""
    if len(words) < 2 or len(set(words)) == len(words):
        return 0.0
    return 1 - len(set(pairwise(words))) / (len(words) - 1)


def measure_non_letters(caption: str) -> float:
    """The share of the characters, without blanks, that are not letters of any script nor marks on them."""
    if caption.isascii():
        data = caption.encode()
        count = len(data.translate(None, _BLANKS))
        return len(data.translate(None, _LETTERS_AND_BLANKS)) / count if count else 0.0
    characters = "".join(caption.split())
    non_letters = sum(unicodedata.category(char)[0] not in "LM" for char in characters)
    return non_letters / len(characters) if characters else 0.0


def classify_caption(caption: str) -> tuple[Likeness, str] | None:
    """The kind of non-caption this is (URL, file name, ...) and the span that shows it, or None."""
    text = caption.strip()
    if ("<" in text or "&" in text) and (match := _HTML.search(text)):
        return "html", match[0]
    if match := _FILE.match(text):
        return "file name", match[0]
    if ("." in text[:-1] or "://" in text) and (match := _URL.search(text)):
        return "url", match[0]
    if not text.isascii() and (match := _MOJIBAKE.search(text)):
        return "mojibake", match[0]
    return ("stock title", match[0]) if (match := _STOCK.search(text)) else None


class TextFacts(NamedTuple):
    """The facts of a caption, named like their columns, without the language."""

    caption_hash: int
    words: int
    repeated_words: float
    non_letters: float
    looks_like: Likeness | None
    looks_like_span: str | None
    preamble: str | None


def describe_text(caption: str, normalized: str) -> TextFacts:
    words = normalized.split()
    same_words = caption.isascii() and "_" not in caption  # then the caption itself has these words
    count = len(words) if same_words else len(_WORD.findall(caption))
    repetition, non_letters = measure_repetition(words), measure_non_letters(caption)
    likeness: tuple[Likeness, str] | None = classify_caption(caption)
    defect = find_defect(caption, words, repetition)
    if defect and (likeness is None or defect[0] == "prompt leak"):  # </s> is no HTML
        likeness = defect
    kind, span = (likeness[0], likeness[1][:SPAN]) if likeness else (None, None)
    preamble = find_preamble(caption, words)
    return TextFacts(_hash_text(normalized), count, repetition, non_letters, kind, span, preamble)


def describe_captions(captions: Sequence[str | None]) -> dict[str, list[Any]]:
    """The facts of captions by column, None for a missing caption; the encoder adds the number of tokens."""
    distinct = [caption for caption in dict.fromkeys(captions) if caption is not None]
    columns = (*TextFacts._fields, "language")
    facts: dict[str | None, tuple[Any, ...]] = {None: (None,) * len(columns)}
    for caption, text, code in zip(distinct, normalize_captions(distinct), detect_languages(distinct), strict=True):
        facts[caption] = *describe_text(caption, text), code
    rows = [facts[caption] for caption in captions]
    return {name: [row[index] for row in rows] for index, name in enumerate(columns)}
