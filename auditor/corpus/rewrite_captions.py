"""Drop captions of a sample: rewrite its .txt and .json, and leave all other members byte for byte.

Captions are read as the audit reads them, so caption number 3 is the same in both. Timed captions are written as
`segments` of the .json, in place of subtitles and of a .txt.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from auditor.corpus.caption_text import decode_text, parse_captions, parse_record, read_record_captions, split_captions
from auditor.corpus.file_names import guess_media_kind
from auditor.corpus.sample import Span
from auditor.corpus.sample_files import choose_sample_files
from auditor.corpus.shard import CorpusOptions
from auditor.corpus.timed_captions import combine_captions, parse_subtitles, read_record_spans
from auditor.errors import AuditorError

# of a .json: replaced by the kept captions
TIMED_FIELDS = ("caption", "captions", "segments", "subtitles", "clips", "clip_subtitles")


class CorpusChangedError(AuditorError):
    """The corpus has moved or changed since it was audited."""


def keep_captions(members: Mapping[str, Any], numbers: Sequence[int], options: CorpusOptions) -> dict[str, Any]:
    """Return the members of a sample by extension, with only the captions that have these numbers.

    Members are bytes, or decoded by WebDataset: str for the .txt, a dict for the .json.
    """
    names = [name for name in members if not name.startswith("__")]
    _, text, record, subtitles = choose_sample_files(names)
    lines = split_captions(_decode_member(members[text], options), options.captions) if text is not None else ()
    fields = _parse_member(members[record], options) if record is not None else None
    whole = lines or read_record_captions(fields or {})
    cues = parse_subtitles(_decode_member(members[subtitles], options)) if subtitles is not None else []
    if not cues and fields is not None:
        whole, cues = read_record_spans(fields, whole)
    captions, spans = combine_captions(whole, cues)
    if any(number >= len(captions) for number in numbers):
        raise CorpusChangedError(
            f"sample {members.get('__key__', '')} has {len(captions)} captions, fewer than when it was audited"
        )
    kept_captions = [captions[number] for number in numbers]
    if spans:
        timed = [(captions[number], spans[number]) for number in numbers]
        return _build_timed_sample(members, record, fields or {}, timed)
    changed = dict(members)
    if text is not None and lines:
        changed[text] = _encode_like(members[text], "\n".join(kept_captions))
    if record is not None and fields is not None:
        changed[record] = _encode_like(members[record], rewrite_record(fields, kept_captions))
    return changed


def _build_timed_sample(
    members: Mapping[str, Any],
    record: str | None,
    fields: Mapping[str, Any],
    captions: Sequence[tuple[str, Span | None]],
) -> dict[str, Any]:
    """Return the members of a video with timed captions, in the form of an export."""
    segments = [{"start": span.start, "end": span.end, "caption": text} for text, span in captions if span is not None]
    whole = [text for text, span in captions if span is None]
    names = [name for name in members if name.startswith("__") or guess_media_kind(name) is not None]
    written = {**drop_caption_fields(fields), "captions": whole, "segments": segments}
    decoded = not any(isinstance(members[name], bytes) for name in names)
    plain = json.dumps(written, ensure_ascii=False).encode()
    form = _encode_like(members[record], written) if record is not None else written if decoded else plain
    return {**{name: members[name] for name in names}, record or "json": form}


def drop_caption_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record without the fields that its kept captions replace."""
    other = {name: value for name, value in fields.items() if name not in TIMED_FIELDS}
    if isinstance(described := other.get("yt_meta_dict"), dict):
        other["yt_meta_dict"] = {name: value for name, value in described.items() if name != "subtitles"}
    return other


def rewrite_record(fields: Mapping[str, Any], kept_captions: Sequence[str]) -> dict[str, Any]:
    """Return a record whose `captions` and `caption`, if it has them, hold the kept captions; other fields stay."""
    changed = dict(fields)
    if "captions" in fields:
        changed["captions"] = list(kept_captions)
    if isinstance(fields.get("caption"), list):
        changed["caption"] = list(kept_captions)
    elif "caption" in fields and not set(parse_captions(fields["caption"])) <= set(kept_captions):
        changed["caption"] = kept_captions[0]
    return changed


def _decode_member(member: Any, options: CorpusOptions) -> str:
    return member if isinstance(member, str) else decode_text(member, options.encoding)


def _parse_member(member: Any, options: CorpusOptions) -> dict[str, Any] | None:
    return dict(member) if isinstance(member, Mapping) else parse_record(_decode_member(member, options))


def _encode_like(member: Any, value: str | dict[str, Any]) -> Any:
    """Encode the value in the form of the member."""
    if isinstance(member, Mapping):
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if isinstance(member, str) else text.encode()
