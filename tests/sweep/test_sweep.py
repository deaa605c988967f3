"""If a shard changes while it is swept, the stored rows and the fingerprint belong to one version of it."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import pytest

from auditor.audit_folder.embeddings import name_embeddings_file
from auditor.audit_folder.folder import Folder
from auditor.corpus.corpus_files import digest
from auditor.corpus.shard import OpenShard
from auditor.corpus.tar_shard import TarShard
from auditor.errors import AuditorError
from auditor.sweep.embeddings_writer import find_finished_report
from auditor.sweep.prefetch import Prefetch
from auditor.sweep.sweep import Sweeper, open_shards
from auditor.sweep.sweep_config import SweepConfig
from auditor.sweep.sweep_events import (
    DecodedSample,
    DecodeEvent,
    OpenedShard,
    ShardFailure,
    ShardReport,
    ShardStart,
)
from auditor.workers.decoder_pool import Decoded, DecoderError
from model.backbone import Backbone
from model.checkpoint import load_model
from tests.support.corpora import make_sample, write_tar


@dataclass
class Disturbed:
    """A tar that a function changes each time after it is opened and before its media are read."""

    tar: TarShard
    disturbances: list[Callable[[], object]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.tar.name

    def fingerprint(self) -> str:
        return self.tar.fingerprint()

    @contextmanager
    def open(self) -> Iterator[OpenShard]:
        with self.tar.open() as opened:
            if self.disturbances:
                self.disturbances.pop(0)()
            yield opened


@pytest.fixture(scope="module")
def backbone(random_model: str) -> Backbone:
    return load_model(random_model).backbone


def keys(count: int) -> list[tuple[str, dict[str, bytes]]]:
    return [(f"{i:04d}", make_sample(i)) for i in range(count)]


def sweep(shard: Disturbed, backbone: Backbone, folder: Folder) -> ShardReport:
    with Sweeper(backbone, folder, SweepConfig(decoders=1, batch_size=8)) as sweeper:
        (report,) = sweeper.sweep([shard])
        again = find_finished_report(folder, shard, sweeper.settings)
    assert (again is None) == (report.failure is not None)
    return report


@pytest.mark.parametrize("after", [9, 3])  # samples are appended, or the tar is cut
def test_a_shard_that_changes_while_it_is_open_is_swept_again(after: int, backbone: Backbone, tmp_path: Path) -> None:
    path, folder = write_tar(tmp_path / "00000.tar", keys(6)), Folder(tmp_path / "audit")
    shard = Disturbed(TarShard("00000", str(path)), [lambda: write_tar(path, keys(after))])
    report = sweep(shard, backbone, folder)
    stored = folder.read_table(name_embeddings_file("00000"), ["key", "status"]).to_pylist()
    assert report.keys == after
    assert stored == [{"key": key, "status": "ok"} for key, _ in keys(after)]


def test_a_shard_that_never_rests_fails_with_a_reason(backbone: Backbone, tmp_path: Path) -> None:
    path, folder = write_tar(tmp_path / "00000.tar", keys(2)), Folder(tmp_path / "audit")
    writes = [lambda size=size: write_tar(path, keys(size)) for size in (3, 4, 5, 6)]
    report = sweep(Disturbed(TarShard("00000", str(path)), writes), backbone, folder)
    assert "changed each time while it was read" in (report.failure or "")
    assert len(writes) == 1  # three readings, not for ever
    assert not folder.exists(name_embeddings_file("00000"))


def test_a_shard_that_goes_while_it_is_read_fails(backbone: Backbone, tmp_path: Path) -> None:
    path, folder = write_tar(tmp_path / "00000.tar", keys(2)), Folder(tmp_path / "audit")
    report = sweep(Disturbed(TarShard("00000", str(path)), [path.unlink]), backbone, folder)
    assert "does not exist" in (report.failure or "")


def open_all(shards: list[TarShard]) -> Prefetch[OpenedShard | ShardFailure]:
    """Open all shards before the first one is read."""
    ahead = Prefetch(open_shards(shards), weigh=lambda _: 1, budget=len(shards))
    ahead.thread.join(60)
    return ahead


def describe_event(event: DecodeEvent) -> object:
    if isinstance(event, DecodedSample):
        assert isinstance(event.medium, Decoded)
        assert event.digest == digest(make_sample(int(event.sample.key))["jpg"])
        return event.sample.key, event.digest, event.medium.pixels.tobytes()
    return event if isinstance(event, ShardStart) else type(event)


def test_open_shards_are_decoded_in_one_go_with_the_events_of_each_alone(backbone: Backbone, tmp_path: Path) -> None:
    paths = [write_tar(tmp_path / f"{name}.tar", keys(size)) for name, size in (("a", 20), ("b", 1), ("c", 9))]
    shards = [TarShard(path.stem, str(path)) for path in (*paths, tmp_path / "gone.tar", paths[0])]
    with Sweeper(backbone, Folder(tmp_path / "audit"), SweepConfig(decoders=1)) as sweeper:
        alone = [describe_event(event) for shard in shards for event in sweeper._decode(open_all([shard]))]
        with patch.object(sweeper.pool, "map", wraps=sweeper.pool.map) as calls:
            together = [describe_event(event) for event in sweeper._decode(open_all(shards))]
    assert together == alone and len(together) == 20 + 1 + 9 + 20 + 2 * 4 + 1
    assert calls.call_count == 1


def test_if_decoders_cannot_run_each_shard_fails_once(backbone: Backbone, tmp_path: Path) -> None:
    paths = [write_tar(tmp_path / f"{name}.tar", keys(3)) for name in "abcd"]
    shards = [TarShard(path.stem, str(path)) for path in paths]

    def break_down(
        tasks: Iterator[tuple[object, object, object]], side_work: object
    ) -> Iterator[tuple[object, object]]:
        ahead = list(itertools.islice(tasks, 7))  # in the second shard
        yield ahead[0][0], None
        raise DecoderError("no decoder process could be started")

    sweeper = Sweeper(backbone, Folder(tmp_path / "audit"), SweepConfig(decoders=1))
    with sweeper, patch.object(sweeper.pool, "map", break_down):
        events = list(sweeper._decode(open_all(shards)))
    failures = [event for event in events if isinstance(event, ShardFailure)]
    assert [failure.shard for failure in failures] == ["a", "b", "c", "d"]
    assert {failure.message for failure in failures} == {"no decoder process could be started"}


@pytest.mark.parametrize(("option", "value"), [("frames", 0), ("context", -1.0), ("context", float("nan"))])
def test_settings_that_make_no_sense_are_refused(option: str, value: float) -> None:
    with pytest.raises(AuditorError, match=f"--{option} must be .* not {value:g}"):
        SweepConfig(**{option: value})  # type: ignore[arg-type]
