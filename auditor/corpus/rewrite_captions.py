"""Drop or change captions of a sample: rewrite its .txt and .json, and leave all other members byte for byte.

Captions are read as the audit reads them, so caption number 3 is the same in both.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from auditor.corpus.caption_text import decode_text, parse_captions, parse_record, split_captions
from auditor.corpus.file_names import guess_media_kind
from auditor.corpus.sample import Span
from auditor.corpus.sample_files import choose_sample_files
from auditor.corpus.shard import CorpusOptions
from auditor.corpus.timed_captions import combine_captions, parse_subtitles
from auditor.errors import AuditorError

Fields = Mapping[str, Any]
NO_CHANGES: Mapping[int, str] = {}
# of a .json: replaced by the kept captions
TIMED_FIELDS = ("caption", "captions", "segments", "subtitles", "clips", "clip_subtitles")


class CorpusChangedError(AuditorError):
    """The corpus has moved or changed since it was audited."""


def keep_captions(
    members: Fields, numbers: Sequence[int], options: CorpusOptions, changes: Mapping[int, str] = NO_CHANGES
) -> dict[str, Any]:
    """Return the members of a sample by extension, with only the captions that have these numbers.

    Members are bytes, or decoded by WebDataset: str for the .txt, a dict for the .json. `changes` are the new texts of
    captions by number.
    """
    _, text, record, subtitles = choose_sample_files(name for name in members if not name.startswith("__"))
    lines = split_captions(_decode_member(members, text, options), options.captions)
    cues = parse_subtitles(_decode_member(members, subtitles, options))
    if record is not None and isinstance(members[record], Mapping):
        fields: dict[str, Any] | None = dict(members[record])
    else:
        fields = parse_record(_decode_member(members, record, options))
    captions, spans, _ = combine_captions(lines, cues, fields or {})
    if any(number >= len(captions) for number in numbers):
        raise CorpusChangedError(
            f"sample {members.get('__key__', '')} has {len(captions)} captions, fewer than when it was audited"
        )
    kept_captions = [changes.get(number, captions[number]) for number in numbers]
    if spans:
        kept_spans = [spans[number] for number in numbers]
        return _build_timed_sample(members, record, fields or {}, zip(kept_captions, kept_spans, strict=True))
    changed = dict(members)
    if text is not None and lines:
        changed[text] = _encode_like(members[text], "\n".join(kept_captions))
    if record is not None and fields is not None:
        originals, whole = [captions[number] for number in numbers], len(numbers) == len(captions)
        written = rewrite_record(fields, originals, kept_captions, whole=whole)
        changed[record] = _encode_like(members[record], written) if written != fields else members[record]
    return changed


def _build_timed_sample(
    members: Fields, record: str | None, fields: Fields, captions: Iterable[tuple[str, Span | None]]
) -> dict[str, Any]:
    """Return the members of a video with timed captions, in the form of an export."""
    segments, whole = [], []
    for text, span in captions:
        if span is None:
            whole.append(text)
        else:
            segments.append({"start": span.start, "end": span.end, "caption": text})
    kept = {name: data for name, data in members.items() if name.startswith("__") or guess_media_kind(name) is not None}
    form = b"" if any(isinstance(data, bytes) for data in kept.values()) else {}
    written = build_timed_record(fields, whole, segments)
    return {**kept, record or "json": _encode_like(members[record] if record is not None else form, written)}


def build_timed_record(fields: Fields, whole: Sequence[str], segments: Sequence[Fields]) -> dict[str, Any]:
    """Return a record with only these captions: of the whole video, and `segments` with spans."""
    other = {name: value for name, value in fields.items() if name not in TIMED_FIELDS}
    if isinstance(described := other.get("yt_meta_dict"), dict):
        other["yt_meta_dict"] = {name: value for name, value in described.items() if name != "subtitles"}
    return {**other, "captions": whole, "segments": segments}


def rewrite_record(
    fields: Fields, originals: Sequence[str], kept_captions: Sequence[str], *, whole: bool
) -> dict[str, Any]:
    """Return a record whose `captions` and `caption`, if it has them, hold the kept captions; other fields stay.

    `originals` are the kept captions as they were. In a `whole` sample, which keeps all, other captions stay as well.
    """
    changed = dict(fields)
    new_texts = dict(zip(originals, kept_captions, strict=True))
    for name in ("captions", "caption"):
        texts = parse_captions(fields.get(name))
        if name in fields and (name == "captions" or isinstance(fields[name], list)):
            replaced = [new_texts.get(text, text) for text in texts]
            changed[name] = replaced if whole and list(texts) != list(originals) else list(kept_captions)
        elif texts and new_texts.get(texts[0]) != texts[0]:
            changed[name] = new_texts.get(texts[0], fields[name] if whole else kept_captions[0])
    return changed


def _decode_member(members: Fields, name: str | None, options: CorpusOptions) -> str:
    member = members[name] if name is not None else ""
    return member if isinstance(member, str) else decode_text(member, options.encoding)


def _encode_like(member: Any, value: str | dict[str, Any]) -> Any:
    if isinstance(member, Mapping):
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if isinstance(member, str) else text.encode()
