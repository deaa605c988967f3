"""Write the generated corpus: WebDataset shards for training, validation and the audit, and the truth beside them.

OUT/corpus/{train,val,audit}/00000.tar ...   OUT/truth.jsonl (one line for every row of the audit)   OUT/corpus.json
The same seed and size give the same bytes. Finished shards are not drawn again.
"""

import json
import multiprocessing
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from auditor.audit_folder.folder import Folder
from auditor.corpus.shard_writer import write_shard
from auditor.demo.corpus_plan import Specimen, Split, plan
from auditor.demo.planted_defects import damaged, encode_image, truncated, undecodable
from auditor.demo.scene_clips import Clip, Shot, encode, film, still
from auditor.demo.scenes import draw
from auditor.errors import AuditorError

SHARD = 150  # samples
SMALLEST = 120  # an audit of fewer samples has no statistics to speak of
CHUNK = 10  # samples drawn by a process at a time

Members = dict[str, bytes]
Render = Callable[[Iterable[Specimen]], Iterator[Members]]


class DemoError(AuditorError):
    """A demo that cannot be made as asked."""


@dataclass(frozen=True, slots=True)
class CorpusConfig:
    """`size` is the number of samples to be audited; there are 8/5 as many to train on."""

    size: int = 1500
    seed: int = 0
    train: int | None = None
    val: int | None = None

    def counts(self) -> dict[Split, int]:
        return {
            "train": self.train if self.train is not None else self.size * 8 // 5,
            "val": self.val if self.val is not None else self.size // 5,
            "audit": self.size,
        }


def render(specimen: Specimen) -> Members:
    """The files of a sample by extension, as they go into the tar."""
    members: Members = {}
    if specimen.defect != "missing_media":
        members[specimen.extension] = medium(specimen)
    if specimen.defect != "missing_caption":
        members["txt"] = "".join(f"{caption}\n" for caption in specimen.captions).encode()
    return members


def medium(specimen: Specimen) -> bytes:
    # a seed of its own, so that an exact duplicate (same seed, other key) is exact
    rng = random.Random(f"{specimen.seed}/render")
    defect = specimen.defect
    if defect == "undecodable":
        return undecodable(rng)
    content = specimen.content
    if isinstance(content, Clip):
        data = encode(film(content))
    else:
        picture = still(content, rng.random()) if isinstance(content, Shot) else draw(content)
        data = encode_image(damaged(picture, defect, rng), specimen.extension)
    return truncated(data, rng) if defect == "truncated" else data


@contextmanager
def renderer(workers: int) -> Iterator[Render]:
    """Draws in `workers` processes, or in this one where there are fewer than two."""
    if workers < 2:
        yield lambda specimens: map(render, specimens)
        return
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield lambda specimens: pool.map(render, specimens, chunksize=CHUNK)


def cut(specimens: Sequence[Specimen]) -> list[list[Specimen]]:
    """Shards of about SHARD samples; a repeated key stays in the shard of the first."""
    shards: list[list[Specimen]] = [[]]
    for specimen in specimens:
        if len(shards[-1]) >= SHARD and specimen.key != shards[-1][-1].key:
            shards.append([])
        shards[-1].append(specimen)
    return shards


def truth_rows(shards: Sequence[Sequence[Specimen]]) -> Iterator[dict[str, Any]]:
    """One row for every pair, sound ones included."""
    for number, specimens in enumerate(shards):
        seen: dict[str, int] = {}
        for specimen in specimens:
            occurrence = seen.get(specimen.key, 0)
            seen[specimen.key] = occurrence + 1
            for index, (caption, defect) in enumerate(zip(specimen.captions, specimen.defects, strict=True)):
                yield {
                    "shard": f"{number:05d}",
                    "key": specimen.key,
                    "occurrence": occurrence,
                    "caption_index": index,
                    "kind": specimen.kind,
                    "defect": defect,
                    "caption": caption,
                }


def write_corpus(
    out: Path, config: CorpusConfig, workers: int = 0, progress: Callable[[int], None] = lambda _: None
) -> Path:
    """Write what is not there yet and return the folder of the shards; `progress` is told of samples done."""
    if config.size < SMALLEST:
        raise DemoError(
            f"a demo of {config.size} samples is too small for meaningful figures: use --size {SMALLEST} or more"
        )
    folder = out / "corpus"
    claim(out, config)
    with renderer(workers) as draw_all:
        for split, count in config.counts().items():
            shards = cut(plan(split, count, config.seed)) if count else []
            for number, specimens in enumerate(shards):
                path = folder / split / f"{number:05d}.tar"
                if not path.exists():
                    write_shard(path, zip([s.key for s in specimens], draw_all(specimens), strict=True))
                progress(len(specimens))
            if split == "audit":
                write_whole(out / "truth.jsonl", "".join(f"{json.dumps(row)}\n" for row in truth_rows(shards)))
    return folder


def claim(out: Path, config: CorpusConfig) -> None:
    """corpus.json says what the folder is a demo of; another demo may not be mixed into it."""
    marker = out / "corpus.json"
    ours = asdict(config)
    if marker.exists():
        theirs = json.loads(marker.read_text())
        if theirs != ours:
            raise DemoError(
                f"{out} holds a demo of size {theirs.get('size')} and seed {theirs.get('seed')}: "
                "use the same settings or another --out, or remove it"
            )
        return
    if out.exists() and any(out.iterdir()):
        raise DemoError(f"{out} is not empty and not a demo: choose another --out")
    out.mkdir(parents=True, exist_ok=True)
    write_whole(marker, json.dumps(ours, indent=2) + "\n")


def write_whole(path: Path, text: str) -> None:
    with Folder(path.parent).writing(path.name) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def read_truth(out: Path) -> list[dict[str, Any]]:
    path = out / "truth.jsonl"
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except OSError as error:
        raise DemoError(f"cannot read the truth of the demo: {error}") from error
