"""If a shard changes while it is swept, the stored rows and the fingerprint belong to one version of it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from auditor.audit_folder.embeddings import name_embeddings_file
from auditor.audit_folder.folder import Folder
from auditor.corpus.shard import OpenShard
from auditor.corpus.tar_shard import TarShard
from auditor.errors import AuditorError
from auditor.sweep.embeddings_writer import find_finished_report
from auditor.sweep.sweep import Sweeper
from auditor.sweep.sweep_config import SweepConfig
from auditor.sweep.sweep_events import ShardReport
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


@pytest.mark.parametrize(("option", "value"), [("frames", 0), ("context", -1.0), ("context", float("nan"))])
def test_settings_that_make_no_sense_are_refused(option: str, value: float) -> None:
    with pytest.raises(AuditorError, match=f"--{option} must be .* not {value:g}"):
        SweepConfig(**{option: value})  # type: ignore[arg-type]
