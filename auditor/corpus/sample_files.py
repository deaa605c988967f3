"""Build samples from the files of a key: choose the medium and the caption files, and report defects.

Tars and folders share this code. Of several media, a plain extension (`jpg`) is preferred to a compound one
(`seg.png`), and a video to an image, because an image beside a video is its poster.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from auditor.corpus.caption_text import (
    dump_carried_fields,
    find_encoding,
    parse_record,
    parse_uid,
    replace_unsafe,
    split_captions,
)
from auditor.corpus.file_names import SUBTITLES, escape_name, guess_media_kind, split_key, unescape_name
from auditor.corpus.sample import Media, Problem, Sample
from auditor.corpus.shard import CorpusOptions
from auditor.corpus.timed_captions import combine_captions, parse_subtitles
from auditor.schema import Status


@dataclass(frozen=True, slots=True)
class SampleFile:
    """One file of a sample: a member of a tar or a file of a folder."""

    name: str
    path: str
    offset: int
    size: int
    defect: str | None = None  # why its bytes cannot be read
    status: Status = "corrupt"  # of a sample with this defect


Parts = Mapping[str, SampleFile]  # by extension
Reader = Callable[[SampleFile], bytes]  # of a sidecar


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


def build_sample(shard: str, key: str, occurrence: int, parts: Parts, read: Reader, options: CorpusOptions) -> Sample:
    names = choose_sample_files(parts)
    media, text, record, subtitles = (parts[name] if name is not None else None for name in names)
    sidecars = [part for part in (text, record, subtitles) if part is not None]
    contents = {part: read(part) for part in sidecars if not _find_defect(part, options.max_caption_bytes)}
    encodings = {part: find_encoding(data, options.encoding) for part, data in contents.items()}

    def decode(part: SampleFile | None) -> str:
        return replace_unsafe(contents[part].decode(encodings[part], "replace")) if part in contents else ""

    fields = parse_record(decode(record)) or {}
    lines = split_captions(decode(text), options.captions)
    captions, spans, uids = combine_captions(lines, parse_subtitles(decode(subtitles)), fields)
    problem = _find_problem(parts, media, next(iter(sidecars), None), captions, options.max_caption_bytes)
    if occurrence:
        problem = Problem("duplicate_key", f"key {escape_name(key)} was seen {occurrence} times before in this shard")
    kind = guess_media_kind(media.name) if media is not None else None
    place = Media(escape_name(media.path), media.offset, media.size, kind) if media and kind else None
    uid, carried = parse_uid(fields.get("uid")), (dump_carried_fields(fields, options.carry),)
    encoding = next((name for name in encodings.values() if not name.startswith("utf")), None)
    key = escape_name(key)
    return Sample(shard, key, captions, place, uid, occurrence, problem, spans, encoding, carried, uids)


def describe_text_problems(samples: Sequence[Sample]) -> list[str]:
    """Describe names and captions that are not in UTF-8, for the list of a shard's problems."""
    notes = []
    if escaped := [sample.key for sample in samples if unescape_name(sample.key) != sample.key]:
        notes.append(
            f"{len(escaped):,} keys contain bytes that are not text and are written with escapes, such as {escaped[0]}"
        )
    keys_by_encoding: dict[str, list[str]] = {}
    for sample in samples:
        if sample.encoding is not None:
            keys_by_encoding.setdefault(sample.encoding, []).append(sample.key)
    return notes + [
        f"captions of {len(keys):,} samples are not in UTF-8 and were read as {encoding}, such as those of {keys[0]}; "
        "set another encoding with --encoding"
        for encoding, keys in keys_by_encoding.items()
    ]


def choose_medium(extensions: Iterable[str]) -> str | None:
    kinds = {name: kind for name in extensions if (kind := guess_media_kind(name)) is not None}
    return min(kinds, key=lambda name: ("." in name, kinds[name] == "image"), default=None)


def choose_sample_files(extensions: Iterable[str]) -> tuple[str | None, str | None, str | None, str | None]:
    """Return the extensions of the medium, the .txt, the .json and the subtitles; None if there is no such file."""
    names = list(extensions)
    medium = choose_medium(names)
    text, record, *subtitles = (_choose_sidecar(names, form, medium) for form in ("txt", "json", *SUBTITLES))
    return medium, text, record, next(filter(None, subtitles), None)


def _choose_sidecar(names: list[str], last: str, medium: str | None) -> str | None:
    """Choose a sidecar: with a plain extension, else named like the medium (`a.8.png`, `a.8.txt`), else any."""
    candidates = [name for name in names if name.lower() == last or name.lower().endswith(f".{last}")]
    stem = medium.rpartition(".")[0] if medium is not None else ""
    ranks = {name: (name.lower() != last, name.rpartition(".")[0] != stem) for name in candidates}
    return min(ranks, key=lambda name: ranks[name], default=None)


def _find_defect(part: SampleFile, limit: int) -> str | None:
    """Return why a caption file cannot be read; `limit` is its largest size."""
    if part.defect is None and part.size > limit:
        return f"{part.name} has {part.size} bytes: too large for a caption"
    return part.defect


def _find_problem(
    parts: Parts, media: SampleFile | None, sidecar: SampleFile | None, captions: tuple[str, ...], limit: int
) -> Problem | None:
    if media is None:
        names = ", ".join(f".{extension}" for extension in parts) or "files that are gone"
        return Problem("missing_media", escape_name(f"no image or video, only {names}"))
    if media.defect is not None:
        return Problem(media.status, replace_unsafe(media.defect))
    if media.size == 0:
        return Problem("corrupt", escape_name(f"{media.name} is empty"))
    if sidecar is not None and (defect := _find_defect(sidecar, limit)) is not None:
        return Problem(sidecar.status, replace_unsafe(defect))
    if not captions:
        without = f"no caption in {sidecar.name}" if sidecar is not None else "no .txt and no .json"
        return Problem("missing_caption", escape_name(without))
    return None
