"""Run the paper's analyses on generated clips with five captions each, encoded by the demo's model.

Run as `python -m tests.bench.reproduce_clips [TABLE ...] [OPTION ...]` after `make demo`, which trains the model in
demo/model. The clips are written once to bench-results/cache/clips as WebDataset shards and encoded once with 12 frames
each. By default every table of `auditor reproduce` is made from them; its options are passed on. They are not MSR-VTT's
videos, but take the same path through the program.
"""

import io
import random
import shutil
import sys
import tarfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.bench.query_10m import RESULTS

CLIPS = {"train": 1200, "test": 400}
CAPTIONS = 5
SHARD = 200
MODEL = Path("demo/model/best")
TABLES = ("pearson", "removal", "trust", "deciles", "ablation", "prototypes", "evidence", "init", "noise")


def clip(number: int) -> dict[str, bytes]:
    """The files of one sample, which depend only on its number."""
    from auditor.demo.scene_clips import Clip, describe_shot, draw_clip, encode_mp4, imagine_shot

    rng = random.Random(number)
    shot = imagine_shot(rng)
    text = "\n".join(describe_shot(shot, rng) for _ in range(CAPTIONS))
    return {"mp4": encode_mp4(draw_clip(Clip((shot,)))), "txt": text.encode()}


def write_shards(folder: Path) -> None:
    """Write all shards or none: a folder of this name is complete."""
    partial = folder.with_name(f".part-{folder.name}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    first = 10_000  # other seeds than the demo's scenes
    with ProcessPoolExecutor() as pool:
        for split, count in CLIPS.items():
            for start in range(0, count, SHARD):
                numbers = range(first + start, first + min(start + SHARD, count))
                with tarfile.open(
                    partial / f"{split}-{start // SHARD:04d}.tar", "w", format=tarfile.USTAR_FORMAT
                ) as tar:
                    for number, members in zip(numbers, pool.map(clip, numbers, chunksize=8), strict=True):
                        for extension, content in members.items():
                            entry = tarfile.TarInfo(f"{number:06d}.{extension}")
                            entry.size = len(content)
                            tar.addfile(entry, io.BytesIO(content))
            first += count
    partial.rename(folder)


def main(arguments: list[str]) -> int:
    from auditor.cli import run_command_line

    if not MODEL.exists():
        raise SystemExit(f"{MODEL} is not there: `make demo` trains it")
    folder = RESULTS / "cache" / "clips"
    if not folder.exists():
        print(f"drawing {sum(CLIPS.values()):,} clips into {folder}", flush=True)
        write_shards(folder)
    tables = [] if arguments and arguments[0] in TABLES else TABLES
    places = {"--data": folder, "--model": MODEL, "--out": RESULTS / "clips", "--cache": RESULTS / "cache"}
    options = [str(word) for option in places.items() for word in option]
    return run_command_line(["reproduce", *tables, *options, "--seeds", "2", *arguments])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
