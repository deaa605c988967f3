"""Long captions through whole audits: encoded, stored and planted; scored again, resumed, extended, shown."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor.audit_folder.embeddings import name_embeddings_file, read_embeddings
from auditor.audit_folder.folder import Folder
from auditor.cli import run_command_line
from auditor.corpus.open_corpus import CorpusOptions
from auditor.python_api import Audit
from auditor.research.retrieval.analyses import compute_auroc
from auditor.run.audit_config import AuditConfig
from auditor.run.run_audit import run_audit
from auditor.score.score_config import ScoreConfig
from auditor.sweep.caption_parts import MOST_PARTS
from model.checkpoint import load_model
from tests.support.corpora import make_picture, write_tar
from tests.support.stored import normalize_rows
from tests.support.timed import write_film_table

SENTENCES = ("A dog runs on a beach.", "A man in a red hat watches it.", "Clouds cover the sky.")
LONG = " ".join(f"{text[:-1]}, number {number}." for number in range(5) for text in SENTENCES)
CAPTIONS = {
    "one": "A dog runs on a beach",
    "two": "A dog runs on a beach. A man watches it.",
    "long": LONG,
    "huge": "A dog runs on a beach. " * 450_000,
    "word": "a" * 5_000_000,
    "wide": "他在公园里跑步。一只狗跟着他！" * 20,
    "emoji": "😀👩🏽‍👧🏽" * 400,
}


def write_corpus(folder: Path, names: list[str], shard: str = "0") -> Path:
    samples = [(name, {"jpg": make_picture(i), "txt": CAPTIONS[name].encode()}) for i, name in enumerate(names)]
    return write_tar(folder / f"{shard}.tar", samples)


def audit(corpus: Path | str, out: Path, model: str | None = None, **options: str) -> None:
    settings = CorpusOptions(**options)  # type: ignore[arg-type]
    run_audit(AuditConfig(str(corpus), str(out), model=model, options=settings, quiet=True))


def read_rows(out: Path) -> dict[str, dict[str, object]]:
    with Audit(out) as opened:
        return {row["key"]: row for row in opened.sql("SELECT * FROM samples").to_pylist()}


def test_captions_of_any_length_are_encoded_in_parts(random_model: str, tmp_path: Path) -> None:
    audit(write_corpus(tmp_path, list(CAPTIONS)), tmp_path / "audit", random_model)
    rows = read_rows(tmp_path / "audit")
    assert {row["status"] for row in rows.values()} == {"ok"}
    parts = {name: rows[name]["parts"] for name in CAPTIONS}
    assert (parts["one"], parts["two"], parts["long"], parts["huge"], parts["word"]) == (
        1,
        2,
        15,
        MOST_PARTS,
        MOST_PARTS,
    )
    assert parts["wide"] >= 40 and parts["emoji"] > 10  # type: ignore[operator]
    assert {name for name in CAPTIONS if rows[name]["truncated_caption"]} == {"huge", "word"}
    for name in ("huge", "word"):
        assert rows[name]["error_message"] == f"the caption has more than {MOST_PARTS} parts; the rest was not encoded"
    assert rows["one"]["part_ends"] is None and rows["one"]["weakest_part"] is None
    assert rows["two"]["part_ends"] == "22 40"
    assert rows["long"]["tokens"] > 32  # type: ignore[operator]

    backbone = load_model(random_model).backbone
    folder = Folder(tmp_path / "audit")
    stored = read_embeddings(folder, "0")
    assert stored.parts is not None
    by_key = dict(zip(stored.facts["key"].to_pylist(), range(len(stored.rows)), strict=True))
    whole = backbone.encode_texts([CAPTIONS["one"], CAPTIONS["two"]]).numpy()
    np.testing.assert_allclose(stored.text[[by_key["one"], by_key["two"]]], whole, atol=2e-3)
    sentences = [f"{text}." for text in LONG.removesuffix(".").split(". ")]
    vectors = backbone.encode_texts(sentences).numpy()
    own = stored.parts.take(np.array([by_key["long"]]))
    np.testing.assert_allclose(own.vectors, vectors, atol=2e-3)
    np.testing.assert_allclose(stored.text[by_key["long"]], normalize_rows(vectors.sum(axis=0)[None])[0], atol=2e-3)
    column = folder.read_table(name_embeddings_file("0"), ["part_embeddings"])["part_embeddings"]
    assert column.is_null().to_pylist() == [name == "one" for name in CAPTIONS]


def test_a_shard_that_grows_and_a_second_shard_keep_the_parts(random_model: str, tmp_path: Path) -> None:
    corpus, out = tmp_path / "corpus", tmp_path / "audit"
    write_corpus(corpus, ["one", "long"])
    audit(corpus, out, random_model)
    before = (out / name_embeddings_file("0")).stat().st_mtime_ns
    write_corpus(corpus, ["two", "wide"], "1")
    assert (
        run_command_line(["audit", str(corpus), "--out", str(out), "--model", random_model, "--extend", "--quiet"]) == 0
    )
    assert (out / name_embeddings_file("0")).stat().st_mtime_ns == before
    rows = read_rows(out)
    assert {name: rows[name]["parts"] for name in ("one", "long", "two")} == {"one": 1, "long": 15, "two": 2}
    assert rows["long"]["part_similarity"] is not None  # known even where there are too few pairs for a probability


def test_timed_captions_of_two_sources_are_judged_in_parts(random_model: str, tmp_path: Path) -> None:
    table, out = write_film_table(tmp_path / "films"), tmp_path / "audit"
    columns = ("raw", "refined")
    run_audit(
        AuditConfig(str(table), str(out), random_model, options=CorpusOptions(caption_column=columns), quiet=True)
    )
    with Audit(out) as opened:
        rows = opened.sql("SELECT * FROM samples ORDER BY key, caption_index").to_pylist()
        key = rows[0]["key"]
        assert "Somebody filmed it" in str(opened.explain(key))
        kept = opened.keep(drop_weak_parts=0.0)
        assert kept.count == len(rows)  # too few pairs for probabilities: no part is dropped
    assert [(row["caption_source"], row["start"], row["end"]) for row in rows] == 2 * [
        (source, float(scene), scene + 1.0) for source in columns for scene in range(3)
    ]
    assert {(row["caption_source"], row["parts"], row["status"]) for row in rows} == {
        ("raw", 2, "ok"),
        ("refined", 1, "ok"),
    }
    first, second = rows[0]["caption"].split(". ")
    assert rows[0]["part_ends"] == f"{len(first) + 1} {len(first) + 2 + len(second)}"
    stored = read_embeddings(Folder(out), rows[0]["shard"])
    assert stored.parts is not None and stored.parts.counts.tolist() == [2, 2, 2, 0, 0, 0] * 2
    assert len(stored.media) == 2 * 2 * 3  # a span of each source is a medium of its own
    backbone = load_model(random_model).backbone
    np.testing.assert_allclose(
        stored.parts.take(np.array([0])).vectors, backbone.encode_texts([f"{first}.", second]).numpy(), atol=2e-3
    )
    similarity = [row["similarity"] for row in rows[:6]]
    vectors = stored.media.take(stored.media_index[:6])
    np.testing.assert_allclose(vectors.own_similarity(stored.text[:6]), similarity, atol=2e-3)


def write_caption(row: int) -> str:
    """Three sentences of random words: captions that differ in few words count as boilerplate."""
    random = np.random.default_rng(row)
    words = [
        "".join(random.choice(list("bdfgklmnprst" if i % 2 == 0 else "aeiou")) for i in range(6)) for _ in range(12)
    ]
    return ". ".join(" ".join(words[start : start + 4]).capitalize() for start in (0, 4, 8)) + "."


def plant_stored(path: Path, count: int = 400, seed: int = 0) -> np.ndarray:
    """A table of media with captions of three sentences, one vector for each; the last of every fifth is wrong."""
    random = np.random.default_rng(seed)
    visual = normalize_rows(random.normal(size=(count, 32)).astype(np.float32))
    about = np.repeat(np.arange(count), 3).reshape(count, 3)
    wrong = np.arange(count) % 5 == 0
    about[wrong, 2] = np.roll(about[wrong, 2], 1)
    text = normalize_rows(
        visual[about] + normalize_rows(random.normal(size=(count, 3, 32)).reshape(-1, 32)).reshape(count, 3, 32)
    )
    text /= np.linalg.norm(text, axis=-1, keepdims=True)
    table = pa.table(
        {
            "visual": list(visual),
            "text": pa.array([list(map(list, parts)) for parts in text.tolist()], pa.list_(pa.list_(pa.float32()))),
            "caption": [write_caption(row) for row in range(count)],
            "key": [f"{row:04d}" for row in range(count)],
        }
    )
    pq.write_table(table, path)
    return wrong


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    folder = tmp_path_factory.mktemp("planted")
    wrong = plant_stored(folder / "v.parquet")
    audit(folder / "v.parquet", folder / "audit", visual_column="visual", text_column="text")
    return folder / "audit", wrong


def test_wrong_sentences_of_stored_vectors_are_found(planted: tuple[Path, np.ndarray]) -> None:
    out, wrong = planted
    rows = [row for _, row in sorted(read_rows(out).items())]
    p = np.array([row["p_part_mismatch"] for row in rows], float)
    assert compute_auroc(p, wrong) > 0.97
    assert abs(p.mean() - wrong.mean()) < 0.03
    assert {row["parts"] for row in rows} == {3}
    weakest = np.array([row["weakest_part"] for row in rows])
    assert (weakest[wrong] == 2).mean() > 0.95
    assert all(len(row["part_probabilities"].split()) == 3 == len(row["part_ends"].split()) for row in rows)  # type: ignore[attr-defined]


def test_parts_of_each_calibration_group_are_judged_by_themselves(tmp_path: Path) -> None:
    wrong = plant_stored(tmp_path / "v.parquet", 600)
    table = pq.read_table(tmp_path / "v.parquet")
    pq.write_table(table.append_column("origin", pa.array(["old"] * 300 + ["new"] * 300)), tmp_path / "v.parquet")
    settings = CorpusOptions(visual_column="visual", text_column="text")
    score = ScoreConfig(calibrate_by="origin")
    run_audit(
        AuditConfig(str(tmp_path / "v.parquet"), str(tmp_path / "audit"), options=settings, score=score, quiet=True)
    )
    rows = [row for _, row in sorted(read_rows(tmp_path / "audit").items())]
    p = np.array([row["p_part_mismatch"] for row in rows], float)
    for group in (slice(0, 300), slice(300, 600)):
        assert {row["calibration_group"] for row in rows[group]} == {"old" if group.start == 0 else "new"}
        assert compute_auroc(p[group], wrong[group]) > 0.97 and abs(p[group].mean() - wrong[group].mean()) < 0.04


def test_scoring_again_gives_the_same_parts(planted: tuple[Path, np.ndarray]) -> None:
    out, _ = planted
    before = read_rows(out)
    assert run_command_line(["score", str(out), "--prototypes", "8", "--quiet"]) == 0
    after = read_rows(out)
    assert [row["uncertainty_text"] for row in after.values()] != [row["uncertainty_text"] for row in before.values()]
    for name in ("weakest_part", "part_probabilities", "p_part_mismatch"):
        assert [row[name] for row in after.values()] == [row[name] for row in before.values()]


def test_a_rule_and_a_finding_name_the_captions(
    planted: tuple[Path, np.ndarray], capsys: pytest.CaptureFixture[str]
) -> None:
    out, wrong = planted
    with Audit(out) as opened:
        [finding] = [finding for finding in opened.findings() if finding.name == "weak_part"]
        assert abs(finding.rows - wrong.sum()) < 0.2 * wrong.sum()
        kept = opened.keep(max_p_part_mismatch=0.5)
        assert (
            len(kept)
            == len(wrong)
            - opened.sql("SELECT count(*) AS n FROM samples WHERE p_part_mismatch > 0.5").to_pylist()[0]["n"]
        )
        key = finding.examples[0]["key"]
    assert run_command_line(["explain", str(out), key]) == 0
    page = capsys.readouterr().out
    assert "weakest" in page and finding.examples[0]["caption"].split(". ")[2] in page
    report = out.parent / "report.html"
    assert run_command_line(["report", str(out), "--out", str(report)]) == 0
    assert "<mark" in report.read_text()


def test_one_unusable_vector_makes_a_caption_unusable(tmp_path: Path) -> None:
    plant_stored(tmp_path / "v.parquet", 60)
    table = pq.read_table(tmp_path / "v.parquet")
    text = table["text"].to_pylist()
    text[0], text[1], text[2], text[3], text[4] = (
        None,
        [],
        [text[2][0], text[2][1][:5]],
        [text[3][0], None],
        text[4][:1],
    )
    text[5] = [text[5][0], [float("nan")] * 32]
    table = table.set_column(table.schema.get_field_index("text"), "text", pa.array(text, table["text"].type))
    pq.write_table(table, tmp_path / "v.parquet")
    audit(tmp_path / "v.parquet", tmp_path / "audit", visual_column="visual", text_column="text")
    rows = [row for _, row in sorted(read_rows(tmp_path / "audit").items())][:7]
    assert [row["error_message"] for row in rows[:6]] == [
        "the text vector is missing",
        "the text vector is missing",
        "the text vector has 5 numbers, not 32",
        "the text vector is missing",
        None,
        "the text vector holds numbers that are not finite",
    ]
    assert (rows[4]["parts"], rows[4]["part_ends"], rows[6]["parts"]) == (1, None, 3)
