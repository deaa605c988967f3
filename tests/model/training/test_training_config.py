"""Settings of a run: presets, files, flags, and names that do not exist."""

from pathlib import Path

import pytest

from model.training.training_config import ConfigError, load_config, preset_names, read_preset


def test_presets_hold_what_the_paper_says() -> None:
    assert preset_names() == ["coco", "demo", "didemo", "msrvtt", "msvd"]
    made = {name: load_config({"corpus": "c", "out": "o"}, preset=name) for name in preset_names()}
    assert [made[name].epochs for name in ("msrvtt", "msvd", "didemo", "coco")] == [5, 3, 20, 5]
    for name in ("msrvtt", "msvd", "didemo"):
        assert (made[name].optimizer, made[name].lr_encoders, made[name].lr_other) == ("adam", 1e-7, 1e-4)
    assert (made["coco"].optimizer, made["coco"].lr_encoders, made["coco"].lr_other) == ("adamw", 1e-5, 1e-5)
    assert [(made[n].frames, made[n].tokens) for n in ("msrvtt", "msvd", "didemo")] == [(12, 32), (12, 32), (64, 64)]
    assert made["didemo"].captions == "join"
    assert {(made[n].prototypes, made[n].tau) for n in ("coco", "msrvtt", "msvd", "didemo")} == {(8, 5.0)}


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
    for name in preset_names():
        assert not {"corpus", "out", "val", "seed"} & set(read_preset(name))
