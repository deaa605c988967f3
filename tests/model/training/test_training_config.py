"""Settings of a run: presets, files, flags, unknown names; learning rates against those of the released program."""

from pathlib import Path

import numpy as np
import pytest

from model.training.training_config import (
    PRESETS,
    ConfigError,
    list_presets,
    load_config,
    read_toml,
    scale_learning_rate,
)


def test_presets_hold_what_the_paper_says() -> None:
    paper = ["coco", "demo", "didemo", "msrvtt", "msvd"]
    assert list_presets() == sorted([*paper, "didemo-released", "msrvtt-released", "msvd-released"])
    made = {name: load_config({"corpus": "c", "out": "o"}, preset=name) for name in list_presets()}
    assert [made[name].epochs for name in ("msrvtt", "msvd", "didemo", "coco")] == [5, 3, 20, 5]
    for name in ("msrvtt", "msvd", "didemo"):
        assert (made[name].optimizer, made[name].lr_encoders, made[name].lr_other) == ("adam", 1e-7, 1e-4)
    assert (made["coco"].optimizer, made["coco"].lr_encoders, made["coco"].lr_other) == ("adamw", 1e-5, 1e-5)
    assert [(made[n].frames, made[n].tokens) for n in ("msrvtt", "msvd", "didemo")] == [(12, 32), (12, 32), (64, 64)]
    assert made["didemo"].captions == "join"
    assert [made[n].batch_size for n in ("msrvtt", "msvd", "didemo")] == [256, 256, 48]
    assert all(made[n].temporal_layers == 0 and made[n].target != "released" for n in paper)
    assert {(made[n].prototypes, made[n].tau) for n in ("coco", "msrvtt", "msvd", "didemo")} == {(8, 5.0)}


def test_released_presets_hold_what_the_scripts_say() -> None:
    names = ("msrvtt-released", "msvd-released", "didemo-released")
    made = [load_config({"corpus": "c", "out": "o"}, preset=name) for name in names]
    assert [(p.epochs, p.batch_size, p.frames, p.tokens) for p in made] == [
        (5, 256, 12, 32),
        (3, 256, 12, 32),
        (20, 48, 64, 64),
    ]
    assert [(p.lr_encoders, p.lr_other) for p in made] == [(1e-7, 1e-4), (1e-7, 1e-5), (1e-7, 1e-4)]
    weights = [(p.prototypes, p.tau, p.weight_uncertainty, p.weight_diversity) for p in made]
    assert weights == [(8, 5.0, 100.0, 0.025), (32, 5.0, 20.0, 0.015), (8, 5.0, 100.0, 0.025)]
    for preset in made:
        assert (preset.temporal_layers, preset.train, preset.target) == (4, "layers", "released")
        assert preset.each_second
        assert (preset.optimizer, preset.weight_decay, preset.beta2, preset.epsilon) == ("bertadam", 0.2, 0.98, 1e-6)
        assert (preset.schedule, preset.warmup, preset.clip_norm) == ("clip4clip", 0.1, 1.0)
    assert made[2].captions == "join"


def test_flags_beat_the_file_which_beats_the_preset(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('epochs = 7\nbatch_size = 12\ncorpus = "from file"\n')
    found = load_config({"out": "o", "batch_size": 6, "chunk": None}, preset="msvd", file=file)
    assert (found.epochs, found.batch_size, found.corpus, found.chunk) == (7, 6, "from file", 16)
    assert load_config({"corpus": "c", "out": "o", "warmup": 3}).warmup == 3.0


def test_a_config_survives_toml(tmp_path: Path) -> None:
    config = load_config({"corpus": 'a "b"\\{0..1}.tar', "out": "ö"}, preset="coco")
    (tmp_path / "c.toml").write_text(config.to_toml())
    assert load_config({}, file=tmp_path / "c.toml") == config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epoch = 3", "unknown setting 'epoch' in .*did you mean 'epochs'"),
        ("lr_encoder = 3", "did you mean 'lr_encoders'"),
        ("epochs = 2.5", "epochs must be a whole number"),
        ("epochs = true", "epochs must be a whole number"),
        ("epochs = 0", "epochs must be at least 1"),
        ("batch_size = 1", "at least 2 pairs"),
        ('optimizer = "sgd"', "optimizer is one of adam, adamw"),
        ("tau = nan", "tau must be a finite number"),
        ("epochs = ", "is not TOML"),
    ],
)
def test_wrong_settings_are_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_config({"corpus": "c", "out": "o"}, file=tmp_path / "c.toml")


def test_presets_name_no_paths() -> None:
    for name in list_presets():
        assert not {"corpus", "out", "val", "seed"} & set(read_toml(PRESETS / f"{name}.toml"))


def test_clip4clip_equals_the_released_video_schedule(shared: Path) -> None:
    expected = np.load(shared / "oracle" / "schedules.npz")["warmup_cosine_T200_w01"]
    found = [scale_learning_rate(step, 200, 0.1, "clip4clip") for step in range(200)]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_cosine_equals_the_released_image_schedule(shared: Path) -> None:
    expected = np.load(shared / "oracle" / "schedules.npz")["cosine_lr_T200_w50_base1e5"]
    found = [1e-5 * scale_learning_rate(step, 200, 50, "cosine") for step in range(200)]
    np.testing.assert_allclose(found, expected, atol=1e-17)


def test_warmup_is_a_share_below_one_and_steps_above() -> None:
    for warmup, first in ((0.1, 20), (30, 30), (500, 200)):  # a short run is all warm-up
        assert [scale_learning_rate(step, 200, warmup) for step in (0, first - 1)] == [1 / first, 1.0]


@pytest.mark.parametrize("schedule", ["cosine", "clip4clip", "constant"])
@pytest.mark.parametrize("warmup", [0.0, 0.3, 5])
def test_multipliers_rise_to_at_most_one_and_never_rise_again(schedule: str, warmup: float) -> None:
    found = [scale_learning_rate(step, 40, warmup, schedule) for step in range(40)]
    assert min(found) >= 0.0 and max(found) <= 1.0
    peak = int(np.argmax(found))
    assert found[: peak + 1] == sorted(found[: peak + 1])
    assert found[peak:] == sorted(found[peak:], reverse=True)
    if schedule != "constant":
        assert found[-1] < 0.01


def test_cosine_is_continuous_where_the_warm_up_ends() -> None:
    assert scale_learning_rate(9, 100, 10) == 1.0
    assert scale_learning_rate(10, 100, 10) == 1.0
    assert scale_learning_rate(0, 100, 10) == pytest.approx(0.1)
