"""Prompt columns: right rows, calibrated by kind, resumed after an interruption, and the same by several processes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from auditor.audit_folder.extra_columns import name_column_file
from auditor.audit_folder.folder import Folder
from auditor.check.check_audit import check_audit
from auditor.choose import tag_columns
from auditor.choose.prompt_files import PromptError
from auditor.choose.tag_columns import tag_media
from auditor.errors import AuditError, AuditorError
from auditor.python_api import Audit
from auditor.query.corpus_groups import group_rows
from auditor.workers.process_pool import ProcessPool
from tests.support.vector_audit import AxisEncoder, plant_media, write_vector_audit

PLANTED = [plant_media(600, 0.2, seed=seed) for seed in range(3)]
ONE_GROUP = plant_media(300, 0.0, seed=9)


@pytest.fixture(autouse=True)
def axis_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tag_columns, "get_encoder_client", lambda *_: AxisEncoder())


@pytest.fixture
def audit(tmp_path: Path) -> Iterator[Audit]:
    """Three shards of images, a fifth of them with watermarks, and a shard of videos without."""
    media = [*(vectors for vectors, _ in PLANTED), ONE_GROUP[0]]
    with Audit(write_vector_audit(tmp_path / "audit", media, kinds=["image"] * 3 + ["video"])) as opened:
        yield opened


def read_shard(audit: Audit, shard: str) -> dict[str, np.ndarray]:
    table = audit.sql(f"SELECT * FROM samples WHERE shard = '{shard}' ORDER BY key, caption_index")
    return {name: table[name].to_numpy() for name in ("watermark", "watermark_margin", "status")}


def test_a_column_for_each_prompt(audit: Audit) -> None:
    watermark, drawing = audit.tag(["a watermark", "a drawing"], against="a photo")
    truth = np.concatenate([planted for _, planted in PLANTED]).mean()
    share = watermark.shares["image"]
    assert share.media == 3 * 599 and share.low is not None and share.high is not None
    assert share.low - 0.02 <= truth <= share.high + 0.02
    assert watermark.shares["video"].words().startswith("no estimate: the margins form one group")
    assert drawing.shares["image"].share is None and drawing.shares["image"].reason
    rows = read_shard(audit, "s1")
    vectors, planted = PLANTED[1]
    stored = vectors.astype(np.float16).astype(np.float32)
    usable = rows["status"] == "ok"
    assert np.isnan(rows["watermark"][~usable]).all() and np.isnan(rows["watermark_margin"][~usable]).all()
    expected = np.repeat(stored[:, 1] - stored[:, 0], 2)
    np.testing.assert_allclose(rows["watermark_margin"][usable], expected[usable], atol=1e-5)
    found = rows["watermark"][usable] > 0.5
    assert (found == np.repeat(planted, 2)[usable]).mean() > 0.97
    videos = read_shard(audit, "s3")
    assert np.isnan(videos["watermark"]).all() and np.isfinite(videos["watermark_margin"]).sum() == 2 * 299
    assert audit.tags == [watermark, drawing]


def test_the_columns_work_in_rules_summary_explain_and_groups(audit: Audit) -> None:
    (tag,) = audit.tag("a watermark")
    assert len(audit.keep(max={"watermark": 0.5})) < audit.count("status = 'ok'")
    assert f"images: {tag.shares['image'].words()}" in str(audit.summary())
    assert 'watermark ("a watermark" against "a photo"): probability' in repr(audit.explain("s0-00001"))
    assert len(group_rows(audit.database, "watermark").groups) <= 22  # ranges, not single values
    for column in ("watermark", "watermark_margin"):
        values = audit.worst(column, n=50)[column].to_numpy()
        assert values[0] == audit.sql(f"SELECT max({column}) AS x FROM samples")["x"][0].as_py()
        assert (np.diff(values) <= 0).all()


def test_check_uses_the_share_and_its_interval(tmp_path: Path) -> None:
    budget = tmp_path / "budget.toml"
    budget.write_text('[limits]\nwatermark = "1%"\ndrawing = "1%"\nfew = {where = "watermark > 0.5", at_most = 0.9}')
    with Audit(write_vector_audit(tmp_path / "audit", [vectors for vectors, _ in PLANTED])) as audit:
        tag, _ = audit.tag(["a watermark", "a drawing"])
        results = {result.name: result for result in check_audit(audit.database, budget).results}
    verdicts = {name: result.verdict for name, result in results.items()}
    assert verdicts == {"watermark": "fail", "few": "pass", "drawing": "cannot tell"}
    estimate, share = results["watermark"].estimate, tag.shares["image"]
    assert estimate is not None
    ends = estimate.share, estimate.low, estimate.high
    assert ends == pytest.approx((share.share, share.low, share.high))
    assert "no estimate: the margins form one group" in results["drawing"].note


def test_an_interrupted_run_continues(audit: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    original, calls = tag_columns.VectorMargins.__call__, []

    def failing(self: Any, visual: Any) -> Any:
        calls.append(len(visual))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(self, visual)

    monkeypatch.setattr(tag_columns.VectorMargins, "__call__", failing)
    with pytest.raises(KeyboardInterrupt):
        audit.tag("a watermark")
    assert "watermark" not in audit.columns and not audit.tags
    audit.tag("a watermark")
    assert len(calls) == 5 and "watermark" in audit.columns  # two shards were done


def test_an_interrupted_publication_continues(audit: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = audit.tag("a watermark")[0]
    rows, original = read_shard(audit, "s2"), tag_columns.write_probabilities

    def failing(folder: Folder, work: Any, columns: Any, mixtures: Any, shard: str) -> None:
        if shard == "s2":
            raise KeyboardInterrupt
        original(folder, work, columns, mixtures, shard)

    monkeypatch.setattr(tag_columns, "write_probabilities", failing)
    with pytest.raises(KeyboardInterrupt):
        audit.tag("a watermark", force=True)
    monkeypatch.setattr(tag_columns, "write_probabilities", original)
    assert audit.tag("a watermark", force=True)[0].to_dict() == whole.to_dict()
    for name, values in read_shard(audit, "s2").items():
        np.testing.assert_array_equal(values, rows[name])


def test_several_processes_write_the_same(audit: Audit) -> None:
    alone = tag_media(audit.database, "a watermark", name="alone", prefix="a_")
    together = tag_media(audit.database, "a watermark", name="pool", prefix="b_", engine=ProcessPool(2))
    assert alone[0].shares == together[0].shares
    folder = audit.database.files.folder
    for shard in ("s0", "s3"):
        tables = [folder.read_table(name_column_file(name, shard)) for name in ("alone", "pool")]
        assert [column.to_pylist() for column in tables[0].columns] == [c.to_pylist() for c in tables[1].columns]


def test_learned_from_marked_rows(audit: Audit, tmp_path: Path) -> None:
    vectors, planted = PLANTED[0]
    chosen = [*np.flatnonzero(planted)[5:15], *np.flatnonzero(~planted)[5:15]]
    lines = [f"s0-{row:05d},{int(planted[row])}" for row in chosen]
    (tmp_path / "marks.csv").write_text("\n".join(["key,label", *lines]))
    (tag,) = audit.tag(by=tmp_path / "marks.csv", name="watermark")
    assert tag.examples == 20 and tag.auroc[0] > 0.9 and tag.auroc[1] < tag.auroc[0]
    rows = read_shard(audit, "s1")
    usable = rows["status"] == "ok"
    assert ((rows["watermark"][usable] > 0.5) == np.repeat(PLANTED[1][1], 2)[usable]).mean() > 0.95
    assert len(vectors) == 600


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give prompts, a file of prompts"),
        ({"prompts": "a dog", "by": "x.csv"}, "one of them"),
        ({"prompts": "quality", "against": "a photo"}, "a file of prompts has its own"),
        ({"prompts": "a photo"}, "is its own opposite"),
        ({"prompts": ["a dog", "the dog"]}, "already has a column 'dog'"),
        ({"prompts": "a similarity"}, "already has a column 'similarity'"),
        ({"by": "absent.csv"}, "absent.csv does not exist"),
    ],
)
def test_bad_input_is_one_line(audit: Audit, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(AuditorError, match=message) as caught:
        audit.tag(**arguments)
    assert "\n" not in str(caught.value)


def test_a_single_column_can_be_named(audit: Audit) -> None:
    (tag,) = audit.tag("a watermark", name="Marked")
    assert (tag.column, tag.margin) == ("marked", "marked_margin") and "marked" in audit.columns


def test_a_column_is_replaced_only_by_force(audit: Audit) -> None:
    audit.tag("a watermark")
    with pytest.raises(AuditorError, match="--force replaces"):
        audit.tag("a watermark", against="a drawing")
    (tag,) = audit.tag("a watermark", against="a drawing", force=True)
    assert tag.against == ("a drawing",) and audit.tags == [tag]


def test_without_a_text_tower_or_embeddings_one_line_says_so(audit: Audit) -> None:
    audit.database.manifest["model"]["spec"] = ""
    with pytest.raises(PromptError, match="no text tower for prompts; `auditor tag --by EXAMPLES` needs none"):
        audit.tag("a watermark")


def test_a_damaged_record_is_one_line(audit: Audit) -> None:
    audit.tag("a watermark")
    folder = audit.database.files.folder
    about = folder.read_json("columns/watermark/about.json")
    about["tags"][0]["shares"]["image"]["share"] = "much"
    folder.write_json("columns/watermark/about.json", about)
    with Audit(audit.path) as again, pytest.raises(AuditError, match=r"is damaged: tags\.shares\.image\.share"):
        _ = again.tags
