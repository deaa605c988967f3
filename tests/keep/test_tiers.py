"""Tiers: every kept pair is in exactly one, the best first, and open_clip parses the printed options."""

import shlex
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor.cli import run_command_line
from auditor.corpus.shard_writer import Members, PortableTar
from auditor.errors import AuditorError
from auditor.keep.tiers import Tiers, export_tiers
from auditor.python_api import Audit
from tests.support.synthetic import write_corpus_audit


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus_audit(tmp_path_factory.mktemp("tiers"))[0]


def write_tiers(audit: Path, out: Path, count: int = 3, by: str = "p_mismatch", **options: Any) -> Tiers:
    rules = options.pop("rules", {})
    with Audit(audit) as opened:
        return export_tiers(opened.keep(**rules), str(out), count, by, shard_size=10, **options)


def list_captions(folder: Path) -> list[tuple[str, str]]:
    found = []
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as tar:
            for member in tar:
                if member.name.endswith(".txt"):
                    text = tar.extractfile(member)
                    assert text is not None
                    found += [(member.name[:-4], line) for line in text.read().decode().splitlines()]
    return found


def test_every_kept_pair_is_in_the_tier_of_its_rank(audit: Path, tmp_path: Path) -> None:
    done = write_tiers(audit, tmp_path / "out", rules={"max_p_mismatch": 0.9})
    with Audit(audit) as opened:
        condition = "status = 'ok' AND p_mismatch <= 0.9"
        rows = opened.sql(f"SELECT key, caption, p_mismatch AS p FROM samples WHERE {condition}").to_pylist()
    p = {(row["key"], row["caption"]): row["p"] for row in rows}
    tiers = [list_captions(tmp_path / "out" / f"tier-{number}") for number in (1, 2, 3)]
    assert sorted(pair for tier in tiers for pair in tier) == sorted(p)
    assert max(map(len, tiers)) - min(map(len, tiers)) <= 1
    values = [[p[pair] for pair in tier] for tier in tiers]
    assert max(values[0]) <= min(values[1]) and max(values[1]) <= min(values[2])
    for tier, found in zip(done.tiers, values, strict=True):
        assert tier.pairs == len(found)
        assert tier.expected_good == pytest.approx(1 - sum(found) / len(found), abs=1e-6)
        assert tier.factor == pytest.approx(tier.expected_good / done.tiers[0].expected_good)  # type: ignore[operator]


def test_open_clip_understands_the_line(audit: Path, tmp_path: Path) -> None:
    data = pytest.importorskip("open_clip_train.data", reason="open_clip_torch with its training program")
    params = pytest.importorskip("open_clip_train.params")
    done = write_tiers(audit, tmp_path / "out")
    given = params.parse_args(shlex.split(done.open_clip))
    paths, factors = data.expand_urls(given.train_data, given.train_data_upsampling_factors)
    assert all(Path(path).is_file() for path in paths)
    assert sorted(paths) == sorted(str(path) for path in (tmp_path / "out").rglob("*.tar"))
    assert len(factors) == len(paths) and factors[0] == 1.0 > factors[-1]
    assert given.dataset_resampled and given.train_num_samples == sum(tier.samples for tier in done.tiers)


def test_a_tier_of_one_shard_is_named_without_braces(audit: Path, tmp_path: Path) -> None:
    with Audit(audit) as opened:
        done = export_tiers(opened.keep(), str(tmp_path / "out"), 2, "similarity", shard_size=1000)
    assert done.tiers[1].shards_spec == f"{tmp_path}/out/tier-2/00000.tar"


def test_a_run_that_was_stopped_goes_on(audit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, add, left = tmp_path / "out", PortableTar.add, iter(range(30))

    def stopping(tar: PortableTar, key: str, members: Members) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        add(tar, key, members)

    monkeypatch.setattr(PortableTar, "add", stopping)
    with pytest.raises(KeyboardInterrupt):
        write_tiers(audit, out)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.tar")}
    assert 2 <= len(before) < 9 and not (out / "tiers.json").exists()
    monkeypatch.setattr(PortableTar, "add", add)
    write_tiers(audit, out)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert len(list(out.rglob("*.tar"))) == 9


def test_what_is_there_is_replaced_by_force_only(audit: Path, tmp_path: Path) -> None:
    write_tiers(audit, tmp_path / "out")
    with pytest.raises(AuditorError, match="--force replaces it"):
        write_tiers(audit, tmp_path / "out")
    write_tiers(audit, tmp_path / "out", 2, force=True)
    assert sorted(path.name for path in (tmp_path / "out").glob("tier-*")) == ["tier-1", "tier-2"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("mine")
    with pytest.raises(AuditorError, match=r"holds other files \(thesis.tex\)"):
        write_tiers(audit, tmp_path / "other", force=True)
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["thesis.tex"]


def test_the_command_prints_it(audit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["filter", str(audit), "--tiers", "2", "--out"]
    assert run_command_line([*arguments, str(tmp_path / "out"), "--max-p-mismatch", "0.5"]) == 0
    shown = capsys.readouterr().out
    assert "tiers by p_mismatch" in shown and "--train-data-upsampling-factors 1::" in shown
    assert run_command_line([*arguments, str(tmp_path / "out.npy")]) == 1
    assert "out.npy is a file" in capsys.readouterr().err
    assert (
        run_command_line([*arguments, str(tmp_path / "few"), "--where", "uid < '00000000000000000000000000000002'"])
        == 1
    )
    assert "cannot be divided into 2 tiers" in capsys.readouterr().err


def test_pairs_without_a_value_leave_no_tier_empty(tmp_path: Path) -> None:
    folder = write_corpus_audit(tmp_path)[0]
    for path in (folder / "samples").glob("*.parquet"):  # four of five rows without an estimate
        table = pq.read_table(path)
        place = table.schema.get_field_index("p_mismatch")
        p = [value if row % 5 == 0 else None for row, value in enumerate(table["p_mismatch"].to_pylist())]
        pq.write_table(table.set_column(place, table.schema.field(place), pa.array(p, pa.float32())), path)
    with Audit(folder) as opened:
        pairs, ranked = len(opened.keep()), opened.count("status = 'ok' AND p_mismatch IS NOT NULL")
    done = write_tiers(folder, tmp_path / "out")
    first, second, last = (tier.pairs for tier in done.tiers)
    assert abs(first - ranked / 3) < 1 and abs(second - ranked / 3) < 1 and first + second + last == pairs
    assert all(tier.shards for tier in done.tiers)
    with pytest.raises(AuditorError, match="0 kept pairs with p_mismatch cannot be divided into 3 tiers"):
        write_tiers(folder, tmp_path / "none", rules={"where": "p_mismatch IS NULL"})
