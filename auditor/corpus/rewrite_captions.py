"""Drop or change captions of a sample: rewrite its .txt and .json, and leave all other members byte for byte.

Captions are read as the audit reads them, so caption number 3 is the same in both.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from auditor.corpus.caption_text import decode_text, parse_captions, parse_record
from auditor.corpus.file_names import guess_media_kind
from auditor.corpus.sample import Span
from auditor.corpus.sample_files import TEXT, choose_sample_files, name_source, read_sample_captions
from auditor.corpus.shard import CorpusOptions
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
    names = choose_sample_files(members, options)
    fields = _read_fields(members, names.record, options)
    decode = partial(_decode_member, members, options)
    captions, spans, _, sources = read_sample_captions(names, fields or {}, decode, options)
    if any(number >= len(captions) for number in numbers):
        raise CorpusChangedError(
            f"sample {members.get('__key__', '')} has {len(captions)} captions, fewer than when it was audited"
        )
    kept_captions = [changes.get(number, captions[number]) for number in numbers]
    kept_sources = [sources[number] for number in numbers] if sources else [None] * len(numbers)
    if spans:
        kept_spans = [spans[number] for number in numbers]
        timed = list(zip(kept_captions, kept_spans, kept_sources, strict=True))
        other_fields = drop_caption_fields(fields or {}, options.caption_fields)
        return _build_timed_sample(members, names.record, other_fields, timed)
    originals = [captions[number] for number in numbers]
    whole = len(numbers) == len(captions)
    return place_captions(members, kept_captions, kept_sources, options, originals=originals, whole=whole)


def place_captions(
    members: Fields,
    captions: Sequence[str],
    sources: Sequence[str | None],
    options: CorpusOptions,
    *,
    originals: Sequence[str] | None = None,
    whole: bool = False,
) -> dict[str, Any]:
    """Return the members of a sample with these captions, each in the file or field of its source.

    The file or field of a source without captions becomes empty. If the corpus has one source, or the .json lists
    `caption_sources`, all captions are in one place. `originals` are the captions before they were changed; a `whole`
    sample keeps all of its captions.
    """
    record_name = choose_sample_files(members, options).record
    fields = _read_fields(members, record_name, options)
    if "caption_sources" in (fields or {}):  # of an export, which is read without them
        options = replace(options, caption_fields=())
    names = choose_sample_files(members, options)
    is_one_place = not any(sources) or "caption_sources" in (fields or {})
    listed = [None] * len(captions) if is_one_place else sources
    by_source, original_by_source = (_group_by_source(part, listed) for part in (captions, originals or captions))
    texts = {source: f"{source}.{TEXT}" for source in by_source if source not in (None, TEXT, *options.caption_fields)}
    is_shared = names.texts.get(TEXT) in texts.values()  # a single alt.txt holds captions of the source txt
    texts.update({**names.texts, TEXT: TEXT} if is_shared else names.texts)
    changed = dict(members)
    for source, name in texts.items():
        if source in by_source or _decode_member(members, options, name).strip():
            lines = by_source.get(None if is_one_place else source, [])
            changed[name] = _encode_like(members.get(name, b""), "\n".join(lines))
    named = [name for name in options.caption_fields if name_source(name) not in names.texts]
    field_captions = {name: by_source.get(None if is_one_place else name, []) for name in named}
    if record_name is None and any(field_captions.values()):
        return {**changed, "json": _encode_like(b"", fill_fields({}, field_captions))}
    if record_name is None or fields is None:
        return changed
    if options.caption_fields:
        record = fill_fields(fields, field_captions)
    else:
        plain = None if is_one_place else TEXT
        plain_originals, plain_captions = original_by_source.get(plain, []), by_source.get(plain, [])
        record = rewrite_record(fields, plain_originals, plain_captions, whole=whole)
    if is_one_place and "caption_sources" in fields:
        record["caption_sources"] = list(sources)
    return changed if record == fields else {**changed, record_name: _encode_like(members[record_name], record)}


def _group_by_source(texts: Sequence[str], sources: Sequence[str | None]) -> dict[str | None, list[str]]:
    groups: dict[str | None, list[str]] = {}
    for text, source in zip(texts, sources, strict=True):
        groups.setdefault(source, []).append(text)
    return groups


def fill_fields(fields: Fields, kept_captions: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return a record with these captions in its named fields: a list if the field is one, else the text."""
    filled = {
        name: list(texts) if isinstance(fields.get(name), list) or len(texts) > 1 else "".join(texts)
        for name, texts in kept_captions.items()
        if name in fields or texts
    }
    return {**fields, **filled}


def _build_timed_sample(
    members: Fields, record: str | None, fields: Fields, captions: Sequence[tuple[str, Span | None, str | None]]
) -> dict[str, Any]:
    """Return the members of a video with timed captions, in the form of an export.

    Each caption has a span, or None, and a source.
    """
    segments, whole = [], []
    for text, span, _ in captions:
        if span is None:
            whole.append(text)
        else:
            segments.append({"start": span.start, "end": span.end, "caption": text})
    media = {
        name: data for name, data in members.items() if name.startswith("__") or guess_media_kind(name) is not None
    }
    form = b"" if any(isinstance(data, bytes) for data in media.values()) else {}
    sources = [source for _, span, source in sorted(captions, key=lambda caption: caption[1] is not None)]
    written = build_timed_record(fields, whole, segments) | build_source_field(sources)
    return {**media, record or "json": _encode_like(members[record] if record is not None else form, written)}


def drop_caption_fields(fields: Fields, caption_fields: Sequence[str]) -> dict[str, Any]:
    """Return a record without the captions of its sources, which are written to one place."""
    return {name: value for name, value in fields.items() if name not in (*caption_fields, "caption_sources")}


def build_source_field(sources: Sequence[str | None]) -> dict[str, Any]:
    """Return the field of a .json that names the source of each caption; none if the corpus has one source."""
    return {"caption_sources": sources} if any(sources) else {}


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
            first = kept_captions[0] if kept_captions else ""
            changed[name] = new_texts.get(texts[0], fields[name] if whole else first)
    return changed


def _read_fields(members: Fields, name: str | None, options: CorpusOptions) -> dict[str, Any] | None:
    if name is not None and isinstance(members[name], Mapping):
        return dict(members[name])
    return parse_record(_decode_member(members, options, name))


def _decode_member(members: Fields, options: CorpusOptions, name: str | None) -> str:
    member = members.get(name, "") if name is not None else ""
    return member if isinstance(member, str) else decode_text(member, options.encoding)


def _encode_like(member: Any, value: str | dict[str, Any]) -> Any:
    if isinstance(member, Mapping):
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if isinstance(member, str) else text.encode()
