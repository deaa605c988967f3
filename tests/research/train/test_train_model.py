"""Runs: resuming after kill -9, trainable weights, and errors that leave no files behind."""

import json
import os
import signal
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from auditor.errors import AuditorError
from auditor.research.train.train_model import StepReport, TrainConfig, train
from auditor.research.train.training_run import build_learner
from model.checkpoint import CheckpointError, load_checkpoint, read_checkpoint_config, save_checkpoint
from model.model_errors import ModelError
from model.prototypes import HeadConfig, PrototypeHead
from model.training.objective import Learner, TrainingPairs, add_gradient
from model.training.trainable import select_trainable_weights, set_training_modes, tokenize
from model.training.training_config import ConfigError, load_config
from model.training.training_processes import ProcessGroup
from model.training.training_state import collect_parameters, recover_last
from tests.model.training.test_objective import gradients, make_pairs
from tests.support.corpora import write_members
from tests.support.decoders import signal_decoder_at
from tests.support.training import make_tiny_config, run_in_processes, write_model_config, write_shards

pytestmark = pytest.mark.usefixtures("one_thread")


# -------------------------------------------------------------------------------------------------------- runs


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return {**load_file(folder / "open_clip_model.safetensors"), **load_file(folder / "head.safetensors")}


def same(left: Path, right: Path) -> bool:
    a, b = weights_of(left), weights_of(right)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_a_run_learns_and_leaves_what_it_says(tmp_path: Path) -> None:
    val = write_shards(tmp_path, count=1, size=12, name="val")
    config = make_tiny_config(tmp_path, val=val, epochs=10, cache=True)
    reports = []
    result = train(config, reports.append)
    out = Path(config.out)
    assert sorted(path.name for path in out.iterdir()) == ["best", "config.toml", "last", "metrics.jsonl"]
    assert result.steps == len(reports) == 40 and result.failures == {}
    losses = [report.terms["info_nce"] for report in reports]
    assert sum(losses[-4:]) < 0.7 * sum(losses[:4])
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == list(range(1, 41))
    recalls = [line["validation"] for line in lines if "validation" in line]
    assert len(recalls) == 10 and max(found["RSum"] for found in recalls) == result.validation["RSum"]  # type: ignore[index]
    extra = read_checkpoint_config(out / "best")["extra"]
    assert load_checkpoint(out / "best").backbone.dim == 16 and extra["train"]["epochs"] == 10
    assert load_config({}, file=out / "config.toml") == config
    again = train(config)  # nothing is left to do
    assert again.steps == again.resumed_from == 40 and again.terms is None and again.validation == result.validation


def train_until_killed(config: str, last_step: int) -> None:
    torch.set_num_threads(1)

    def progress(report: StepReport) -> None:
        if report.step == last_step:
            os.kill(os.getpid(), signal.SIGKILL)

    train(load_config({}, file=config), progress)


def test_a_killed_run_ends_with_the_weights_of_an_undisturbed_one(tmp_path: Path) -> None:
    val = write_shards(tmp_path, count=1, size=8, name="val")
    settings: dict[str, Any] = {"val": val, "epochs": 3, "save_every": 3, "accumulate": 1, "chunk": 5}
    config = make_tiny_config(tmp_path, **settings)
    (tmp_path / "run.toml").write_text(config.to_toml())
    assert run_in_processes(train_until_killed, (str(tmp_path / "run.toml"), 7)) == [-9]
    lines = (tmp_path / "run" / "metrics.jsonl").read_text()
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 9, "los')  # as a kill in the middle of a line leaves it
    resumed = train(config)
    assert resumed.resumed_from == 6
    straight = train(replace(config, out=str(tmp_path / "straight"), save_every=100))
    assert straight.resumed_from is None
    assert same(tmp_path / "run" / "last", tmp_path / "straight" / "last")
    assert same(tmp_path / "run" / "best", tmp_path / "straight" / "best")
    assert resumed.validation == straight.validation
    a, b = (metrics(tmp_path / name / "metrics.jsonl") for name in ("run", "straight"))
    assert a == b and len(lines.splitlines()) < len(a)
    states = [json.loads((tmp_path / name / "last" / "trainer.json").read_text()) for name in ("run", "straight")]
    assert states[0]["loaders"] == states[1]["loaders"]


def test_a_file_that_kills_its_decoder_does_not_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signal_decoder_at(monkeypatch, {b"crasher": signal.SIGSEGV})
    config = make_tiny_config(tmp_path, epochs=1)
    write_members(Path(config.corpus) / "zz.tar", [("bad.png", b"crasher"), ("bad.txt", b"x"), ("c.png", b"p")])
    result = train(config)
    assert result.steps == 4 and result.failures == {"corrupt": 1, "missing_caption": 1}
    assert result.examples == ["zz: bad: decoder died of SIGSEGV", "zz: c: no .txt and no .json"]


def metrics(path: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "pairs_per_second"} for line in lines]


@pytest.mark.parametrize("moment", ["while writing", "before the swap", "in the swap", "after the swap"])
def test_a_kill_while_saving_leaves_a_whole_state(tmp_path: Path, moment: str) -> None:
    last, draft, new, old = (tmp_path / name for name in ("last", ".last.1.draft", ".last.1.new", ".last.1.old"))
    for folder, text in {
        "while writing": [(last, "old"), (draft, "half")],
        "before the swap": [(last, "old"), (new, "new")],
        "in the swap": [(old, "old"), (new, "new")],
        "after the swap": [(old, "old"), (last, "new")],
    }[moment]:
        folder.mkdir()
        (folder / "trainer.json").write_text(text)
    assert recover_last(tmp_path) == last
    assert (last / "trainer.json").read_text() == ("old" if moment in ("while writing", "before the swap") else "new")
    assert [path.name for path in tmp_path.iterdir()] == ["last"]


def test_accumulated_batches_average_their_gradients(tmp_path: Path) -> None:
    learner = build_learner(make_tiny_config(tmp_path, target="paper"))
    pairs = [make_pairs(learner, seed=seed) for seed in range(2)]
    single = [gradients(learner, p, chunk=0) for p in pairs]
    for parameter in collect_parameters(learner).values():
        parameter.grad = None
    for p in pairs:
        add_gradient(learner, p, ProcessGroup(), seed=1, factor=0.5)
    for name, parameter in collect_parameters(learner).items():
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, (single[0][name] + single[1][name]) / 2, rtol=1e-4, atol=1e-6)
    result = train(make_tiny_config(tmp_path, accumulate=2))
    assert result.steps == 4  # 64 captions in steps of 2 x 16, twice


def moved(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> set[str]:
    return {name for name in after if not torch.equal(before[name], after[name])}


@pytest.mark.parametrize("what", ["all", "projections", "text", "prototypes"])
def test_only_what_should_learn_learns(tmp_path: Path, what: str) -> None:
    config = make_tiny_config(tmp_path, train=what, epochs=1, weight_decay=0.5)
    before = {k: v.clone() for k, v in build_learner(config).backbone.model.state_dict().items()}
    train(config)
    changed = moved(before, load_file(Path(config.out) / "last" / "open_clip_model.safetensors"))
    visual = {name for name in changed if name.startswith("visual.")}
    if what == "all":
        assert changed == set(before)
    elif what == "projections":
        assert changed == {"visual.proj", "text_projection", "logit_scale"}
    elif what == "text":
        assert not visual and {"token_embedding.weight", "logit_scale"} <= changed
    else:
        assert not changed


def test_logit_scale_is_clamped(tmp_path: Path) -> None:
    config = make_tiny_config(tmp_path, max_logit_scale=9.0, epochs=1)
    train(config)
    assert load_checkpoint(Path(config.out) / "last").backbone.logit_scale <= 9.0 + 1e-5  # it starts at 14


def test_prototypes_start_from_a_checkpoint(tmp_path: Path) -> None:
    config = make_tiny_config(tmp_path, epochs=1)
    train(config)
    head = str(Path(config.out) / "best")
    learner = build_learner(replace(config, head=head, model=head))
    assert torch.equal(learner.head.visual, load_checkpoint(head).head.visual)
    assert learner.backbone.pretrained


def test_batch_statistics_of_a_trained_model_stay(tmp_path: Path, flickr_model: str) -> None:
    from model.backbone import load_backbone

    backbone = load_backbone(flickr_model)
    select_trainable_weights(backbone, "projections")
    set_training_modes(backbone)
    assert not any(module.training for module in backbone.model.visual.trunk.modules())
    before = {k: v.clone() for k, v in backbone.model.visual.trunk.state_dict().items()}
    learner = Learner(backbone, PrototypeHead(HeadConfig(dim=384)), None, 1.0, 1.0, nullcontext)
    pixels = torch.randint(0, 256, (3, 1, 260, 260, 3), generator=torch.Generator().manual_seed(0)).byte()
    tokens = tokenize(backbone, ["a dog", "a red car on a road", "two people"], 32)
    pairs = TrainingPairs(pixels, torch.ones(3, 1, dtype=torch.bool), tokens, torch.arange(3), torch.ones(3))
    add_gradient(learner, pairs, ProcessGroup(), seed=0, chunk=2)
    assert not moved(before, backbone.model.visual.trunk.state_dict())
    assert all(p.grad is None for p in backbone.model.visual.trunk.parameters())
    assert backbone.model.visual.head.proj.weight.grad.abs().max() > 0


# -------------------------------------------------------------------------------------------------- complaints


def complaint(config: TrainConfig) -> str:
    existed = Path(config.out).exists()
    with pytest.raises((AuditorError, ModelError)) as caught:
        train(config)
    assert "\n" not in str(caught.value)
    assert Path(config.out).exists() == existed
    return str(caught.value)


def test_complaints_leave_nothing_behind(tmp_path: Path) -> None:
    config = make_tiny_config(tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "no tar, no image or video" in complaint(replace(config, corpus=str(empty)))
    assert "no tar, no image or video" in complaint(replace(config, val=str(empty)))
    (tmp_path / "x.tar").write_bytes(b"no tar" * 999)
    assert "is not a tar" in complaint(replace(config, corpus=str(tmp_path / "x.tar")))
    none = write_members(tmp_path / "none.tar", [("a.txt", b"a caption")])
    assert "holds no pairs" in complaint(replace(config, corpus=str(none)))
    assert "fewer than the 100 of one step" in complaint(replace(config, batch_size=100))
    assert "neither an open_clip model nor a folder" in complaint(replace(config, model="ViT-Z-99"))
    assert "cannot be read as a model configuration" in complaint(replace(config, model=str(tmp_path / "no.json")))
    assert "precision bf16 needs CUDA" in complaint(replace(config, precision="bf16"))
    assert "cannot use device" in complaint(replace(config, device="cuda:7"))
    assert "out must be a path" in complaint(replace(config, out="s3://bucket/run"))
    assert "cannot be divided among 3" in complaint_in_world(config)


def complaint_in_world(config: TrainConfig) -> str:
    with pytest.raises(ConfigError) as caught:
        train(config, processes=ProcessGroup(0, 3))
    return str(caught.value)


def test_a_loss_that_is_no_number_names_its_step(tmp_path: Path) -> None:
    message = complaint(make_tiny_config(tmp_path, lr_encoders=1e30, clip_norm=0.0, warmup=0.0, save_every=100))
    assert "at step 2" in message and ("the loss is nan" in message or "not finite" in message)


def test_a_head_of_another_width_is_refused(tmp_path: Path) -> None:
    config = make_tiny_config(tmp_path)
    backbone = build_learner(config).backbone
    save_checkpoint(tmp_path / "head", PrototypeHead(HeadConfig(dim=16)), backbone, with_backbone=True)
    wide = write_model_config(tmp_path, {"embed_dim": 24}, "wide.json")
    with pytest.raises(CheckpointError, match=r"width 16, but .*wide\.json gives 24"):
        train(replace(config, model=wide, head=str(tmp_path / "head")))
    assert not Path(config.out).exists()


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    config = make_tiny_config(tmp_path)
    Path(config.out).mkdir()
    (Path(config.out) / "thesis.tex").write_text("do not touch")
    assert "is not the folder of a run (it holds thesis.tex)" in complaint(config)
    assert [path.name for path in Path(config.out).iterdir()] == ["thesis.tex"]


def test_another_run_does_not_go_on_in_the_folder(tmp_path: Path) -> None:
    config = make_tiny_config(tmp_path, epochs=1)
    train(config)
    assert "holds a run with lr_other = 0.01, not 0.5" in complaint(replace(config, lr_other=0.5))


def test_batch_normalisation_cannot_be_chunked(tmp_path: Path) -> None:
    make_tiny_config(tmp_path)
    resnet = {"layers": [1, 1, 1, 1], "width": 8, "image_size": 32, "patch_size": None}
    model = write_model_config(tmp_path, {"vision_cfg": resnet}, "resnet.json")
    assert "chunk must be 0" in complaint(make_tiny_config(tmp_path, model=model, chunk=4))


# ------------------------------------------------------------------------------------------------ pair weights


def test_weights_change_what_is_learned(tmp_path: Path) -> None:
    config = make_tiny_config(tmp_path, epochs=1)
    keys = [f"train{shard}-{index:04}" for shard in range(2) for index in range(16)]
    suspects = {"key": keys, "caption_index": [0] * 32, "p_mismatch": [1.0] * 32}
    pq.write_table(pa.table(suspects), tmp_path / "w.parquet")
    train(config)
    train(replace(config, out=str(tmp_path / "weighted"), weights=str(tmp_path / "w.parquet")))
    assert not same(Path(config.out) / "last", tmp_path / "weighted" / "last")
