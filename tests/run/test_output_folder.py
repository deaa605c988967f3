"""An audit is never written into its corpus or into a folder with other files; and how Ctrl-C ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from auditor.audit_folder.folder import Folder
from auditor.cli import run_command_line
from auditor.corpus.corpus_spec import find_corpus_folder, is_folder_spec
from auditor.errors import AuditError
from auditor.run.run_audit import check_output_folder
from tests.support.corpora import write_corpus


def test_a_place_in_the_corpus_is_found_however_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "photos")
    for spec in ("photos", "./photos/", f"{tmp_path}/photos", "link", "shards::photos", "{shards,photos}", "photo?"):
        assert find_corpus_folder(spec, "photos/audit"), spec
        assert find_corpus_folder(spec, "link/deep/er"), spec
        assert find_corpus_folder(spec, "photos"), spec
        assert not find_corpus_folder(spec, "photos-audit"), spec
        assert not find_corpus_folder(spec, "."), spec
    assert find_corpus_folder("datacomp:photos", "photos/audit")
    assert find_corpus_folder("s3://b/shards/", "s3://b/shards/audit") and not find_corpus_folder(
        "s3://b/shards", "s3://b/audit"
    )
    for spec in ("photos/*.tar", "photos/{00..10}.tar", "photos/table.csv", "coco:photos/captions.json::photos"):
        assert not find_corpus_folder(spec, "photos/audit"), spec


def test_a_spec_says_whether_it_is_a_folder() -> None:
    assert all(is_folder_spec(spec) for spec in ("photos", "./photos/", "s3://b/shards", "datacomp:metadata"))
    listed = ("a.tar", "a::b", "{a,b}", "*.tar", "t.csv", "coco:c.json::images")
    assert not any(is_folder_spec(spec) for spec in listed)


def test_other_peoples_files_are_left_alone_unless_forced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    check_output_folder(Folder(out), "corpus")  # is not there yet
    out.mkdir()
    (out / ".lock").touch()  # of an audit that was killed before its manifest
    check_output_folder(Folder(out), "corpus")
    (out / "thesis.docx").touch()
    with pytest.raises(AuditError, match=r"other files in it, such as thesis\.docx: .* --force"):
        check_output_folder(Folder(out), "corpus")
    check_output_folder(Folder(out), "corpus", force=True)
    (out / "manifest.json").touch()  # an audit, whatever is beside it
    check_output_folder(Folder(out), "corpus")


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_an_audit_in_its_own_corpus_is_refused(
    tmp_path: Path, random_model: str, force: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = write_corpus(tmp_path / "corpus", shards=1, size=4)
    assert (
        run_command_line(["audit", str(corpus), "--out", str(corpus / "audit"), "--model", random_model, *force]) == 1
    )
    assert "lies in the corpus" in capsys.readouterr().err
    assert not (corpus / "audit").exists()


def test_ctrl_c_says_how_to_go_on(tmp_path: Path, random_model: str) -> None:
    """Send it to all processes of the command at once, as a terminal does."""
    corpus, out = write_corpus(tmp_path / "corpus", shards=60, size=4), tmp_path / "audit"
    command = [sys.executable, "-m", "auditor.cli", "audit", str(corpus), "--out", str(out), "--model", random_model]
    running = subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True)
    while not list((out / "embeddings").glob("[!.]*.parquet")) and running.poll() is None:
        time.sleep(0.01)
    os.killpg(running.pid, signal.SIGINT)
    _, said = running.communicate(timeout=120)
    assert running.returncode == 130 and "Traceback" not in said
    done = len(list((out / "embeddings").glob("[!.]*.parquet")))
    assert said.splitlines()[-1] == (
        f"auditor: stopped; {done} of 60 shards are swept and stay so: the same command again goes on from there"
    )
