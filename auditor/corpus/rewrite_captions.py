"""A sample with some of its captions only: its .txt and .json rewritten, everything else byte for byte.

The captions of a sample are found as the audit finds them, so that caption number 3 is the same one in both. Timed ones
come as `segments` of the .json, in place of subtitles and of a .txt.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from auditor.corpus.caption_text import captions_of, decode_text, parse_record, record_captions, split_captions
from auditor.corpus.file_names import kind_of
from auditor.corpus.sample import Span
from auditor.corpus.sample_files import caption_files, subtitle_files
from auditor.corpus.shard import CorpusOptions
from auditor.corpus.timed_captions import joined, record_timed, subtitles
from auditor.errors import AuditorError

# of a .json: what the kept captions stand for
TIMED_FIELDS = ("caption", "captions", "segments", "subtitles", "clips", "clip_subtitles")


class CorpusChangedError(AuditorError):
    """The corpus is not where, or not what, it was when it was audited."""


def keep_captions(members: Mapping[str, Any], kept: Sequence[int], options: CorpusOptions) -> dict[str, Any]:
    """The members of a sample, by extension, with the captions of these numbers only.

    Members are bytes, or what WebDataset has decoded: str for the .txt, a dict for the .json.
    """
    names = [name for name in members if not name.startswith("__")]
    text, record = caption_files(names)
    lines = split_captions(_text(members[text], options), options.captions) if text is not None else ()
    fields = _fields(members[record], options) if record is not None else None
    whole = lines or record_captions(fields or {})
    cues = [cue for name in subtitle_files(names) for cue in subtitles(_text(members[name], options))]
    if not cues and fields is not None:
        whole, cues = record_timed(fields, whole)
    captions, spans = joined(whole, cues)
    if any(number >= len(captions) for number in kept):
        raise CorpusChangedError(
            f"sample {members.get('__key__', '')} has {len(captions)} captions, fewer than when it was audited"
        )
    wanted = [captions[number] for number in kept]
    if spans:
        return _timed(members, record, fields or {}, [(captions[number], spans[number]) for number in kept])
    changed = dict(members)
    if text is not None and lines:
        changed[text] = _like(members[text], "\n".join(wanted))
    if record is not None and fields is not None:
        changed[record] = _like(members[record], rewritten(fields, wanted))
    return changed


def _timed(
    members: Mapping[str, Any], record: str | None, fields: Mapping[str, Any], kept: Sequence[tuple[str, Span | None]]
) -> dict[str, Any]:
    """The members of a video with timed captions, in the form that an export gives them."""
    segments = [{"start": span.start, "end": span.end, "caption": text} for text, span in kept if span is not None]
    whole = [text for text, span in kept if span is None]
    names = [name for name in members if name.startswith("__") or kind_of(name) is not None]
    written = {**other_fields(fields), "captions": whole, "segments": segments}
    decoded = not any(isinstance(members[name], bytes) for name in names)
    plain = json.dumps(written, ensure_ascii=False).encode()
    form = _like(members[record], written) if record is not None else written if decoded else plain
    return {**{name: members[name] for name in names}, record or "json": form}


def other_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A record without what its kept captions stand for."""
    other = {name: value for name, value in fields.items() if name not in TIMED_FIELDS}
    if isinstance(described := other.get("yt_meta_dict"), dict):
        other["yt_meta_dict"] = {name: value for name, value in described.items() if name != "subtitles"}
    return other


def rewritten(fields: Mapping[str, Any], wanted: Sequence[str]) -> dict[str, Any]:
    """A record whose `captions` and `caption`, where it has them, are among those wanted; other fields stay."""
    changed = dict(fields)
    if "captions" in fields:
        changed["captions"] = list(wanted)
    if isinstance(fields.get("caption"), list):
        changed["caption"] = list(wanted)
    elif "caption" in fields and not set(captions_of(fields["caption"])) <= set(wanted):
        changed["caption"] = wanted[0]
    return changed


def _text(member: Any, options: CorpusOptions) -> str:
    return member if isinstance(member, str) else decode_text(member, options.encoding)


def _fields(member: Any, options: CorpusOptions) -> dict[str, Any] | None:
    return dict(member) if isinstance(member, Mapping) else parse_record(_text(member, options))


def _like(member: Any, value: str | dict[str, Any]) -> Any:
    """The value in the form the member has."""
    if isinstance(member, Mapping):
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if isinstance(member, str) else text.encode()
