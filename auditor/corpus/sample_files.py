"""Build samples from the files of a key: choose the medium and the caption files, and report defects.

Tars and folders share this code. Of several media, a plain extension (`jpg`) is preferred to a compound one
(`seg.png`), and a video to an image, because an image beside a video is its poster.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import Any

from auditor.corpus.caption_text import (
    dump_carried_fields,
    find_encoding,
    parse_captions,
    parse_record,
    parse_uid,
    read_record_sources,
    replace_unsafe,
    split_captions,
)
from auditor.corpus.file_names import SUBTITLES, escape_name, guess_media_kind, split_key, unescape_name
from auditor.corpus.sample import Media, Problem, Sample, Span
from auditor.corpus.shard import CorpusOptions
from auditor.corpus.timed_captions import combine_captions, parse_subtitles
from auditor.schema import Status

TEXT = "txt"
TEXT_SOURCES = tuple(  # key.NAME.txt beside key.txt is another source of captions; other names need --caption-fields
    f"{name}.{TEXT}"
    for name in (
        *("alt", "raw", "original", "short", "long", "detailed", "dense", "refined", "recaption", "synthetic"),
        "generated",
    )
)


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
    names = choose_sample_files(parts, options)
    media = parts[names.medium] if names.medium is not None else None
    contents = {name: read(parts[name]) for name in names.sidecars if not _find_defect(parts[name], options)}
    encodings = {name: find_encoding(data, options.encoding) for name, data in contents.items()}

    def decode(name: str | None) -> str:
        return replace_unsafe(contents[name].decode(encodings[name], "replace")) if name in contents else ""

    fields = (parse_record(decode(names.record)) or {}) if names.record is not None else {}
    captions, spans, uids, sources = read_sample_captions(names, fields, decode, options)
    problem = _find_problem(parts, media, next((parts[name] for name in names.sidecars), None), captions, options)
    if occurrence:
        problem = Problem("duplicate_key", f"key {escape_name(key)} was seen {occurrence} times before in this shard")
    kind = guess_media_kind(media.name) if media is not None else None
    place = Media(escape_name(media.path), media.offset, media.size, kind) if media and kind else None
    uid, carried = parse_uid(fields.get("uid")), (dump_carried_fields(fields, options.carry),)
    encoding = next((name for name in encodings.values() if not name.startswith("utf")), None)
    key = escape_name(key)
    return Sample(shard, key, captions, place, uid, occurrence, problem, spans, encoding, carried, uids, sources)


def describe_text_problems(samples: Sequence[Sample], options: CorpusOptions) -> list[str]:
    """Describe absent sources, and names and captions that are not in UTF-8, for the list of a shard's problems."""
    present = {source for sample in samples for source in sample.sources}
    absent = [name for name in options.caption_fields if name_source(name) not in present]
    if len(options.caption_fields) < 2 and any(sample.captions for sample in samples):
        absent = []
    notes = [f"no sample has a caption in {name!r}, which --caption-fields names" for name in absent]
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


@dataclass(frozen=True, slots=True)
class SampleFileNames:
    """The extensions of the files of a sample that are read; None if there is no such file."""

    medium: str | None
    texts: Mapping[str, str]  # by source of captions: `txt`, `alt` for alt.txt
    record: str | None  # .json
    subtitles: str | None

    @property
    def sidecars(self) -> list[str]:
        return [*self.texts.values(), *(name for name in (self.record, self.subtitles) if name is not None)]


def choose_sample_files(extensions: Iterable[str], options: CorpusOptions) -> SampleFileNames:
    return _choose_files(tuple(extensions), options.caption_fields)


@lru_cache(maxsize=256)  # most samples of a shard have the same extensions
def _choose_files(extensions: tuple[str, ...], caption_fields: tuple[str, ...]) -> SampleFileNames:
    names = [name for name in extensions if not name.startswith("__")]  # WebDataset's own fields
    medium = choose_medium(names)
    record, *subtitles = (_choose_sidecar(names, form, medium) for form in ("json", *SUBTITLES))
    texts = find_source_texts(names, medium, caption_fields or TEXT_SOURCES)
    if not caption_fields:
        other_names = [name for name in names if name not in texts.values()]
        plain = _choose_sidecar(other_names, TEXT, medium)
        if plain is not None:
            texts = {TEXT: plain, **texts}
        elif len(texts) == 1:
            texts = dict(zip([TEXT], texts.values(), strict=True))
    return SampleFileNames(medium, texts, record, next(filter(None, subtitles), None))


def find_source_texts(names: Sequence[str], medium: str | None, sources: Iterable[str]) -> dict[str, str]:
    """Return the extension of the text file of each source, without the captions of another medium (`alt.jpg`)."""
    stem = medium.rpartition(".")[0] if medium is not None else ""
    places = {name.lower(): name for name in names}
    stems = {name.rpartition(".")[0].lower() for name in names if guess_media_kind(name) is not None}
    texts = {}
    for source in sources:
        place = f"{stem}.{source}".strip(".").lower()
        is_text = source == TEXT or (source.endswith(f".{TEXT}") and place.rpartition(".")[0] not in stems)
        if is_text and place in places:
            texts[name_source(source)] = places[place]
    return texts


def read_sample_captions(
    names: SampleFileNames, record: dict[str, Any], decode: Callable[[str | None], str], options: CorpusOptions
) -> tuple[tuple[str, ...], tuple[Span | None, ...], tuple[str | None, ...], tuple[str | None, ...]]:
    """Return the captions of a sample with their spans, uids and sources, each empty if no caption has one.

    Captions of subtitles have no source.
    """
    if "caption_sources" in record:  # of an export, which has all captions in one place
        options = replace(options, caption_fields=())
    by_source = read_source_captions(names, record, decode, options)
    lines = tuple(chain.from_iterable(by_source.values()))
    cues = parse_subtitles(decode(names.subtitles)) if names.subtitles is not None else []
    hidden = {"caption", "captions"} if options.caption_fields else set()
    hidden |= {"clips"} if len(by_source) > 1 else set()  # a span for each caption of one source
    visible = {name: value for name, value in record.items() if name not in hidden} if hidden else record
    captions, spans, uids = combine_captions(lines, cues, visible)
    sources = read_record_sources(record, len(captions))
    if len(by_source) > 1:
        labels = tuple(source for source, texts in by_source.items() for _ in texts)
        sources = (*labels, *[None] * (len(captions) - len(labels)))
    return captions, spans, uids, sources


def read_source_captions(
    names: SampleFileNames, record: Mapping[str, Any], decode: Callable[[str | None], str], options: CorpusOptions
) -> dict[str, tuple[str, ...]]:
    """Return the captions of each source: a text file, or a field of the .json that --caption-fields names."""
    return {
        source: split_captions(decode(names.texts[source]), options.captions)
        if source in names.texts
        else parse_captions(record.get(source))
        for source in map(name_source, options.caption_fields or names.texts)
    }


def name_source(field: str) -> str:
    """Return the source of captions in a field of the .json (itself) or in a text file (`alt` for alt.txt)."""
    return field.removesuffix(f".{TEXT}")


def complete_sources(samples: list[Sample]) -> list[Sample]:
    """Name the source of the plain captions of a shard too, if any of its samples has several sources."""
    if not any(sample.sources for sample in samples):
        return samples
    return [s if s.sources else replace(s, sources=(TEXT,) * len(s.captions)) for s in samples]


def _choose_sidecar(names: list[str], last: str, medium: str | None) -> str | None:
    """Choose a sidecar: with a plain extension, else named like the medium (`a.8.png`, `a.8.txt`), else any."""
    candidates = [name for name in names if name.lower() == last or name.lower().endswith(f".{last}")]
    stem = medium.rpartition(".")[0] if medium is not None else ""
    ranks = {name: (name.lower() != last, name.rpartition(".")[0] != stem) for name in candidates}
    return min(ranks, key=lambda name: ranks[name], default=None)


def _find_defect(part: SampleFile, options: CorpusOptions) -> str | None:
    """Return why a caption file cannot be read."""
    if part.defect is None and part.size > options.max_caption_bytes:
        return f"{part.name} has {part.size} bytes: too large for a caption"
    return part.defect


def _find_problem(
    parts: Parts,
    media: SampleFile | None,
    sidecar: SampleFile | None,
    captions: tuple[str, ...],
    options: CorpusOptions,
) -> Problem | None:
    if media is None:
        names = ", ".join(f".{extension}" for extension in parts) or "files that are gone"
        return Problem("missing_media", escape_name(f"no image or video, only {names}"))
    if media.defect is not None:
        return Problem(media.status, replace_unsafe(media.defect))
    if media.size == 0:
        return Problem("corrupt", escape_name(f"{media.name} is empty"))
    if sidecar is not None and (defect := _find_defect(sidecar, options)) is not None:
        return Problem(sidecar.status, replace_unsafe(defect))
    if not captions:
        without = f"no caption in {sidecar.name}" if sidecar is not None else "no .txt and no .json"
        return Problem("missing_caption", escape_name(without))
    return None
