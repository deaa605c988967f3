"""Facts of a caption that its text alone tells: length, repetition, what it looks like, its language.

Plain functions over one string, a few microseconds each; `facts_by_column` takes many captions and finds their
languages together. Most captions are ASCII, and for those bytes take the place of regular expressions.
"""

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from auditor.sweep.languages import language, languages

Likeness = Literal["file name", "url", "html", "mojibake"]

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

_ASCII = [chr(code) for code in range(128)]
_BLANKS = "".join(filter(str.isspace, _ASCII)).encode()
_NO_SIGNS = "".join(one for one in _ASCII if one.isspace() or one.isalpha()).encode()
_END = "\xff"  # of an ASCII text among others
_PLAIN = [one.lower() if one.isalpha() else "0" if one.isdigit() else " " for one in _ASCII]
_TO_PLAIN = "".join(_PLAIN).encode().ljust(256, _END.encode("latin-1"))


def normalised(caption: str) -> str:
    """Without case, punctuation and the values of numbers: captions that are equal then are the same caption."""
    text = unicodedata.normalize("NFKC", caption).casefold()
    return _APART.sub(" ", _DIGITS.sub("0", text)).strip()


def normalised_all(captions: Sequence[str]) -> list[str]:
    """`normalised` of each; those in ASCII all at once."""
    plain = list(filter(str.isascii, captions))
    texts = dict(zip(plain, normalised_ascii(plain), strict=True)) if plain else {}
    return [texts[caption] if caption in texts else normalised(caption) for caption in captions]


def normalised_ascii(captions: Sequence[str]) -> list[str]:
    """`normalised` of each of them, if all are ASCII."""
    text = _END.join(captions).encode("latin-1").translate(_TO_PLAIN).decode("latin-1")
    for run in ("00", "  "):
        while run in text:
            text = text.replace(run, run[0])
    return text.strip(" ").replace(f" {_END}", _END).replace(f"{_END} ", _END).split(_END)


def caption_hash(caption: str) -> int:
    """64 bits that equal normalised captions share."""
    return _hash(normalised(caption))


def _hash(text: str) -> int:
    digest = hashlib.blake2b(text.encode(errors="replace"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def word_count(caption: str) -> int:
    return len(_WORD.findall(caption))


def repeated_share(caption: str) -> float:
    """Share of the pairs of neighbouring words that occurred before: "dog dog dog dog" has 0.67."""
    return _repeated(normalised(caption).split())


def _repeated(words: list[str]) -> float:
    if len(words) < 2 or len(set(words)) == len(words):
        return 0.0
    return 1 - len(set(pairwise(words))) / (len(words) - 1)


def non_letter_share(caption: str) -> float:
    """Share of the characters, blanks aside, that are no letters of any script (nor marks on them)."""
    if caption.isascii():
        data = caption.encode()
        seen = len(data.translate(None, _BLANKS))
        return len(data.translate(None, _NO_SIGNS)) / seen if seen else 0.0
    characters = "".join(caption.split())
    return sum(unicodedata.category(one)[0] not in "LM" for one in characters) / len(characters) if characters else 0.0


def looks_like(caption: str) -> Likeness | None:
    """What a caption looks like that is none; None for the usual ones."""
    text = caption.strip()
    if ("<" in text or "&" in text) and _HTML.search(text):
        return "html"
    if _FILE.match(text):
        return "file name"
    if ("." in text[:-1] or "://" in text) and _URL.search(text):
        return "url"
    return "mojibake" if not text.isascii() and _MOJIBAKE.search(text) else None


class TextFacts(NamedTuple):
    """By the names of their columns, but for the language."""

    caption_hash: int
    words: int
    repeated_words: float
    non_letters: float
    looks_like: Likeness | None


def text_facts(caption: str, text: str) -> TextFacts:
    """Of a caption whose normalised text is given."""
    words = text.split()
    same = caption.isascii() and "_" not in caption  # then they are the words of the caption itself
    count = len(words) if same else word_count(caption)
    return TextFacts(_hash(text), count, _repeated(words), non_letter_share(caption), looks_like(caption))


def caption_facts(caption: str) -> dict[str, Any]:
    """By the names of their columns; tokens are the encoder's business."""
    return {**text_facts(caption, normalised(caption))._asdict(), "language": language(caption)}


CAPTION_FACTS = (*TextFacts._fields, "language")


def facts_by_column(captions: Sequence[str | None]) -> dict[str, list[Any]]:
    """`caption_facts` of many: a list for each column, None where there is no caption."""
    distinct = [caption for caption in dict.fromkeys(captions) if caption is not None]
    known: dict[str | None, tuple[Any, ...]] = {None: (None,) * len(CAPTION_FACTS)}
    for caption, text, code in zip(distinct, normalised_all(distinct), languages(distinct), strict=True):
        known[caption] = *text_facts(caption, text), code
    rows = [known[caption] for caption in captions]
    return {name: [row[place] for row in rows] for place, name in enumerate(CAPTION_FACTS)}
