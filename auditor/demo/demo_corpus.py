"""Write the generated corpus: WebDataset shards for training, validation and the audit, and the planted defects.

OUT/corpus/{train,val,audit}/00000.tar ...   OUT/truth.jsonl (one line per row of the audit)   OUT/corpus.json
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
from auditor.demo.corpus_plan import PlannedSample, Split, plan_split
from auditor.demo.planted_defects import damage_picture, encode_image, make_undecodable_file, truncate_file
from auditor.demo.scene_clips import Clip, Shot, draw_clip, draw_still, encode_mp4
from auditor.demo.scenes import draw_scene
from auditor.errors import AuditorError

SHARD = 150  # samples
SMALLEST = 120  # samples: fewer give no useful statistics
CHUNK = 10  # samples that a process draws at a time

Members = dict[str, bytes]
Render = Callable[[Iterable[PlannedSample]], Iterator[Members]]


@dataclass(frozen=True, slots=True)
class CorpusConfig:
    """`size` is the number of samples to audit. By default there are 8/5 as many to train on."""

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


def render_sample(sample: PlannedSample) -> Members:
    """The files of a sample by extension, as stored in the tar."""
    members: Members = {}
    if sample.defect != "missing_media":
        members[sample.extension] = render_medium(sample)
    if sample.defect != "missing_caption":
        members["txt"] = "".join(f"{caption}\n" for caption in sample.captions).encode()
    return members


def render_medium(sample: PlannedSample) -> bytes:
    # Its own seed, so that a duplicate (same seed, other key) has the same bytes.
    rng = random.Random(f"{sample.seed}/render")
    defect = sample.defect
    if defect == "undecodable":
        return make_undecodable_file(rng)
    content = sample.content
    if isinstance(content, Clip):
        data = encode_mp4(draw_clip(content))
    else:
        picture = draw_still(content, rng.random()) if isinstance(content, Shot) else draw_scene(content)
        data = encode_image(damage_picture(picture, defect, rng), sample.extension)
    return truncate_file(data, rng) if defect == "truncated" else data


@contextmanager
def open_renderer(workers: int) -> Iterator[Render]:
    """Open a renderer with `workers` processes, or in this process if there are fewer than two."""
    if workers < 2:
        yield lambda samples: map(render_sample, samples)
        return
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield lambda samples: pool.map(render_sample, samples, chunksize=CHUNK)


def split_into_shards(samples: Sequence[PlannedSample]) -> list[list[PlannedSample]]:
    """Split into shards of about SHARD samples. A repeated key stays in the same shard."""
    shards: list[list[PlannedSample]] = [[]]
    for sample in samples:
        if len(shards[-1]) >= SHARD and sample.key != shards[-1][-1].key:
            shards.append([])
        shards[-1].append(sample)
    return shards


def list_truth_rows(shards: Sequence[Sequence[PlannedSample]]) -> Iterator[dict[str, Any]]:
    """One row per pair, including sound pairs."""
    for number, samples in enumerate(shards):
        occurrences: dict[str, int] = {}
        for sample in samples:
            occurrence = occurrences.get(sample.key, 0)
            occurrences[sample.key] = occurrence + 1
            for index, (caption, defect) in enumerate(zip(sample.captions, sample.defects, strict=True)):
                yield {
                    "shard": f"{number:05d}",
                    "key": sample.key,
                    "occurrence": occurrence,
                    "caption_index": index,
                    "kind": sample.kind,
                    "defect": defect,
                    "caption": caption,
                }


def write_corpus(
    out: Path, config: CorpusConfig, workers: int = 0, progress: Callable[[int], None] = lambda _: None
) -> Path:
    """Write the missing shards and return their folder. Calls `progress(samples)` after each shard."""
    if config.size < SMALLEST:
        raise AuditorError(
            f"a demo of {config.size} samples is too small for meaningful figures: use --size {SMALLEST} or more"
        )
    folder = out / "corpus"
    claim_folder(out, config)
    with open_renderer(workers) as draw_all:
        for split, count in config.counts().items():
            shards = split_into_shards(plan_split(split, count, config.seed)) if count else []
            for number, samples in enumerate(shards):
                path = folder / split / f"{number:05d}.tar"
                if not path.exists():
                    write_shard(path, zip([s.key for s in samples], draw_all(samples), strict=True))
                progress(len(samples))
            if split == "audit":
                write_text_atomically(
                    out / "truth.jsonl", "".join(f"{json.dumps(row)}\n" for row in list_truth_rows(shards))
                )
    return folder


def claim_folder(out: Path, config: CorpusConfig) -> None:
    """Write corpus.json with the settings of the demo. Rejects a folder with other content."""
    marker = out / "corpus.json"
    settings = asdict(config)
    if marker.exists():
        existing = json.loads(marker.read_text())
        if existing != settings:
            raise AuditorError(
                f"{out} holds a demo of size {existing.get('size')} and seed {existing.get('seed')}: "
                "use the same settings or another --out, or remove it"
            )
        return
    if out.exists() and any(out.iterdir()):
        raise AuditorError(f"{out} is not empty and not a demo: choose another --out")
    out.mkdir(parents=True, exist_ok=True)
    write_text_atomically(marker, json.dumps(settings, indent=2) + "\n")


def write_text_atomically(path: Path, text: str) -> None:
    with Folder(path.parent).writing(path.name) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def read_truth(out: Path) -> list[dict[str, Any]]:
    path = out / "truth.jsonl"
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except OSError as error:
        raise AuditorError(f"cannot read the truth of the demo: {error}") from error
