"""Which encoder for a corpus: trained above random, stored embeddings as they are, bad inputs in one line."""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from auditor.cli import run_command_line
from auditor.corpus.open_corpus import Corpus, CorpusOptions, open_corpus
from auditor.run.audit_config import AuditConfig
from auditor.run.compare_encoders import EncoderTrial, draw_sample, rank_trials, try_encoders
from auditor.run.encoder_competence import SampleCompetence
from auditor.score.statistics.competence import Competence, Estimate
from tests.support.corpora import make_caption, make_picture, make_sample, write_tar
from tests.support.stored import make_vector_table, plant_related_pairs, write_clip_retrieval
from tests.support.tiny import tiny

VECTORS = ("--visual-column", "image_embedding", "--text-column", "text_embedding")


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = run_command_line(["encoders", *map(str, arguments), "--quiet"])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def draw(corpus: Corpus, count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Keys and captions of a sample."""
    with ExitStack() as stack:
        [shard] = draw_sample(corpus, count, np.random.default_rng(seed), stack)
        with shard.open() as opened:
            media = {sample.media for sample in opened.samples if sample.media}
            assert all(opened.read(medium) for medium in media)
            return [(sample.key, caption) for sample in opened.samples for caption in sample.captions]


def test_a_trained_model_is_ranked_above_a_random_one(random_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = (tiny().corpus, "--try", random_model, "--try", tiny().model, "--sample", 250, "--frames", 4)
    code, out, err = run(capsys, *given, "--json")
    assert code == 0, err
    printed = json.loads(out)
    trained, random = printed["encoders"]
    assert (trained["model"], random["model"]) == (str(tiny().model), random_model)
    assert printed["use"] == str(tiny().model) and f"use {tiny().model}" in printed["conclusion"]
    assert not trained["blind"] and trained["judged"] > 0.9
    assert random["blind"] and random["judged"] < 0.1
    assert trained["separation"]["low"] > random["separation"]["high"]
    assert set(trained["kinds"]) == {"image", "video"}
    assert trained["pairs_per_second"] > 0 and trained["width"] > 0
    assert trained["weight_bytes"] == 4 * trained["parameters"]


def test_a_table_for_people_says_that_none_can_judge(
    tmp_path: Path, random_model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    write_tar(tmp_path / "0.tar", [(f"{i}", make_sample(i)) for i in range(40)])
    code, out, _ = run(capsys, tmp_path, "--try", random_model)
    assert code == 0
    assert "0% of pairs: blind" in out
    last = out.strip().splitlines()[-1]
    assert last.startswith("none of these can judge this corpus") and "auditor certify" in last


def test_a_sample_is_random_and_the_same_every_time(tmp_path: Path) -> None:
    for shard in range(30):
        samples = [(f"{shard}-{i}", make_sample(shard * 100 + i, captions=3)) for i in range(6)]
        write_tar(tmp_path / f"{shard:02d}.tar", samples)
    corpus = open_corpus(str(tmp_path))
    pairs = draw(corpus, 120)
    assert len(pairs) == len(set(pairs)) == 120 and pairs == draw(corpus, 120) != draw(corpus, 120, seed=1)
    shards = {key.partition("-")[0] for key, _ in pairs}
    assert 15 <= len(shards) <= 20  # of 20 shards, each with 18 of 360 pairs
    for key, caption in pairs:
        shard, number = map(int, key.split("-"))
        assert caption in {make_caption((shard * 100 + number) * 10 + i) for i in range(3)}
    assert len(draw(corpus, 500)) == 500 and len(draw(corpus, 10_000)) == 540  # small shards: more than 20 are opened


@pytest.mark.parametrize("blind", [False, True])
def test_stored_embeddings_are_tried_as_they_are(
    blind: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = make_vector_table(*plant_related_pairs(3000, blind=blind), [f"caption {row}" for row in range(3000)])
    pq.write_table(table, tmp_path / "v.parquet", row_group_size=500)
    code, out, err = run(capsys, tmp_path / "v.parquet", *VECTORS, "--sample", 600, "--json")
    assert code == 0, err
    printed = json.loads(out)
    [stored] = printed["encoders"]
    assert (stored["model"], stored["pairs"], stored["width"]) == ("stored", 600, 32)
    assert stored["pairs_per_second"] is None and stored["parameters"] is None
    assert stored["blind"] is blind and printed["use"] == (None if blind else "stored")
    assert ("certify" in printed["conclusion"]) is blind


def test_a_sample_of_stored_embeddings_comes_from_all_over_the_corpus(tmp_path: Path) -> None:
    corpus = open_corpus(f"clip-retrieval:{write_clip_retrieval(tmp_path, parts=2, count=2000)}")
    shards: list[Any] = draw_sample(corpus, 400, np.random.default_rng(0), ExitStack())
    assert sum(shard.stop - shard.start for shard in shards) == 400 and len(shards) == 40
    assert {shard.name.partition("-")[0] for shard in shards} == {shard.name for shard in corpus.shards}
    assert max(shard.stop for shard in shards) > 1800


def test_a_model_that_fails_does_not_hide_the_others(
    tmp_path: Path, random_model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tar(tmp_path / "0.tar", [(f"{i}", make_sample(i)) for i in range(30)])
    code, out, err = run(capsys, tmp_path, "--try", "ViT-B-3", "--try", random_model, "--json")
    assert code == 1 and len(err.strip().splitlines()) == 1
    assert "ViT-B-3 could not be tried" in err
    assert [row["model"] for row in json.loads(out)["encoders"]] == [random_model]


def test_bad_inputs_are_one_line(tmp_path: Path, random_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    few, broken, empty = tmp_path / "few", tmp_path / "broken", tmp_path / "empty"
    write_tar(few / "0.tar", [(f"{i}", make_sample(i)) for i in range(19)])
    write_tar(broken / "0.tar", [(f"{i}", {"jpg": make_picture(i)[:50], "txt": b"a dog"}) for i in range(30)])
    empty.mkdir()
    (empty / "0.tar").write_bytes(b"")
    for corpus, models, message in (
        (few, ["ViT-B-3"], "ViT-B-3"),
        (few, [], "--try"),
        (few, [random_model], "only 19 pairs of the sample can be used; a trial needs 20"),
        (broken, [random_model], "only 0 pairs of the sample can be used, corrupt: 30"),
        (empty, [random_model], "is empty"),
        (tmp_path / "nowhere", [random_model], "nowhere"),
    ):
        code, out, err = run(capsys, corpus, *(word for model in models for word in ("--try", model)))
        assert code == 1 and not out, (corpus, out)
        assert len(err.strip().splitlines()) == 1 and message in err, (corpus, err)


def make_trial(model: str, separation: float, speed: float, judged: float = 1.0) -> EncoderTrial:
    competence = Competence(1000, Estimate(0.3, 0.02), Estimate(separation, 0.05))
    return EncoderTrial(model, SampleCompetence({"image": (competence, judged)}), speed)


def test_models_as_good_as_the_best_are_ranked_by_speed() -> None:
    trials = [make_trial("blind", 2.2, 900, 0.2), make_trial("weak", 1.5, 100), make_trial("fast", 2.1, 60)]
    ranked, model, conclusion = rank_trials([*trials, make_trial("best", 2.2, 20)])
    assert [trial.model for trial in ranked] == ["fast", "best", "weak", "blind"]
    assert model == "fast" and "as well as best within the error, and is 3.0 times as fast" in conclusion
    assert rank_trials([make_trial("all", 1.9, 10), make_trial("half", 2.2, 10, 0.6)])[1] == "all"


def test_a_trial_is_the_competence_that_the_audit_measures(tmp_path: Path) -> None:
    from auditor.run.run_audit import run_audit

    table = make_vector_table(*plant_related_pairs(600), [f"caption {row}" for row in range(600)])
    pq.write_table(table, tmp_path / "v.parquet")
    options = CorpusOptions(visual_column="image_embedding", text_column="text_embedding")
    config = AuditConfig(str(tmp_path / "v.parquet"), str(tmp_path / "audit"), options=options, quiet=True)
    audited = run_audit(config).statistics["image"]["competence"]
    [(_, trial, _)] = try_encoders(open_corpus(config.corpus, options), config, [], 600)
    assert trial is not None
    measured = trial.competence.to_dict()
    for name in ("relatedness", "separation"):
        assert measured[name]["value"] == pytest.approx(audited[name]["value"], abs=0.02)
