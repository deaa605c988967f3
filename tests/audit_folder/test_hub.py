"""The Hugging Face hub: datasets as corpora and as targets of exports, against a stand-in of its API."""

import os
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor.audit_folder import hub as store
from auditor.audit_folder.folder import Folder, StorageError
from auditor.audit_folder.lock import hold_folder_lock
from auditor.corpus.open_corpus import open_corpus
from auditor.corpus.read_medium import read_media
from auditor.errors import AuditorError
from auditor.keep.export import export_subset
from auditor.python_api import Audit
from tests.support.corpora import make_caption, make_picture, write_corpus
from tests.support.hub import TOKEN, Hub, serve_hub  # noqa: F401
from tests.support.synthetic import write_corpus_audit


def make_parquet(first: int, rows: int = 4) -> bytes:
    """A table as the hub converts datasets: a struct of bytes and path, and a caption."""
    images = [{"bytes": make_picture(i), "path": f"{i}.jpg"} for i in range(first, first + rows)]
    table = pa.table({"image": images, "text": [make_caption(i) for i in range(first, first + rows)]})
    buffer = BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def add_tables(hub: Hub, count: int = 5, **options: bool) -> str:
    files = {f"data/train-{i:05d}-of-{count:05d}.parquet": make_parquet(4 * i) for i in range(count)}
    return hub.add("org/photos", {"README.md": b"# photos", ".gitattributes": b"", **files}, **options)


def read_corpus(spec: str) -> dict[str, tuple[str, ...]]:
    """The captions by key, after the bytes of each medium were read."""
    captions = {}
    for shard in open_corpus(spec).shards:
        assert shard.fingerprint() == shard.fingerprint()
        with shard.open() as opened:
            for sample in opened.samples:
                assert sample.media is not None and opened.read(sample.media).startswith(b"\xff\xd8")
                captions[f"{shard.name}/{sample.key}"] = sample.captions
    return captions


def test_parquet_of_a_dataset_is_a_corpus(hub: Hub) -> None:
    captions = read_corpus(add_tables(hub))
    assert sorted(captions.values()) == sorted((make_caption(i),) for i in range(20))


def test_tars_below_a_path_and_a_glob_are_a_corpus(hub: Hub, tmp_path: Path) -> None:
    write_corpus(tmp_path / "wds", shards=3, size=3)
    (tmp_path / "notes.txt").write_text("no corpus")
    url = hub.add_folder("org/tars", tmp_path)
    assert len(read_corpus(f"{url}/wds")) == len(read_corpus(f"{url}@main/wds/*.tar")) == 9
    assert len(read_corpus(url + "/wds/{00000..00001}.tar")) == 6


def test_a_commit_during_an_audit_changes_nothing(hub: Hub) -> None:
    url = add_tables(hub, 2)
    corpus = open_corpus(url)
    dataset = hub.datasets["org/photos"]
    first = dataset.sha
    prints = [shard.fingerprint() for shard in corpus.shards]
    dataset.commit({**dataset.files, "data/train-00000-of-00002.parquet": make_parquet(100)})
    assert f"@{first}/" in corpus.root + "/"
    with corpus.shards[0].open() as opened:
        assert [sample.captions for sample in opened.samples] == [(make_caption(i),) for i in range(4)]
        media = opened.samples[2].media
        assert media is not None
    assert read_media(media.path, media.offset, media.size) == make_picture(2)
    later = [shard.fingerprint() for shard in open_corpus(url).shards]
    assert later[0] != prints[0] and later[1] == prints[1]  # only the changed file is swept again
    assert [shard.fingerprint() for shard in open_corpus(f"{url}@{first}").shards] == prints


def test_listings_do_not_grow_with_the_number_of_shards(hub: Hub) -> None:
    """2 requests about the repository, one for each page of the listing, and one for each file that is read."""
    read_corpus(add_tables(hub, 8))
    entries = 8 + 3  # the files, README, .gitattributes, data/
    pages = -(-entries // 3)
    # Of a large tree, huggingface_hub reads two pages before it lists the folders one by one.
    assert hub.count("/tree/") == pages + 2
    assert hub.count("/api/datasets/") - hub.count("/tree/") == 2
    assert hub.count("/resolve/") == 8


@pytest.mark.parametrize("status", [429, 503, 0])
@pytest.mark.parametrize("pattern", ["/api/datasets/org/photos", "/tree/", "/resolve/"])
def test_a_busy_hub_is_asked_again(hub: Hub, pattern: str, status: int) -> None:
    url = add_tables(hub, 1)
    hub.fail(pattern, status, Retry_After="0")
    assert len(read_corpus(url)) == 4
    assert not hub.faults


def test_a_hub_that_stays_busy_is_one_line(hub: Hub) -> None:
    url = add_tables(hub, 1)
    hub.fail("/api/datasets/org/photos", 429, 20)
    with pytest.raises(StorageError, match=r"limits requests: wait some minutes, or set HF_TOKEN"):
        open_corpus(url)
    assert hub.count("/api/datasets/") == len(store.PAUSES) + 1


def test_missing_private_gated_and_wrong_revision_are_one_line(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"data/a.parquet": make_parquet(0)}
    private, gated = hub.add("org/private", table, private=True), hub.add("org/gated", table, gated=True)
    open_url = hub.add("org/open", table)
    cases = {
        "hf://datasets/org/nothing": "does not exist or is private: check the name, or set HF_TOKEN",
        private: "does not exist or is private",
        gated: "gated: accept its terms on its page and set HF_TOKEN",
        f"{open_url}@v9": "no such revision",
        f"{open_url}/nowhere": "does not exist",
        "hf://datasets/open": "write hf://datasets/ORG/NAME",
    }
    for url, message in cases.items():
        with pytest.raises(AuditorError) as caught:
            open_corpus(url)
        assert message in str(caught.value) and url[:22] in str(caught.value)
        assert "\n" not in str(caught.value)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert len(read_corpus(private)) == len(read_corpus(gated)) == 4


def test_the_token_is_never_printed(hub: Hub) -> None:
    url = hub.add("org/private", {"data/a.parquet": make_parquet(0)}, private=True)
    token = "hf_wrong_token_of_somebody"
    code = f"from auditor.cli import run_command_line as run; raise SystemExit(run(['audit', {url!r}, '--out=x']))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env={**os.environ, "HF_TOKEN": token}
    )
    assert done.returncode and token not in done.stdout + done.stderr
    assert "does not exist or is private" in done.stderr and "Traceback" not in done.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_corpus_audit(tmp_path_factory.mktemp("export"))


@pytest.mark.filterwarnings("ignore:Use 'content:DeprecationWarning")  # of huggingface_hub
def test_an_export_is_one_commit(hub: Hub, made: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    url = hub.add("me/clean", {"README.md": b"mine", ".gitattributes": b""})
    dataset = hub.datasets["me/clean"]
    hub.fail("/preupload/", 503, Retry_After="0")
    with Audit(made[0]) as audit:
        subset = audit.keep(where="true")
        result = export_subset(subset, url, shard_size=50)
        assert result.target == url and len(dataset.commits) == 1
        tars = sorted(name for name in dataset.files if name.endswith(".tar"))
        assert len(tars) == result.shards and {"README.md", "removed.parquet", "export.json"} <= set(dataset.files)
        keys = set()
        for name in tars:
            with tarfile.open(fileobj=BytesIO(dataset.files[name])) as tar:
                keys |= {member.rpartition(".")[0] for member in tar.getnames()}
        assert len(keys) == result.rows
        with pytest.raises(StorageError, match="exists; --force replaces it"):
            export_subset(subset, url)
        export_subset(subset, url, shard_size=10**6, force=True)
        assert len(dataset.commits) == 2 and dataset.files["README.md"] == b"mine"
        assert [name for name in dataset.files if name.endswith(".tar")] == ["00000.tar"]
        export_subset(subset, f"{url}/lists/kept.txt")
        assert len(dataset.files["lists/kept.txt"].splitlines()) == result.rows and len(dataset.commits) == 3
    assert len(open_corpus(f"{url}/00000.tar").shards) == 1


def test_an_export_without_the_right_to_write_is_one_line(hub: Hub, made: tuple[Path, Path]) -> None:
    url = hub.add("me/clean", {"README.md": b""})
    with Audit(made[0]) as audit:
        with pytest.raises(StorageError, match="has no right to this"):
            export_subset(audit.keep(where="true"), url)
        with pytest.raises(StorageError, match="does not exist or is private"):
            export_subset(audit.keep(where="true"), "hf://datasets/me/nothing")


def test_audits_are_not_written_to_the_hub(hub: Hub) -> None:
    url = hub.add("me/audit", {"README.md": b""})
    with pytest.raises(StorageError, match="each write would be a commit"), hold_folder_lock(Folder(url)):
        pass
