"""Split a caption into parts that a text encoder can read: at sentences, then clauses, then words, then characters.

Pure functions of the text; the caller counts tokens. A caption is read only as far as its parts reach, and a sentence
in windows of bounded size, so that a caption of any size takes a bounded time.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass

PART_RULES = 1  # raise it if captions are split in another way
MOST_PARTS = 512  # per caption; the rest is not encoded
CHARACTERS_PER_TOKEN = 16  # upper limit; a window of more characters per token of the context is cut unread
LONGEST_WORD = 100  # characters without a space or a mark, after which a sentence is cut
CountTokens = Callable[[str], int]  # with start and end tokens

_WIDE_ENDS = "。！？｡．।॥؟۔။።։។"  # ends of sentences that need no space after them
_WIDE_COMMAS = "，、；：،؛"
_MARKS = frozenset(".!?…\n" + _WIDE_ENDS)
_CLOSERS = "\"'”’»)\\]」』）"
_BOUNDARY = re.compile(
    rf"(?<![.!?…])(?P<mark>[.!?…]++)(?P<closers>[{_CLOSERS}]*+)(?=\s)"
    rf"|[{_WIDE_ENDS}]++[{_CLOSERS}]*+"
    r"|\n\s*"
    rf"|(?P<run>[^\s{_WIDE_ENDS}{_WIDE_COMMAS}]{{{LONGEST_WORD}}})"
)
_CLAUSE = re.compile(rf"[,;:—–)](?=\s)|[{_WIDE_COMMAS}]")
_SPACE = re.compile(r"\s+")
_LAST_WORD = re.compile(r"\S+$")
# Words that a period abbreviates. Those of the second list are abbreviations only before a number.
_ABBREVIATION = re.compile(
    r"mrs?|ms|dr|prof|st|[js]r|vs|mt|ft|rev|hon|gen|col|sgt|lt|capt|gov|sen|rep|approx|dept|inc|ltd|corp?|ave|blvd|feat"
    r"|eds?|al|cf|bros|hr|frau|str|bzw|ca|usw|mme|mlle|sig|sra|srta|\S*\.\S*|[a-z]"
)
_BEFORE_NUMBER = re.compile(r"nos?|nr|figs?|vol|pp?|ch|sec|art|op|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec")


@dataclass(frozen=True, slots=True)
class CaptionParts:
    """The end of each part in the caption; a part begins where the one before it ends."""

    ends: tuple[int, ...]
    whole: bool  # False: there is more text after the last part

    def texts(self, caption: str) -> list[str]:
        starts = (0, *self.ends[:-1])
        return [caption[start:end].strip() for start, end in zip(starts, self.ends, strict=True)]


def may_have_sentences(caption: str) -> bool:
    """Whether a caption has the mark of a sentence before its last character; fast, and true for too many."""
    return not _MARKS.isdisjoint(caption.rstrip()[:-1])


def split_caption(caption: str, count_tokens: CountTokens, context: int) -> CaptionParts:
    """Split at sentences; a sentence with more tokens than the context is split further, into parts of like size."""
    length = len(caption.rstrip())
    ends: list[int] = []
    start = 0
    for sentence_end in iterate_sentence_ends(caption, context * CHARACTERS_PER_TOKEN):
        for end in split_sentence(caption, start, sentence_end, count_tokens, context):
            if len(ends) == MOST_PARTS:
                return CaptionParts(tuple(ends), False)
            ends.append(end)
        start = sentence_end
        if start >= length:
            break
    return CaptionParts((*ends[:-1], len(caption)) if ends else (len(caption),), True)


def iterate_sentence_ends(caption: str, window: int = 1 << 62) -> Iterator[int]:
    """Yield the ends of the sentences, the last one at the end of the caption; none is longer than the window."""
    start = 0
    for match in _BOUNDARY.finditer(caption):
        end = find_character_end(caption, match.end()) if match["run"] else match.end()
        while end - start > window:
            start = cut_window(caption, start, window)
            yield start
        if end > start and (match["run"] or is_sentence(caption, start, match)):
            yield end
            start = end
    while len(caption) - start > window:
        start = cut_window(caption, start, window)
        yield start
    if caption[start:].strip() or not start:
        yield len(caption)


def is_sentence(caption: str, start: int, match: re.Match[str]) -> bool:
    """Whether the text from `start` ends here: not at an abbreviation, a number of a list, or a lone word."""
    if not any(map(str.isalnum, caption[match.end() : match.end() + LONGEST_WORD])):
        return False  # a quotation mark, for example
    if match.end() - start > LONGEST_WORD:
        return match["mark"] is None or not continues_sentence(caption, match)
    text = caption[start : match.end()].strip()
    if not text or (match["mark"] is None and "\n" not in match[0]):
        return bool(text)
    if not any(map(str.isalpha, text)) or (text.isascii() and len(text.split(None, 1)) == 1):
        return False
    return match["mark"] is None or not continues_sentence(caption, match)


def continues_sentence(caption: str, match: re.Match[str]) -> bool:
    """Whether the marks at the end of a word do not end its sentence."""
    following = caption[match.end() : match.end() + 8].lstrip()[:1]
    if match["mark"] != "." or match["closers"]:
        return following.islower() and (len(match["mark"]) > 1 or match["closers"] != "")
    word_match = _LAST_WORD.search(caption[max(0, match.start() - 24) : match.start()])
    word = word_match[0].lstrip("(\"'“‘").lower() if word_match else ""
    if _BEFORE_NUMBER.fullmatch(word):
        return following.isdigit()
    return following.islower() if word == "etc" else _ABBREVIATION.fullmatch(word) is not None


def cut_window(caption: str, start: int, window: int) -> int:
    return find_cut(caption, start, start + window, start + window - window // 8)


def split_sentence(caption: str, start: int, end: int, count_tokens: CountTokens, context: int) -> Iterator[int]:
    """Yield the ends of the parts of caption[start:end], which have at most `context` tokens."""
    count = count_tokens(caption[start:end].strip())
    if count <= context or end - start < 2:
        yield end
        return
    parts = max(2, -(-(count - 2) // max(1, context - 2)))
    target = start + (end - start) * (parts // 2) // parts
    cut = find_cut(caption, start, end, target)
    yield from split_sentence(caption, start, cut, count_tokens, context)
    yield from split_sentence(caption, cut, end, count_tokens, context)


def find_cut(caption: str, start: int, end: int, target: int) -> int:
    """The best place near `target` at which caption[start:end] can be cut: after a clause, a word or a character."""
    reach = (end - start) // 4
    middle = range(max(start + 1, target - reach), min(end, target + reach + 1))
    for pattern in (_CLAUSE, _SPACE):
        places = [match.end() for match in pattern.finditer(caption, middle.start, middle.stop)]
        inside = [place for place in places if caption[start:place].strip() and caption[place:end].strip()]
        if inside:
            return min(inside, key=lambda place: abs(place - target))
    return min(find_character_end(caption, max(target, start + 1)), end - 1) if end - start > 1 else end


def find_character_end(caption: str, place: int) -> int:
    """The next place from `place` on that is not inside a character: before a mark, a joiner or what is joined."""
    for _ in range(LONGEST_WORD):
        if place >= len(caption) or not (is_joined(caption[place]) or caption[place - 1] == "\u200d"):
            break
        place += 1
    return place


def is_joined(character: str) -> bool:
    """Whether a character belongs to the one before it: accents, vowel signs, joiners, skin tones."""
    return (
        unicodedata.category(character)[0] == "M" or character == "\u200d" or "\U0001f3fb" <= character <= "\U0001f3ff"
    )
