"""Every row of an audit has its own uid, although the corpus repeats uids in one shard, in two, or in other case."""

import io
import json
import os
import tarfile
from pathlib import Path

from auditor.audit_folder.folder import Folder
from auditor.cli import run_command_line
from auditor.query.database import AuditDatabase
from auditor.run.audit_config import AuditConfig
from auditor.run.run_audit import run_audit
from auditor.sweep.sweep_config import SweepConfig
from tests.support.corpora import make_picture, make_sample, write_tar

OWN = ["abcdef0123456789abcdef0123456789", "00000000000000000000000000000001"]


def named(index: int, uid: str) -> dict[str, bytes]:
    return {**make_sample(index), "json": json.dumps({"uid": uid}).encode()}


def audit(corpus: Path, out: Path, model: str) -> list[str]:
    sweep = SweepConfig(frames=4, batch_size=8, decoders=1)
    manifest = run_audit(AuditConfig(str(corpus), str(out), model, quiet=True, sweep=sweep))
    return [f"{problem['shard']}: {problem['message']}" for problem in manifest.shard_problems]


def uids(out: Path) -> list[str]:
    with AuditDatabase(out) as database:
        return [row["uid"] for row in database.rows("SELECT uid FROM samples ORDER BY shard, key")]


def test_every_row_has_its_own_uid_and_the_first_keeps_the_corpus_s(tmp_path: Path, random_model: str) -> None:
    corpus, out = tmp_path / "corpus", tmp_path / "audit"
    write_tar(corpus / "0.tar", [("a", named(0, OWN[0])), ("b", named(1, OWN[0].upper())), ("c", named(2, OWN[1]))])
    write_tar(corpus / "1.tar", [("d", named(3, OWN[1])), ("e", named(4, "f" * 32))])
    write_tar(corpus / "2.tar", [(f"k{i}", make_sample(i)) for i in range(5, 12)])
    problems = audit(corpus, out, random_model)
    found = uids(out)
    assert len(set(found)) == len(found) == 12
    assert found[0] == OWN[0] and found[2] == OWN[1] and found[4] == "f" * 32
    assert problems == [
        "0: 1 of its rows had the uid of an earlier row of it, and have another one here",
        "1: 1 of its rows had the uid of a row of an earlier shard, and have another one here",
    ]
    written = {path.name: path.stat().st_mtime_ns for path in (out / "embeddings").iterdir()}
    assert audit(corpus, out, random_model) == problems and uids(out) == found
    assert {path.name: path.stat().st_mtime_ns for path in (out / "embeddings").iterdir()} == written  # trusted
    assert run_command_line(["verify", str(out), "--files"]) == 0


def test_a_corpus_of_hostile_names_is_audited_and_exported(tmp_path: Path, random_model: str) -> None:
    names = (b"caf\xe9", b"caf\xe8", rb"caf\xe9", b"../../up", b"/root/x", b"\x1b[2Jclear", b"=1+1", b"a\xff\xfe")
    (tmp_path / "corpus").mkdir()
    with tarfile.open(tmp_path / "corpus/0.tar", "w", format=tarfile.GNU_FORMAT, errors="surrogateescape") as tar:
        for name in names:  # the same picture and caption each
            for extension, data in (("jpg", make_picture(1)), ("txt", b"a red dog"), (r"x\..\..\evil", b"kept")):
                info = tarfile.TarInfo(os.fsdecode(name) + "." + extension)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    write_tar(tmp_path / "corpus/1.tar", [(f"k{i}", make_sample(i)) for i in range(20)])
    audit(tmp_path / "corpus", tmp_path / "audit", random_model)
    found = uids(tmp_path / "audit")
    assert len(set(found)) == len(found) == len(names) + 20
    assert (
        run_command_line(["filter", str(tmp_path / "audit"), "--where", "true", "--out", str(tmp_path / "clean")]) == 0
    )
    with tarfile.open(tmp_path / "clean/00000.tar") as tar:
        exported = [member.name for member in tar]
    assert len(exported) == len(set(exported)) == 3 * len(names) + 2 * 20
    for name in exported:
        assert not name.startswith("/") and ".." not in name.split("/") and "\\" not in name and "\x1b" not in name
    assert Folder(tmp_path / "audit").is_sound("samples/0.parquet")
