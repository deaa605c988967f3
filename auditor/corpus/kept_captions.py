"""A sample with some of its captions only: its .txt and .json rewritten, everything else byte for byte.

The captions of a sample are found as the audit finds them, so that caption number 3 is the same one in both.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from auditor.corpus.captions import captions_of, decode_text, parse_record, record_captions, split_captions
from auditor.corpus.group import caption_files
from auditor.corpus.shard import CorpusOptions
from auditor.errors import AuditorError


class CorpusChangedError(AuditorError):
    """The corpus is not where, or not what, it was when it was audited."""


def keep_captions(members: Mapping[str, Any], kept: Sequence[int], options: CorpusOptions) -> dict[str, Any]:
    """The members of a sample, by extension, with the captions of these numbers only.

    Members are bytes, or what WebDataset has decoded: str for the .txt, a dict for the .json.
    """
    text, record = caption_files([name for name in members if not name.startswith("__")])
    lines = split_captions(_text(members[text], options), options.captions) if text is not None else ()
    fields = _fields(members[record], options) if record is not None else None
    captions = lines or record_captions(fields or {})
    if any(number >= len(captions) for number in kept):
        raise CorpusChangedError(
            f"sample {members.get('__key__', '')} has {len(captions)} captions, fewer than when it was audited"
        )
    wanted = [captions[number] for number in kept]
    changed = dict(members)
    if text is not None and lines:
        changed[text] = _like(members[text], "\n".join(wanted))
    if record is not None and fields is not None:
        changed[record] = _like(members[record], rewritten(fields, wanted))
    return changed


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
