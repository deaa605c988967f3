"""Build samples from the files of a key: choose the medium and the caption files, and report defects.

Tars and folders share this code. Of several media, a plain extension (`jpg`) is preferred to a compound one
(`seg.png`), and a video to an image, because an image beside a video is its poster.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from auditor.corpus.caption_text import (
    MAX_CAPTION_BYTES,
    decode_text,
    dump_carried_fields,
    find_legacy_encoding,
    parse_record,
    parse_uid,
    read_record_captions,
    replace_unsafe,
    split_captions,
)
from auditor.corpus.file_names import SUBTITLES, escape_name, guess_media_kind, split_key, unescape_name
from auditor.corpus.sample import Media, Problem, Sample
from auditor.corpus.shard import CorpusOptions
from auditor.corpus.timed_captions import combine_captions, parse_subtitles, read_record_spans, read_segment_uids


@dataclass(frozen=True, slots=True)
class SampleFile:
    """One file of a sample: a member of a tar or a file of a folder."""

    name: str
    path: str
    offset: int
    size: int
    defect: str | None = None  # why its bytes cannot be read


SampleFiles = Mapping[str, SampleFile]  # by extension


def group_sample_files(parts: Iterable[SampleFile]) -> dict[tuple[str, int], dict[str, SampleFile]]:
    """Group files by (key, occurrence), then by extension, in the order of the first file of each group.

    A file that repeats both key and extension belongs to a further occurrence of the key.
    """
    groups: dict[tuple[str, int], dict[str, SampleFile]] = {}
    counts: dict[tuple[str, str], int] = {}
    for part in parts:
        split = split_key(part.name)
        if split is None:
            continue
        occurrence = counts.get(split, 0)
        counts[split] = occurrence + 1
        groups.setdefault((split[0], occurrence), {})[split[1]] = part
    return groups


def build_sample(
    shard: str,
    key: str,
    occurrence: int,
    parts: SampleFiles,
    read: Callable[[SampleFile], bytes],
    options: CorpusOptions,
) -> Sample:
    """Build the sample of one group of files; `read` returns the bytes of a sidecar."""
    names = choose_sample_files(parts)
    media, text, record, subtitles = (parts[name] if name is not None else None for name in names)
    sidecars = [part for part in (text, record, subtitles) if part is not None]
    texts = {part: read(part) for part in sidecars if not _find_defect(part)}
    encodings = {part: find_legacy_encoding(data, options.encoding) for part, data in texts.items()}
    whole: tuple[str, ...] = ()
    cues = parse_subtitles(decode_text(texts[subtitles], options.encoding)) if subtitles in texts else []
    uid: str | None = None
    uids: tuple[str | None, ...] = ()
    fields: dict[str, Any] = {}
    if text in texts:
        whole = split_captions(decode_text(texts[text], options.encoding), options.captions)
    if record in texts and (record_fields := parse_record(texts[record], options.encoding)) is not None:
        fields = record_fields
        whole = whole or read_record_captions(fields)
        if not cues:
            whole, cues = read_record_spans(fields, whole)
            uids = read_segment_uids(fields, len(whole))
        uid = parse_uid(fields.get("uid"))
    captions, spans = combine_captions(whole, cues)
    problem = _find_problem(parts, media, next(iter(sidecars), None), captions)
    if occurrence:
        problem = Problem("duplicate_key", f"key {escape_name(key)} was seen {occurrence} times before in this shard")
    return Sample(
        shard,
        escape_name(key),
        captions,
        _build_media(media),
        uid,
        occurrence,
        problem,
        spans,
        encoding=next(filter(None, encodings.values()), None),
        carried=(dump_carried_fields(fields, options.carry),),
        uids=uids,
    )


def describe_text_problems(samples: Sequence[Sample]) -> list[str]:
    """Describe names and captions that are not in UTF-8, for the list of a shard's problems."""
    return describe_escaped_keys([sample.key for sample in samples]) + describe_legacy_encodings(samples)


def describe_escaped_keys(keys: Iterable[str]) -> list[str]:
    changed = [key for key in keys if unescape_name(key) != key]
    if not changed:
        return []
    return [f"{len(changed):,} keys contain bytes that are not text and are written with escapes, such as {changed[0]}"]


def describe_legacy_encodings(samples: Iterable[Sample]) -> list[str]:
    keys_by_encoding: dict[str, list[str]] = {}
    for sample in samples:
        if sample.encoding is not None:
            keys_by_encoding.setdefault(sample.encoding, []).append(sample.key)
    return [
        f"captions of {len(keys):,} samples are not in UTF-8 and were read as {encoding}, such as those of {keys[0]}; "
        "set another encoding with --encoding"
        for encoding, keys in keys_by_encoding.items()
    ]


def choose_medium(extensions: Iterable[str]) -> str | None:
    """Return the extension of a sample's medium."""
    kinds = {name: kind for name in extensions if (kind := guess_media_kind(name)) is not None}
    return min(kinds, key=lambda name: ("." in name, kinds[name] == "image"), default=None)


def choose_sample_files(extensions: Iterable[str]) -> tuple[str | None, str | None, str | None, str | None]:
    """Return the extensions of the medium, the .txt, the .json and the subtitles; None if there is no such file."""
    names = list(extensions)
    medium = choose_medium(names)
    text, record, *subtitles = (_choose_sidecar(names, form, medium) for form in ("txt", "json", *SUBTITLES))
    return medium, text, record, next(filter(None, subtitles), None)


def _build_media(part: SampleFile | None) -> Media | None:
    if part is None or (kind := guess_media_kind(part.name)) is None:
        return None
    return Media(escape_name(part.path), part.offset, part.size, kind)


def _choose_sidecar(names: list[str], last: str, medium: str | None) -> str | None:
    """Choose a sidecar: with a plain extension, else named like the medium (`a.8.png`, `a.8.txt`), else any."""
    candidates = [name for name in names if name.lower() == last or name.lower().endswith(f".{last}")]
    stem = medium.rpartition(".")[0] if medium is not None else ""
    ranks = {name: (name.lower() != last, name.rpartition(".")[0] != stem) for name in candidates}
    return min(ranks, key=lambda name: ranks[name], default=None)


def _find_defect(part: SampleFile) -> str | None:
    if part.defect is None and part.size > MAX_CAPTION_BYTES:
        return f"{part.name} has {part.size} bytes: too large for a caption"
    return part.defect


def _list_extensions(parts: SampleFiles) -> str:
    return ", ".join(f".{extension}" for extension in parts) or "files that are gone"


def _find_problem(
    parts: SampleFiles, media: SampleFile | None, sidecar: SampleFile | None, captions: tuple[str, ...]
) -> Problem | None:
    """Return the first defect that prevents scoring, or None."""
    if media is None:
        return Problem("missing_media", escape_name(f"no image or video, only {_list_extensions(parts)}"))
    if media.defect is not None:
        return Problem("corrupt", replace_unsafe(media.defect))
    if media.size == 0:
        return Problem("corrupt", escape_name(f"{media.name} is empty"))
    if sidecar is not None and (defect := _find_defect(sidecar)) is not None:
        return Problem("corrupt", replace_unsafe(defect))
    if not captions:
        without = f"no caption in {sidecar.name}" if sidecar is not None else "no .txt and no .json"
        return Problem("missing_caption", escape_name(without))
    return None
