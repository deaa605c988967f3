"""An audit or a corpus from a stranger: links, special files, places of media, web addresses, other bytes."""

import http.server
import json
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor.audit_folder.folder import Folder, StorageError
from auditor.audit_folder.lock import hold_folder_lock
from auditor.cli import run_command_line
from auditor.corpus.open_corpus import CorpusError, CorpusOptions, open_corpus
from auditor.corpus.read_medium import MediaError
from auditor.corpus.sample import Sample
from auditor.errors import AuditorError
from auditor.python_api import Audit
from tests.support.corpora import make_picture
from tests.support.synthetic import write_corpus_audit

SECONDS = 60


@pytest.fixture(autouse=True)
def nothing_blocks() -> Iterator[None]:
    """A pipe that is opened would block for ever, and a device would never end."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"more than {SECONDS} seconds")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_corpus_audit(tmp_path_factory.mktemp("made"), shards=1, per_shard=6)


@pytest.fixture
def audit(made: tuple[Path, Path], tmp_path: Path) -> Path:
    """A copy of an audit of one's own."""
    return Path(shutil.copytree(made[0], tmp_path / "audit"))


def make_foreign(audit: Path, root: str | None = None) -> None:
    """As if another user had made the audit."""
    manifest = json.loads((audit / "manifest.json").read_text())
    manifest["id"] = os.urandom(16).hex()
    manifest["corpus"]["root"] = root or manifest["corpus"]["root"]
    (audit / "manifest.json").write_text(json.dumps(manifest))


def change_rows(audit: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    file = audit / "samples" / "00000.parquet"
    table = pq.read_table(file)
    pq.write_table(pa.Table.from_pylist([change(row) for row in table.to_pylist()], schema=table.schema), file)


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    code = run_command_line([str(word) for word in words])
    return code, capsys.readouterr().err


def export(audit: Path, out: Path) -> None:
    with Audit(audit) as opened:
        opened.keep().write(out)


# Audits


def test_a_lock_that_is_a_link_changes_no_file(audit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (audit / ".lock").symlink_to(victim)
    table = tmp_path / "beauty.csv"
    table.write_text("key,beauty\n000000,1\n")
    code, said = run(capsys, "join", audit, table, "--on", "key")
    assert code == 1 and f"{audit}/.lock leads out of {audit}" in said
    assert victim.read_text() == "precious"
    with pytest.raises(StorageError), hold_folder_lock(Folder(audit)):
        pass


@pytest.mark.parametrize("part", ["samples", "embeddings", "columns", "duplicates", "head", "label_samples"])
def test_a_folder_of_an_audit_that_is_a_link_is_neither_read_nor_written(
    audit: Path, tmp_path: Path, part: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "00000.parquet").write_bytes(b"precious")
    shutil.rmtree(audit / part, ignore_errors=True)
    (audit / part).symlink_to(elsewhere)
    folder = Folder(audit)
    for use in (
        lambda: folder.remove(f"{part}/00000.parquet"),
        lambda: folder.names(part, ".parquet"),
        lambda: folder.write_json(f"{part}/x.json", {}),
        lambda: folder.read_bytes(f"{part}/00000.parquet"),
        lambda: folder.remove(part),
    ):
        with pytest.raises(StorageError, match="leads out of"):
            use()
    assert [path.read_bytes() for path in elsewhere.iterdir()] == [b"precious"]


def test_links_and_dots_inside_a_folder(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "audit")
    folder.write_json("real.json", {"a": 1})
    (tmp_path / "audit" / "link.json").symlink_to("real.json")
    (tmp_path / "named").symlink_to(tmp_path / "audit")
    assert folder.read_json("link.json") == {"a": 1}
    assert Folder(tmp_path / "named").read_json("real.json") == {"a": 1}, "the user named the link"
    with pytest.raises(StorageError, match="leads out of"):
        folder.read_json("../secret.json")


def test_marks_are_not_appended_to_a_file_elsewhere(audit: Path, tmp_path: Path) -> None:
    victim = tmp_path / ".bashrc"
    victim.write_text("export PATH\n")
    (audit / "reviews.jsonl").symlink_to(victim)
    with pytest.raises(AuditorError, match="leads out of"):
        Audit(audit)
    (audit / "reviews.jsonl").unlink()
    with Audit(audit) as opened:
        row = opened.worst(n=1).to_pylist()[0]
        (audit / "reviews.jsonl").symlink_to(victim)
        with pytest.raises(AuditorError, match="leads out of"):
            opened.mark(row, "bad")
    assert victim.read_text() == "export PATH\n"


@pytest.mark.parametrize("file", ["manifest.json", "reviews.jsonl", "samples/00000.parquet", ".part-x", ".lock"])
@pytest.mark.parametrize("device", [None, "/dev/zero"])
def test_a_special_file_in_an_audit_is_one_line(
    audit: Path, tmp_path: Path, file: str, device: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    place = audit / file
    place.unlink(missing_ok=True)
    place.symlink_to(device) if device else os.mkfifo(place)
    table = tmp_path / "beauty.csv"
    table.write_text("key,beauty\n000000,1\n")
    for words in (["summary", audit], ["join", audit, table, "--on", "key", "--force"]):
        code, said = run(capsys, *words)
        assert code in (0, 1) and said.count("auditor:") == code, said
    assert code == (0 if file == ".part-x" else 1)


@pytest.mark.parametrize("place", ["/etc/passwd", "file:///etc/passwd", "{corpus}/../secret.jpg", "{corpus}/out/x.jpg"])
def test_media_outside_the_corpus_are_not_exported(
    made: tuple[Path, Path], audit: Path, tmp_path: Path, place: str
) -> None:
    corpus = made[1]
    (corpus.parent / "secret.jpg").write_bytes(make_picture(0))
    (corpus.parent / "elsewhere").mkdir(exist_ok=True)
    (corpus.parent / "elsewhere" / "x.jpg").write_bytes(make_picture(0))
    if not (corpus / "out").exists():
        (corpus / "out").symlink_to(corpus.parent / "elsewhere")
    path = place.format(corpus=corpus)
    change_rows(audit, lambda row: {**row, "media_path": path, "media_offset": 0, "media_size": -1})
    with Audit(audit) as opened, pytest.raises(MediaError, match="is not read: it lies outside"):
        opened.media(opened.worst(n=1).to_pylist()[0])
    with pytest.raises(MediaError, match="is not read: it lies outside"):
        export(audit, tmp_path / "out")
    assert not list((tmp_path / "out").glob("*.tar"))


def test_a_foreign_audit_asks_for_its_corpus_once(made: tuple[Path, Path], audit: Path, tmp_path: Path) -> None:
    make_foreign(audit, "/somewhere")
    with pytest.raises(MediaError, match="say where its media are with --corpus ROOT"):
        export(audit, tmp_path / "first")
    with Audit(audit, corpus=made[1]) as opened:
        assert opened.media(opened.worst(n=1).to_pylist()[0])
    export(audit, tmp_path / "second")
    assert list((tmp_path / "second").glob("*.tar"))


def test_the_table_and_the_model_of_a_foreign_audit_are_not_opened(
    audit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_foreign(audit)
    code, said = run(capsys, "filter", audit, "--max-p-mismatch", "0.9", "--out", tmp_path / "kept.csv")
    assert code == 1 and "--corpus" in said
    (audit / "embeddings").mkdir()
    vectors = pa.array([[1.0, 0.0]] * 6, pa.list_(pa.float16(), 2))
    facts = pq.read_table(audit / "samples" / "00000.parquet").slice(0, 6)
    table = facts.append_column("visual", vectors).append_column("text", vectors)
    pq.write_table(table, audit / "embeddings" / "00000.parquet")
    code, said = run(capsys, "search", audit, "a dog")
    assert code == 1 and "name its model with --model" in said


def test_other_bytes_at_the_same_place_are_not_exported(made: tuple[Path, Path], audit: Path, tmp_path: Path) -> None:
    change_rows(audit, lambda row: {**row, "media_digest": "0" * 32})
    with pytest.raises(AuditorError, match="is not the one that was audited"):
        export(audit, tmp_path / "out")


def test_web_addresses_in_an_audit_are_not_fetched(audit: Path, tmp_path: Path) -> None:
    requests: list[str] = []

    class Server(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(self.path)
            self.send_error(404)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/x.jpg"
        change_rows(audit, lambda row: {**row, "media_path": address, "media_offset": 0, "media_size": -1})
        assert run_command_line(["report", str(audit), "--out", str(tmp_path / "report.html")]) == 0
        with pytest.raises(MediaError):
            export(audit, tmp_path / "out")
        with Audit(audit) as opened, pytest.raises(MediaError):
            opened.media(opened.worst(n=1).to_pylist()[0])
        server.shutdown()
    assert not requests


@pytest.mark.parametrize("value", [float("nan"), 5.0, -1.0, float("inf")])
def test_probabilities_that_are_none(audit: Path, value: float, capsys: pytest.CaptureFixture[str]) -> None:
    change_rows(audit, lambda row: {**row, "p_mismatch": value, "mismatch_score": value})
    for words in (["certify", audit, "--labels", "4"], ["thresholds", audit], ["summary", audit]):
        code, said = run(capsys, *words)
        assert code == 1 and "p_mismatch has values outside 0 to 1; `auditor score` computes it again" in said
    run_command_line(["verify", str(audit), "--files"])
    assert "p_mismatch has values outside 0 to 1" in " ".join(capsys.readouterr().out.split())


# Corpora


def read_statuses(corpus: Path, **options: Any) -> dict[str, tuple[str, str]]:
    samples: list[Sample] = []
    for shard in open_corpus(str(corpus), CorpusOptions(**options)).shards:
        shard.fingerprint()
        with shard.open() as opened:
            samples += opened.samples
    problems = {sample.key: sample.problem for sample in samples}
    return {key: (problem.status, problem.message) if problem else ("ok", "") for key, problem in problems.items()}


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A folder with one sound pair, and a secret beside it."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    (folder / "a.jpg").write_bytes(make_picture(0))
    (folder / "a.txt").write_text("a picture")
    (tmp_path / "secret.jpg").write_bytes(make_picture(1))
    (tmp_path / "secret.txt").write_text("a secret")
    return folder


def test_links_out_of_a_corpus_are_rows_with_a_status(pictures: Path, tmp_path: Path) -> None:
    (pictures / "b.jpg").symlink_to(tmp_path / "secret.jpg")
    (pictures / "b.txt").write_text("a picture of somebody else")
    (pictures / "c.jpg").write_bytes(make_picture(2))
    (pictures / "c.txt").symlink_to("../secret.txt")
    (pictures / "d.jpg").symlink_to("a.jpg")
    (pictures / "d.txt").symlink_to(pictures / "a.txt")
    statuses = read_statuses(pictures)
    assert {key: status for key, (status, _) in statuses.items()} == {
        "a": "ok",
        "b": "outside",
        "c": "outside",
        "d": "ok",
    }
    assert statuses["b"][1] == "b.jpg is a link out of the corpus; --follow-links follows it"
    followed = read_statuses(pictures, follow_links=True)
    assert {status for status, _ in followed.values()} == {"ok"}


def test_special_files_in_a_folder_are_rows_with_a_reason(pictures: Path) -> None:
    os.mkfifo(pictures / "pipe.jpg")
    (pictures / "pipe.txt").write_text("a pipe")
    (pictures / "text.jpg").write_bytes(make_picture(1))
    os.mkfifo(pictures / "text.txt")
    (pictures / "zero.jpg").write_bytes(make_picture(2))
    (pictures / "zero.txt").symlink_to("/dev/zero")
    for options in ({}, {"follow_links": True}):
        statuses = read_statuses(pictures, **options)
        assert statuses["a"] == ("ok", "")
        assert statuses["pipe"] == ("corrupt", "pipe.jpg: not a regular file")
        assert statuses["text"] == ("corrupt", "text.txt: not a regular file")
        assert statuses["zero"][0] == ("corrupt" if options else "outside")


def test_captions_have_a_limit(pictures: Path) -> None:
    (pictures / "a.txt").write_text("x" * 1001)
    assert read_statuses(pictures, max_caption_bytes=1001)["a"][0] == "ok"
    status, message = read_statuses(pictures, max_caption_bytes=1000)["a"]
    assert status == "corrupt" and "1001 bytes: too large for a caption" in message


def test_a_pipe_in_place_of_a_tar_or_a_table(tmp_path: Path) -> None:
    for name in ("a.tar", "b.csv", "c.parquet"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(CorpusError, match=r"not a regular file|cannot be read"):
            read_statuses(tmp_path / name)


def test_shards_that_are_links_out_of_a_folder_are_refused(made: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "0.tar").symlink_to(made[1] / "00000.tar")
    with pytest.raises(CorpusError, match="is a link out of the corpus; --follow-links reads it"):
        open_corpus(str(tmp_path / "corpus"))
    assert len(open_corpus(str(tmp_path / "corpus"), CorpusOptions(follow_links=True)).shards) == 1
    assert len(open_corpus(str(tmp_path / "corpus" / "0.tar")).shards) == 1, "the user named the link"


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_tables_name_only_files_below_them(pictures: Path, tmp_path: Path, form: str) -> None:
    (pictures / "linked").symlink_to(tmp_path)
    places = ["a.jpg", str(tmp_path / "secret.jpg"), "../secret.jpg", "linked/secret.jpg", "http://127.0.0.1:1/x.jpg"]
    table = pa.table({"image": places, "caption": ["a caption"] * len(places), "key": [f"{n}" for n in range(5)]})
    path = pictures / f"table.{form}"
    if form == "csv":
        import pyarrow.csv

        pyarrow.csv.write_csv(table, path)
    else:
        pq.write_table(table, path)
    statuses = read_statuses(path)
    assert [statuses[f"{n}"][0] for n in range(5)] == ["ok"] + ["outside"] * 4
    assert statuses["1"][1].endswith(f"lies outside {pictures}; --media-root {tmp_path} allows it")
    assert statuses["4"][1].endswith("--media-root http://127.0.0.1:1/ allows it")
    allowed = read_statuses(path, media_root=(str(tmp_path), "http://127.0.0.1:1"))
    assert [allowed[f"{n}"][0] for n in range(5)] == ["ok"] * 5
