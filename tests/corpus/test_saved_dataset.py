"""Folders and Parquet files written by Hugging Face's `datasets`, and datasets of kept samples."""

import gc
import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from auditor.corpus.open_corpus import CorpusError, CorpusOptions, open_corpus
from auditor.corpus.read_medium import read_media
from auditor.errors import AuditorError
from auditor.python_api import Audit
from auditor.run.audit_config import AuditConfig
from auditor.run.run_audit import run_audit
from auditor.sweep.sweep_config import SweepConfig
from tests.support.corpora import make_caption, make_picture
from tests.support.synthetic import write_corpus_audit

datasets = pytest.importorskip("datasets", reason="Hugging Face's datasets is not installed")


def make_dataset(count: int = 20, first: int = 0) -> Any:
    numbers = range(first, first + count)
    columns = {
        "image": [{"bytes": make_picture(i), "path": f"photo_{i}.jpg"} for i in numbers],
        "text": [make_caption(i) for i in numbers],
        "license": ["cc-by" if i % 2 else "unknown" for i in numbers],
    }
    features = {"image": datasets.Image(), "text": datasets.Value("string"), "license": datasets.Value("string")}
    return datasets.Dataset.from_dict(columns, features=datasets.Features(features))


@pytest.fixture(autouse=True)
def quiet() -> None:
    datasets.disable_progress_bars()


def samples_of(spec: Path, **options: Any) -> list[Any]:
    found = []
    for shard in open_corpus(str(spec), CorpusOptions(**options)).shards:
        with shard.open() as opened:
            for sample in opened.samples:
                assert opened.read(sample.media) == read_media(sample.media.path, 0, sample.media.size)
                found.append((sample.key, sample.captions, opened.read(sample.media), sample.problem))
    return found


def expected(count: int, first: int = 0) -> list[Any]:
    return [(f"photo_{i}", (make_caption(i),), make_picture(i), None) for i in range(first, first + count)]


def test_a_folder_of_save_to_disk(tmp_path: Path) -> None:
    make_dataset().save_to_disk(tmp_path / "data", num_shards=3)
    assert samples_of(tmp_path / "data") == expected(20)
    names = [shard.name for shard in open_corpus(str(tmp_path / "data"), CorpusOptions(shard_size=5)).shards]
    assert len(names) == len(set(names)) >= 3


def test_splits_are_read_together_and_caches_are_not(tmp_path: Path) -> None:
    both = datasets.DatasetDict({"test": make_dataset(3, first=100), "train": make_dataset(8)})
    both.save_to_disk(tmp_path / "data")
    loaded = datasets.load_from_disk(str(tmp_path / "data"))["train"]
    loaded.map(
        lambda row: {"words": len(row["text"].split())}, cache_file_name=str(tmp_path / "data/train/cache-1.arrow")
    )
    assert (tmp_path / "data/train/cache-1.arrow").is_file()
    found = samples_of(tmp_path / "data")
    assert sorted(found) == sorted(expected(3, first=100) + expected(8))


def test_parquet_of_the_hub(tmp_path: Path) -> None:
    make_dataset(10).to_parquet(str(tmp_path / "train-00000-of-00001.parquet"))
    assert samples_of(tmp_path / "train-00000-of-00001.parquet") == expected(10)


def test_an_arrow_file_is_audited_and_its_kept_samples_are_exported(tmp_path: Path, random_model: str) -> None:
    make_dataset(12).save_to_disk(tmp_path / "data")
    corpus, out, options = str(tmp_path / "data"), str(tmp_path / "audit"), CorpusOptions(carry=("license",))
    run_audit(AuditConfig(corpus, out, random_model, options=options, sweep=SweepConfig(decoders=1), quiet=True))
    with Audit(tmp_path / "audit") as audit:
        row = audit.sql("SELECT * FROM samples WHERE key = 'photo_7'").to_pylist()[0]
        assert (row["license"], row["caption"], audit.media(row)) == ("cc-by", make_caption(7), make_picture(7))
        done = audit.keep(where="license = 'cc-by'").write(tmp_path / "kept.parquet", input_columns=True)
        assert done.rows == 6
        made = audit.keep(where="license = 'cc-by'").to_datasets()
    assert len(made) == 6 and made.features["image"] == datasets.Image()
    assert {row["key"] for row in made} == {f"photo_{i}" for i in range(1, 12, 2)}


@pytest.mark.parametrize("data", [b"", b"no arrow at all", None])
def test_a_damaged_arrow_file_gives_a_one_line_error(tmp_path: Path, data: bytes | None) -> None:
    make_dataset(5).save_to_disk(tmp_path / "data")
    path = tmp_path / "data" / "data-00000-of-00001.arrow"
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data)
    with pytest.raises(CorpusError, match=r"data-00000-of-00001.arrow is not a readable Arrow file"):
        open_corpus(str(tmp_path / "data"))


def test_a_dataset_of_kept_samples(tmp_path: Path) -> None:
    audit, _ = write_corpus_audit(tmp_path, shards=2, per_shard=8)
    with Audit(audit) as opened:
        kept = opened.keep(max_p_mismatch=0.5)
        made = kept.to_datasets()
        assert len(made) == kept.media and sum(len(row["captions"]) for row in made) == kept.count
        original = {sample["__key__"]: sample["jpg"] for sample in kept.samples()}
        raw = made.cast_column("image", datasets.Image(decode=False))
        assert {row["key"]: row["image"]["bytes"] for row in raw} == original
        first = Image.open(io.BytesIO(original[made[0]["key"]]))
        assert made[0]["image"].size == first.size
        stored = kept.to_datasets(tmp_path / "folder")
        again = datasets.load_from_disk(str(tmp_path / "folder"))
        assert again.features == stored.features and again["captions"][:] == stored["captions"][:]
        with pytest.raises(AuditorError, match="not empty"):
            kept.to_datasets(tmp_path / "folder")
    place = Path(made.cache_files[0]["filename"]).parent
    assert place.is_dir()
    del made, raw
    gc.collect()
    assert not place.exists()
