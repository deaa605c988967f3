"""From members to samples: which of the files of one key is the medium, which holds the captions, and what is wrong.

Used for tars and folders alike. Of several media the plain extension (`jpg`) comes before the compound (`seg.png`) and
video before image, because a picture beside a video is its poster.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from auditor.corpus.caption_text import (
    TOO_LONG,
    carried_json,
    decode_text,
    other_encoding,
    parse_record,
    record_captions,
    record_uid,
    safe_text,
    split_captions,
)
from auditor.corpus.file_names import SUBTITLES, as_text, from_text, kind_of, split_key
from auditor.corpus.sample import Media, Problem, Sample
from auditor.corpus.shard import CorpusOptions
from auditor.corpus.timed_captions import joined, record_timed, segment_uids, subtitles


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a sample: a member of a tar or a file of a folder."""

    name: str
    path: str
    offset: int
    size: int
    defect: str | None = None  # why its bytes cannot be had


Parts = Mapping[str, Part]  # by extension


def group_parts(parts: Iterable[Part]) -> dict[tuple[str, int], dict[str, Part]]:
    """(key, occurrence) -> its files by extension, in the order of their first file.

    A file whose key and extension were both seen before starts, or belongs to, a further occurrence of the key.
    """
    groups: dict[tuple[str, int], dict[str, Part]] = {}
    seen: dict[tuple[str, str], int] = {}
    for part in parts:
        split = split_key(part.name)
        if split is None:
            continue
        occurrence = seen.get(split, 0)
        seen[split] = occurrence + 1
        groups.setdefault((split[0], occurrence), {})[split[1]] = part
    return groups


def build_sample(
    shard: str, key: str, occurrence: int, parts: Parts, read: Callable[[Part], bytes], options: CorpusOptions
) -> Sample:
    """The sample of one group; `read` gives the bytes of a sidecar."""
    medium, (text_name, record_name) = medium_file(parts), caption_files(parts)
    media = parts[medium] if medium is not None else None
    text = parts[text_name] if text_name is not None else None
    record = parts[record_name] if record_name is not None else None
    timed = [parts[name] for name in subtitle_files(parts)]
    texts = {part: read(part) for part in (text, record, *timed) if part is not None and not _defect(part)}
    encodings = {part: other_encoding(data, options.encoding) for part, data in texts.items()}
    whole: tuple[str, ...] = ()
    cues = [cue for part in timed if part in texts for cue in subtitles(decode_text(texts[part], options.encoding))]
    uid: str | None = None
    uids: tuple[str | None, ...] = ()
    fields: dict[str, Any] = {}
    if text in texts:
        whole = split_captions(decode_text(texts[text], options.encoding), options.captions)
    if record in texts and (found := parse_record(texts[record], options.encoding)) is not None:
        fields = found
        whole = whole or record_captions(fields)
        if not cues:
            whole, cues = record_timed(fields, whole)
            uids = segment_uids(fields, len(whole))
        uid = record_uid(fields)
    captions, spans = joined(whole, cues)
    problem = _problem(parts, media, text or record or next(iter(timed), None), captions)
    if occurrence:
        problem = Problem("duplicate_key", f"key {as_text(key)} was seen {occurrence} times before in this shard")
    return Sample(
        shard,
        as_text(key),
        captions,
        _located(media),
        uid,
        occurrence,
        problem,
        spans,
        encoding=next(filter(None, encodings.values()), None),
        carried=(carried_json(fields, options.carry),),
        uids=uids,
    )


def sample_problems(samples: Sequence[Sample]) -> list[str]:
    """What was done about names and captions that are not in UTF-8, for the list of a shard's problems."""
    return changed_keys([sample.key for sample in samples]) + encoding_problems(samples)


def changed_keys(keys: Iterable[str]) -> list[str]:
    changed = [key for key in keys if from_text(key) != key]
    if not changed:
        return []
    return [f"{len(changed):,} keys hold bytes that are no text, and are written with escapes, such as {changed[0]}"]


def encoding_problems(samples: Iterable[Sample]) -> list[str]:
    found: dict[str, list[str]] = {}
    for sample in samples:
        if sample.encoding is not None:
            found.setdefault(sample.encoding, []).append(sample.key)
    return [
        f"captions of {len(keys):,} samples are not in UTF-8 and were read as {encoding}, such as those of {keys[0]}; "
        "--encoding says otherwise"
        for encoding, keys in found.items()
    ]


def medium_file(extensions: Iterable[str]) -> str | None:
    """Which of the files of a sample is its medium."""
    ranks = {name: ("." in name, kind == "image") for name in extensions if (kind := kind_of(name)) is not None}
    return min(ranks, key=lambda name: ranks[name], default=None)


def caption_files(extensions: Iterable[str]) -> tuple[str | None, str | None]:
    """Which of the files of a sample are its .txt and its .json."""
    names = list(extensions)
    medium = medium_file(names)
    return _sidecar(names, "txt", medium), _sidecar(names, "json", medium)


def subtitle_files(extensions: Iterable[str]) -> list[str]:
    """Which of the files of a sample are its subtitles: one, or none."""
    names = list(extensions)
    medium = medium_file(names)
    return [name for form in SUBTITLES if (name := _sidecar(names, form, medium)) is not None][:1]


def _located(part: Part | None) -> Media | None:
    kind = kind_of(part.name) if part is not None else None
    return Media(as_text(part.path), part.offset, part.size, kind) if part is not None and kind is not None else None


def _sidecar(names: list[str], last: str, medium: str | None) -> str | None:
    """The .txt or .json: with nothing before it, else named like the medium (`a.8.png`, `a.8.txt`), else any."""
    found = [name for name in names if name.lower() == last or name.lower().endswith(f".{last}")]
    stem = medium.rpartition(".")[0] if medium is not None else ""
    ranks = {name: (name.lower() != last, name.rpartition(".")[0] != stem) for name in found}
    return min(ranks, key=lambda name: ranks[name], default=None)


def _defect(part: Part) -> str | None:
    if part.defect is None and part.size > TOO_LONG:
        return f"{part.name} has {part.size} bytes, which is no caption"
    return part.defect


def _list(parts: Parts) -> str:
    return ", ".join(f".{extension}" for extension in parts) or "files that are gone"


def _problem(parts: Parts, media: Part | None, sidecar: Part | None, captions: tuple[str, ...]) -> Problem | None:
    """The first thing that keeps the sample from being scored."""
    if media is None:
        return Problem("missing_media", as_text(f"no image or video, only {_list(parts)}"))
    if media.defect is not None:
        return Problem("corrupt", safe_text(media.defect))
    if media.size == 0:
        return Problem("corrupt", as_text(f"{media.name} is empty"))
    if sidecar is not None and (defect := _defect(sidecar)) is not None:
        return Problem("corrupt", safe_text(defect))
    if not captions:
        without = f"no caption in {sidecar.name}" if sidecar is not None else "no .txt and no .json"
        return Problem("missing_caption", as_text(without))
    return None
