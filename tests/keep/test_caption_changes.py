"""Edited captions, dropped parts and stripped preambles are the same in every export, and nothing else changes."""

import csv
import json
import os
import pickle
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
import webdataset as wds

from auditor.cli import run_command_line
from auditor.keep.caption_changes import CaptionChanges
from auditor.keep.export_fiftyone import build_samples
from auditor.keep.export_target import ExportError
from auditor.keep.subset import Subset
from auditor.keep.tiers import export_tiers
from auditor.python_api import Audit
from auditor.query.rules import RuleError, Rules
from tests.support.edited import change_rows, split_at, write_expected
from tests.support.synthetic import write_corpus_audit

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
EDITS = {
    ("000000", 1): "Ein Hündchen läuft über den Strand",
    ("000004", 0): "一只狗在海滩上奔跑。",
    ("000021", 0): "كلب يركض \u200fعلى الشاطئ 🐕",
}
RULES: list[dict[str, Any]] = [
    {"where": "true"},
    {"drop_weak_parts": 0.5},
    {"strip_preamble": True},
    {"drop_weak_parts": "50%", "strip_preamble": True},
    {"drop_weak_parts": 0.5, "strip_preamble": True, "no_edits": True, "where": "caption_index < 2"},
    {"drop_weak_parts": 0.5, "per_medium": "any", "max_p_mismatch": 0.9},
]
Captions = set[tuple[str, str]]


def describe_rows(rows: dict[tuple[str, int], dict[str, Any]]) -> dict[tuple[str, int], dict[str, Any]]:
    """The parts and preambles of some rows, for all ways in which they meet."""

    def parts(place: tuple[str, int], probabilities: str, *words: int) -> dict[str, Any]:
        return {"part_ends": split_at(rows[place]["caption"], *words), "part_probabilities": probabilities}

    def opening(place: tuple[str, int], words: int) -> dict[str, Any]:
        return {"preamble": " ".join(rows[place]["caption"].split()[:words])}

    return {
        ("000001", 0): parts(("000001", 0), "0.1 0.9 0.2", 2, 4),
        ("000001", 1): parts(("000001", 1), "0.9 0.8", 2),  # nothing is left
        ("000002", 0): opening(("000002", 0), 2),
        ("000002", 1): parts(("000002", 1), "0.1 0.7 0.9", 2, 3) | opening(("000002", 1), 1),
        ("000003", 0): parts(("000003", 0), "0.9 0.1", 3)
        | opening(("000003", 0), 2),  # the preamble goes with its part
        ("000003", 1): {"preamble": rows["000003", 1]["caption"]},  # nothing else is there
        ("000004", 0): parts(("000004", 0), "0.9 0.9", 2) | opening(("000004", 0), 2),  # but edited
        ("000005", 0): {"part_ends": "3 nonsense", "part_probabilities": "0.9 0.9"},  # not consistent
        ("000005", 1): {"part_ends": "3 9", "part_probabilities": "0.9"},
        ("000022", 0): parts(("000022", 0), "0.2 0.50001", 2),
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    audit, corpus = write_corpus_audit(tmp_path_factory.mktemp("changes"), captions=3)
    with Audit(audit) as opened:
        rows = {(row["key"], row["caption_index"]): row for row in opened.sql("SELECT * FROM samples").to_pylist()}
    change_rows(audit, describe_rows(rows))
    with Audit(audit) as opened:
        for (key, index), text in EDITS.items():
            opened.edit(key, text, caption_index=index, reviewer="ann")
    return audit, corpus


def expect_captions(audit: Audit, rules: dict[str, Any]) -> Captions:
    """The key and caption of each kept row, without the rules on parts in SQL."""
    others = {name: value for name, value in rules.items() if name not in ("drop_weak_parts", "strip_preamble")}
    kept_uids = set(audit.keep(**others).uids.to_pylist())
    most = 0.5 if "drop_weak_parts" in rules else None
    captions = set()
    for row in audit.sql("SELECT * FROM samples").to_pylist():
        if row["uid"] in kept_uids:
            edit = None if rules.get("no_edits") else EDITS.get((row["key"], row["caption_index"]))
            text = write_expected(row, edit, most, strip=bool(rules.get("strip_preamble")))
            captions |= {(row["key"], text)} if text else set()
    return captions


def list_captions(samples: Any) -> Iterator[tuple[str, str]]:
    """(key, caption) of samples; the .txt and .json of each agree."""
    for sample in samples:
        texts = sample["txt"].decode().split("\n")
        assert json.loads(sample["json"])["captions"] == texts
        yield from ((sample["__key__"], text) for text in texts)


def read_members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]


@pytest.mark.parametrize("rules", RULES, ids=lambda rules: " ".join(rules))
def test_every_reader_gets_the_same_captions(made: tuple[Path, Path], rules: dict[str, Any], tmp_path: Path) -> None:
    with Audit(made[0]) as audit:
        expected = expect_captions(audit, rules)
        kept = audit.keep(**rules)
        assert kept.count == len(expected)
        result = kept.write(tmp_path / "out", shard_size=7)
        written = sorted(str(path) for path in (tmp_path / "out").glob("*.tar"))
        originals = sorted(str(path) for path in made[1].glob("*.tar"))
        captions = pickle.loads(pickle.dumps(kept.captions()))
        assert set(list_captions(wds.WebDataset(written, shardshuffle=False))) == expected
        assert sorted(list_captions(kept.samples())) == sorted(expected)
        assert set(list_captions(kept.webdataset())) == expected
        assert set(list_captions(wds.WebDataset(originals, shardshuffle=False).map(captions))) == expected
        table = kept.to_arrow(["key", "caption"]).to_pylist()
        assert {(row["key"], row["caption"]) for row in table} == expected
        rows = list(build_samples(kept, "image", tmp_path / "media", SimpleNamespace(Sample=SimpleNamespace)))
        assert {(row.key, row.caption) for row in rows} == expected and len(rows) == len(expected)
        assert result.changes["changed"] == len(expected - expect_captions(audit, {"no_edits": True}))
        assert kept.effects().kept == kept.count


def test_tables_name_the_original_caption_where_it_differs(made: tuple[Path, Path], tmp_path: Path) -> None:
    rules = RULES[3]
    with Audit(made[0]) as audit:
        kept = audit.keep(**rules)
        kept.write(tmp_path / "kept.parquet")
        originals = {row["uid"]: row["caption"] for row in audit.sql("SELECT uid, caption FROM samples").to_pylist()}
        assert audit.keep(no_edits=True).columns == audit.columns and "original_caption" not in audit.columns
    assert run_command_line(["export", str(made[0]), "--csv", str(tmp_path / "kept.csv"), "--drop-weak-parts", "0.5",
                             "--strip-preamble"]) == 0  # fmt: skip
    rows = pq.read_table(tmp_path / "kept.parquet").to_pylist()
    with (tmp_path / "kept.csv").open(encoding="utf-8-sig", newline="") as file:
        lines = {line["uid"]: line for line in csv.DictReader(file)}
    assert {row["uid"] for row in rows} == set(lines)
    for row in rows:
        changed = row["caption"] != originals[row["uid"]]
        assert row["original_caption"] == (originals[row["uid"]] if changed else None)
        assert lines[row["uid"]]["caption"] == row["caption"]
        assert lines[row["uid"]]["original_caption"] == (row["original_caption"] or "")
    assert sum(row["original_caption"] is not None for row in rows) == 8


def test_datasets_have_the_changed_captions(made: tuple[Path, Path]) -> None:
    pytest.importorskip("datasets", reason="Hugging Face's datasets is not installed")
    with Audit(made[0]) as audit:
        dataset = audit.keep(**RULES[3]).to_datasets()
        pairs = {(row["key"], text) for row in dataset.select_columns(["key", "captions"]) for text in row["captions"]}
        assert pairs == expect_captions(audit, RULES[3])


def test_other_members_and_samples_stay_byte_for_byte(made: tuple[Path, Path], tmp_path: Path) -> None:
    with Audit(made[0]) as audit:
        audit.keep(where="true").write(tmp_path / "out", shard_size=1000)
        uids = set(pq.read_table(tmp_path / "out" / "removed.parquet")["uid"].to_pylist())
        assert len(uids) == audit.count("status <> 'ok'")
    before: dict[str, bytes] = {}
    for path in made[1].glob("*.tar"):
        before |= read_members(path)
    after = read_members(tmp_path / "out" / "00000.tar")
    edited = {f"{key}.{name}" for key, _ in EDITS for name in ("txt", "json")}
    assert {name for name in after if after[name] != before[name]} == edited
    assert set(before) - set(after) == {f"{key}.{name}" for key in ("000019", "000039", "000059")
                                        for name in ("jpg", "txt", "json")}  # fmt: skip


def test_a_caption_without_a_sound_part_is_removed_with_the_reason(made: tuple[Path, Path], tmp_path: Path) -> None:
    assert run_command_line(["filter", str(made[0]), "--drop-weak-parts", "50%", "--out", str(tmp_path / "out")]) == 0
    removed = pq.read_table(tmp_path / "out" / "removed.parquet").to_pylist()
    assert [(row["key"], row["caption_index"]) for row in removed if row["reason"] == "drop_weak_parts"] == [
        ("000001", 1)
    ]
    plan = json.loads((tmp_path / "out" / "export.json").read_text())
    assert plan["rules"] == {"drop_weak_parts": 0.5}


def test_the_counts_are_printed(made: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--drop-weak-parts", "0.5", "--strip-preamble"]
    line = "8 captions changed: 3 edited by hand, 4 without weak parts, 2 without a preamble"
    targets = (
        ["--out", "OUT/a.parquet"],
        ["--out", "OUT/shards"],
        ["--dry-run"],
        ["--tiers", "2", "--out", "OUT/tiers"],
    )
    for target in targets:
        names = [name.replace("OUT", str(tmp_path)) for name in target]
        assert run_command_line(["filter", str(made[0]), *options, *names]) == 0
        assert line in capsys.readouterr().out
    assert run_command_line(["filter", str(made[0]), "--where", "true", "--out", str(tmp_path / "kept.npy")]) == 0
    assert "3 captions changed: 3 edited by hand; a list of keys or uids cannot" in capsys.readouterr().out
    unchanged = ["filter", str(made[0]), "--where", "true", "--no-edits", "--out", str(tmp_path / "plain.parquet")]
    assert run_command_line(unchanged) == 0
    assert "changed" not in capsys.readouterr().out
    assert run_command_line(["filter", str(made[0]), *options, "--out", str(tmp_path / "b.parquet"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["changes"] == {
        "changed": 8, "edited": 3, "without_weak_parts": 4, "without_preamble": 2
    }  # fmt: skip


def test_no_edits_alone_is_no_rule(made: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["filter", str(made[0]), "--no-edits", "--out", str(tmp_path / "x")]) == 2
    assert "keep which rows?" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [-0.1, 1.5, "many", float("nan")])
def test_a_probability_is_a_probability(wrong: Any) -> None:
    with pytest.raises(RuleError, match="drop_weak_parts"):
        Rules.of(drop_weak_parts=wrong)


def test_tiers_have_the_changed_captions(made: tuple[Path, Path], tmp_path: Path) -> None:
    with Audit(made[0]) as audit:
        subset = audit.keep(**RULES[3])
        tiers = export_tiers(subset, str(tmp_path / "tiers"), 2, "p_mismatch", shard_size=1000)
        written = [f"{tier.folder}/00000.tar" for tier in tiers.tiers]
        assert set(list_captions(wds.WebDataset(written, shardshuffle=False))) == expect_captions(audit, RULES[3])


def test_exports_are_told_apart_by_their_rows_and_texts(made: tuple[Path, Path]) -> None:
    with Audit(made[0]) as audit:
        first, second = (audit.keep(where=f"caption_index = {number}") for number in (0, 1))
        assert len(first) == len(second) and first.digest_rows() != second.digest_rows()
        assert audit.keep(where="true").digest_rows() != audit.keep(where="true", no_edits=True).digest_rows()
        assert audit.keep(where="false").digest_rows() == 0


def test_an_interrupted_export_resumes_only_with_the_same_edits(tmp_path: Path) -> None:
    folder, _ = write_corpus_audit(tmp_path, captions=2)
    out = tmp_path / "out"

    def stop(_: int, left: list[int] = [30]) -> None:  # noqa: B006 (counts the calls)
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    with Audit(folder) as audit:
        audit.edit("000003", "Edited before the export", reviewer="ann")
        subset = audit.keep(where="true")
        from auditor.keep.export import export_subset

        with pytest.raises(KeyboardInterrupt):
            export_subset(subset, out, shard_size=5, progress=stop)
        finished = {path: path.read_bytes() for path in out.glob("*.tar")}
        assert 3 < len(finished) < 12
        audit.edit("000030", "Edited in between", reviewer="bob")
        with pytest.raises(ExportError, match="other rules or edits"):
            audit.keep(where="true").write(out, shard_size=5)
        audit.edit("000030", None, reviewer="bob")
        times = {path: os.stat(path).st_mtime_ns for path in finished}
        assert audit.keep(where="true").write(out, shard_size=5).changes["edited"] == 1
        assert {path: os.stat(path).st_mtime_ns for path in finished} == times  # not written again
        written = sorted(map(str, out.glob("*.tar")))
        captions = set(list_captions(wds.WebDataset(written, shardshuffle=False)))
        assert ("000003", "Edited before the export") in captions and len(captions) == subset.count


def test_an_export_keeps_the_edits_that_it_began_with(made: tuple[Path, Path]) -> None:
    with Audit(made[0]) as audit:
        kept = audit.keep(**RULES[3])
        expected = expect_captions(audit, RULES[3])
        audit.edit("000006", "Edited while the export runs", reviewer="eve")
        try:
            assert set(list_captions(kept.samples())) == expected
            assert ("000006", "Edited while the export runs") in set(list_captions(audit.keep().samples()))
        finally:
            audit.edit("000006", None, reviewer="eve")


def test_nothing_changes_without_rules_and_edits(tmp_path: Path) -> None:
    folder, _ = write_corpus_audit(tmp_path)
    with Audit(folder) as audit:
        kept = Subset(audit.database, Rules())
        assert not kept.changes and kept.change_counts == {} and kept.columns == audit.columns
        assert not CaptionChanges() and CaptionChanges(drop_weak_parts=0.0)


def test_parts_are_counted_in_characters(tmp_path: Path) -> None:
    """Not in bytes: offsets are those of Python's text."""
    folder, _ = write_corpus_audit(tmp_path, shards=1, captions=1)
    caption = "一只狗🐕在海滩上。第二句不对！最后一句é ok."
    second, third = caption.index("第"), caption.index("最")
    parts = {"part_ends": f"{second} {third} {len(caption)}", "part_probabilities": "0.1 0.9 0.1"}
    change_rows(folder, {("000000", 0): {"caption": caption, **parts}})
    with Audit(folder) as audit:
        kept = audit.keep(drop_weak_parts=0.5).to_arrow(["key", "caption"]).to_pylist()
        assert {"key": "000000", "caption": "一只狗🐕在海滩上。最后一句é ok."} in kept
