"""Exports that are killed, run twice, or read a changing corpus; member names that WebDataset reserves."""

import os
import shutil
import tarfile
from pathlib import Path

import pytest

from auditor.audit_folder.folder import Folder
from auditor.audit_folder.lock import LockedError, hold_folder_lock
from auditor.cli import run_command_line
from auditor.keep import export_shards
from auditor.keep.export import export_subset
from auditor.keep.export_target import ExportError, prepare_export
from auditor.python_api import Audit
from auditor.run.audit_config import AuditConfig
from auditor.run.run_audit import run_audit
from auditor.sweep.sweep_config import SweepConfig
from tests.support.corpora import make_sample, write_tar
from tests.support.kill_points import kill_everywhere


@pytest.fixture(scope="module")
def made(random_model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an audit and its corpus, which has a sample with unusual member names."""
    place = tmp_path_factory.mktemp("made")
    odd = {**make_sample(0), "__key__": b"renamed", "cls.__meta": b"kept", "__note": b"kept too"}
    write_tar(place.parent / "corpus" / "00000.tar", [("odd", odd), *((f"k{i}", make_sample(i)) for i in range(1, 12))])
    sweep = SweepConfig(frames=4, batch_size=8, decoders=1)
    run_audit(AuditConfig(str(place.parent / "corpus"), str(place / "audit"), random_model, quiet=True, sweep=sweep))
    return place


def read_members(folder: Path) -> dict[str, bytes]:
    found = {}
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as tar:
            for info in tar:
                file = tar.extractfile(info)
                assert file is not None
                found[f"{path.name}/{info.name}"] = file.read()
    return found


def test_no_member_renames_its_sample_and_none_is_dropped(made: Path, tmp_path: Path) -> None:
    assert run_command_line(["filter", str(made / "audit"), "--where", "true", "--out", str(tmp_path / "clean")]) == 0
    found = read_members(tmp_path / "clean")
    assert {name: found.get(f"00000.tar/odd.{name}") for name in ("cls.__meta", "__note")} == {
        "cls.__meta": b"kept",
        "__note": b"kept too",
    }
    assert not any("renamed" in name for name in found)


def test_killed_at_any_file_operation_it_goes_on_next_time(made: Path, tmp_path: Path) -> None:
    killed = kill_everywhere(
        made,
        tmp_path,
        "auditor.keep.export",
        "filter",
        "{}/audit",
        "--where",
        "true",
        "--out",
        "{}/clean",
        "--shard-size",
        "6",
    )
    whole = read_members(killed[0].folder / "clean")
    assert len(killed) > 8 and len(whole) > 20
    for one in killed:
        assert read_members(one.folder / "clean") == whole, one
        assert one.next_exit == 0 or "clean exists; --force replaces it" in one.stderr, one
    assert sum(one.next_exit for one in killed) <= 3
    assert all(not [*one.folder.rglob(".part-*")] for one in killed if one.next_exit == 0)


def test_a_corpus_that_changes_in_the_middle_is_not_mixed(made: Path, tmp_path: Path) -> None:
    kept = Audit(made / "audit").keep()
    target = Folder(tmp_path / "clean")
    sources = kept.by_shard()
    prepare_export(target, export_shards.describe_export(kept, sources, 6), force=False)
    tar = made.parent / "corpus" / "00000.tar"
    os.utime(tar, ns=(1, 1))
    with pytest.raises(ExportError, match="a corpus that has changed"):
        export_shards.export_shards(kept, target, shard_size=6)


def test_a_corpus_that_has_moved_is_covered_by_the_plan_too(made: Path, tmp_path: Path) -> None:
    here = tmp_path / "moved"
    shutil.copytree(made.parent / "corpus", here)
    with Audit(made / "audit", corpus=here) as audit:
        kept = audit.keep()
        before = export_shards.stamp_corpus_files(kept)
        os.utime(here / "00000.tar", ns=(2, 2))
        assert [path for path, size, _ in before if size > 0] == [str(here / "00000.tar")]
        assert export_shards.stamp_corpus_files(kept) != before


def test_a_corpus_that_changes_while_it_is_read_is_no_finished_export(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, written = tmp_path / "moved", export_shards.write_missing_shards
    shutil.copytree(made.parent / "corpus", here)

    def change(*given: object) -> None:
        written(*given)  # type: ignore[arg-type]
        os.utime(here / "00000.tar", ns=(2, 2))

    monkeypatch.setattr(export_shards, "write_missing_shards", change)
    with Audit(made / "audit", corpus=here) as audit:
        for match in ("changed while it was read", "a corpus that has changed"):  # the next run detects it too
            with pytest.raises(ExportError, match=match):
                export_shards.export_shards(audit.keep(), Folder(tmp_path / "clean"), shard_size=6)


def test_two_exports_into_one_folder(made: Path, tmp_path: Path) -> None:
    kept = Audit(made / "audit").keep()
    with hold_folder_lock(Folder(tmp_path / "clean")), pytest.raises(LockedError):
        export_subset(kept, tmp_path / "clean")
    export_subset(kept, tmp_path / "clean")


def test_a_folder_of_something_else_stays_as_it_is(made: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    for force in ([], ["--force"]):
        assert run_command_line(["filter", str(made / "audit"), "--where", "true", "--out", str(tmp_path), *force]) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
