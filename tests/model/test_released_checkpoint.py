"""Checkpoints of the authors' program: equal to their pass, usable in audits, and refused if anything is off."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from auditor.audit_folder.embeddings import read_embeddings
from auditor.audit_folder.folder import Folder
from auditor.cli import run_command_line
from model.checkpoint import load_checkpoint, load_model, read_checkpoint_config
from model.released_checkpoint import ReleasedCheckpointError, import_checkpoint
from model.video.video_decode import decode_frames
from tests.support import released
from tests.support.clips import encode_clip, make_photo
from tests.support.corpora import make_caption, write_members

CLIPS, FRAMES = 12, 5


def save_released(folder: Path, state: dict[str, Any], name: str = "pytorch_model.bin") -> Path:
    torch.save(state, folder / name)
    return folder / name


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imported")
    state = {f"module.{name}": tensor for name, tensor in released.draw_state_dict().items()}  # as DDP names them
    assert run_command_line(["import-pau", str(save_released(folder, state)), "--out", str(folder / "pau")]) == 0
    return folder / "pau"


def draw_clip(seed: int) -> bytes:
    """From one to twelve frames of changing soft colors."""
    generator = np.random.default_rng(seed)
    colors = generator.integers(0, 256, (1 + seed % 12, 3, 4, 3)).astype(np.uint8)
    return encode_clip((np.repeat(np.repeat(picture, 16, 0), 16, 1) for picture in colors), rate=8)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clips")
    for split in ("test", "val"):
        start = 0 if split == "test" else 100
        files = [
            pair
            for i in range(start, start + CLIPS)
            for pair in ((f"c{i:03}.mp4", draw_clip(i)), (f"c{i:03}.txt", make_caption(i).encode()))
        ]
        write_members(folder / f"{split}-00000.tar", files)
    return folder


def test_an_imported_checkpoint_is_the_authors_model(imported: Path) -> None:
    loaded, state = load_checkpoint(imported), released.widen(released.draw_state_dict())
    backbone, head = loaded.backbone, loaded.head
    assert head is not None and backbone.temporal is not None and backbone.pretrained
    pixels = torch.randint(0, 256, (3, *backbone.pixels.size, 3), generator=torch.Generator().manual_seed(1)).byte()
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (backbone.pixels.mean, backbone.pixels.std))
    features = released.encode_frames(state, (pixels.permute(0, 3, 1, 2) / 255 - mean) / std)
    torch.testing.assert_close(backbone.encode_frames(pixels), features, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(backbone.encode_images(pixels), F.normalize(features, dim=-1), rtol=0, atol=1e-5)
    captions = ["a red boat", "two old dogs on a hill"]
    text = F.normalize(released.encode_tokens(state, backbone.tokens(captions)), dim=-1)
    torch.testing.assert_close(backbone.encode_texts(captions), text, rtol=0, atol=1e-5)
    assert torch.equal(head.visual.data, state["v_prototype"]) and torch.equal(head.text.data, state["t_prototype"])
    assert (head.config.tau, head.config.scale) == (5.0, pytest.approx(np.exp(3.0)))
    assert backbone.logit_scale == pytest.approx(np.exp(3.0))
    assert read_checkpoint_config(imported)["extra"]["imported"]["layout"] == "video"


def test_audit_stores_the_transformers_vector_and_score_and_evaluate_run(
    imported: Path, shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state, backbone = released.widen(released.draw_state_dict()), load_model(imported).backbone
    write_members(tmp_path / "photo.tar", [("p.png", make_photo(form="PNG")), ("p.txt", b"a photo")])
    corpus, audit = f"{shards}/test-00000.tar::{tmp_path}/photo.tar", str(tmp_path / "audit")
    command = ["audit", corpus, "--model", str(imported), "--out", audit, "--frames", str(FRAMES), "--exact-pixels"]
    assert run_command_line([*command, "--quiet"]) == 0
    names = Folder(audit).names("embeddings", ".parquet")
    photo, media = sorted((read_embeddings(Folder(audit), name).media for name in names), key=len)
    assert media.frames is not None and media.mask is not None
    seen = set()
    for row in range(CLIPS):
        images = np.stack(decode_frames(draw_clip(row), FRAMES, spec=backbone.pixels).images)
        seen.add(len(images))
        features = backbone.encode_features(images)
        expected = released.pool_clip(state, features).numpy()
        np.testing.assert_allclose(media.visual[row], expected, atol=1e-3)  # float16
        np.testing.assert_allclose(media.frames[row][media.mask[row]], F.normalize(features, dim=-1), atol=1e-3)
        mean = F.normalize(F.normalize(features, dim=-1).mean(dim=0), dim=-1).numpy()
        assert np.abs(media.visual[row] - mean).max() > 0.02  # it is not the mean of the frames
    assert 1 in seen and FRAMES in seen
    assert photo.frames is None and np.linalg.norm(photo.visual[0]) == pytest.approx(1, abs=1e-3)
    samples = pq.read_table(f"{audit}/samples").to_pylist()
    assert all(0 < row["uncertainty_visual"] < 1 and 0 < row["uncertainty_text"] < 1 for row in samples)
    assert run_command_line(["verify", audit, "-n", "8"]) == 0
    assert run_command_line(["score", audit, "--model", str(imported), "--quiet"]) == 0
    capsys.readouterr()
    options = ["--data", str(shards), "--model", str(imported), "--frames", str(FRAMES), "--json"]
    assert run_command_line(["evaluate", "shards", *options]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["model"]["head"] == "of the checkpoint" and result["data"]["media"] == CLIPS
    similarity, owners = naive_similarity(state, backbone, range(CLIPS)), np.arange(CLIPS)
    recall = 100 * np.mean(similarity.argmax(axis=0) == owners)
    assert result["tables"][0]["text_to_visual"]["R@1"] == pytest.approx(recall)


def naive_similarity(state: dict[str, torch.Tensor], backbone: Any, seeds: range) -> np.ndarray:
    text = backbone.encode_texts([make_caption(i) for i in seeds])
    rows = []
    for seed in seeds:
        features = backbone.encode_features(
            np.stack(decode_frames(draw_clip(seed), FRAMES, spec=backbone.pixels).images)
        )
        best = (F.normalize(features, dim=-1) @ text.T).amax(dim=0)
        rows.append((released.pool_clip(state, features) @ text.T + best) / 2)
    return torch.stack(rows).numpy()


def test_more_frames_than_positions_are_refused_before_anything_is_written(
    imported: Path, shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["audit", str(shards), "--model", str(imported), "--out", str(tmp_path / "audit"), "--frames", "78"]
    assert run_command_line([*command, "--quiet"]) == 1
    assert "takes 77 frames, not 78" in capsys.readouterr().err and not (tmp_path / "audit").exists()


def test_a_checkpoint_of_the_image_program(tmp_path: Path) -> None:
    state = released.draw_state_dict(3, video=False, prototypes=7)
    whole = {"epoch": 5, "name": "pau", "K_prototype": 7, "state_dict": state, "optimizer": {"state": {}}}
    facts = import_checkpoint(save_released(tmp_path, whole, "epoch5.pt"), tmp_path / "pau", tau=4.0)
    loaded = load_checkpoint(tmp_path / "pau")
    assert (facts["layout"], facts["dropped"], loaded.backbone.temporal) == ("image", [], None)
    assert loaded.head is not None and (loaded.head.config.prototypes, loaded.head.config.tau) == (7, 4.0)
    save_file(state, tmp_path / "same.safetensors")
    import_checkpoint(tmp_path / "same.safetensors", tmp_path / "again", tau=4.0)
    again = load_checkpoint(tmp_path / "again")
    assert again.head is not None and again.head.fingerprint == loaded.head.fingerprint
    assert again.backbone.fingerprint == loaded.backbone.fingerprint


def test_sizes_come_from_the_tensors(tmp_path: Path) -> None:
    state = released.draw_state_dict(1, width=128, vocabulary=200, prototypes=2)
    facts = import_checkpoint(save_released(tmp_path, state), tmp_path / "pau", head_width=32)
    backbone = load_checkpoint(tmp_path / "pau").backbone
    assert backbone.temporal is not None and backbone.temporal.heads == 4 and backbone.dim == 128
    wide, pixels = released.widen(state), torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(
            backbone.model.encode_image(pixels), released.encode_frames(wide, pixels, heads=4), rtol=1e-4, atol=1e-5
        )
        frames = torch.randn(1, 5, 128)
        found = backbone.temporal.pool(frames, torch.ones(1, 5).bool())[0]
    torch.testing.assert_close(found, released.pool_clip(wide, frames[0], heads=4), rtol=0, atol=1e-5)
    assert facts["dropped"] == sorted(released.UNUSED)


Change = dict[str, torch.Tensor | None]
BLOCK = "transformerClip.resblocks.2"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"v_prototype": None}, "it misses v_prototype"),
        ({"clip.visual.proj": None}, "it misses clip.visual.proj"),
        ({"clip.logit_scale": None, "t_prototype": None}, "it misses clip.logit_scale"),
        ({f"{BLOCK}.mlp.c_fc.bias": None}, f"it misses {BLOCK}.mlp.c_fc.bias"),
        ({"frame_position_embeddings.weight": None}, "it misses frame_position_embeddings.weight"),
        ({"clip.transformer.resblocks.0.ln_1.bias": None}, "it misses clip.transformer.resblocks.0.ln_1.bias"),
        ({"clip.transformer.resblocks.7.ln_1.bias": torch.zeros(64)}, "it misses clip.transformer.resblocks.2"),
        ({"extra.weight": torch.zeros(2)}, "it has the unknown extra.weight"),
        ({"clip.visual.extra": torch.zeros(2)}, "it has the unknown clip.visual.extra"),
        ({"t_prototype": torch.zeros(4, 32)}, "misshapen: t_prototype [4, 32], not [4, 64]"),
        ({"t_prototype": torch.zeros(5, 64)}, "misshapen: t_prototype [5, 64], not [4, 64]"),
        ({"clip.visual.conv1.weight": torch.zeros(64)}, "misshapen: clip.visual.conv1.weight [64]"),
        (
            {"clip.visual.positional_embedding": torch.zeros(6, 64)},
            "clip.visual.positional_embedding [6, 64], not [5, 64]",
        ),
        ({f"{BLOCK}.ln_2.weight": torch.zeros(32)}, f"misshapen: {BLOCK}.ln_2.weight [32], not [64]"),
        ({"clip.text_projection": torch.zeros(96, 64)}, "the width 96 of clip.transformer"),
        ({"v_prototype": torch.full((4, 64), torch.nan)}, "not finite: v_prototype"),
        ({"module.v_prototype": torch.zeros(4, 64)}, "has v_prototype twice"),
        ({"v_prototype": torch.zeros(4, 64, dtype=torch.int64)}, "v_prototype is not a tensor of weights"),
    ],
)
def test_a_key_that_is_missing_unknown_or_misshapen_is_named(
    tmp_path: Path, change: Change, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    state: dict[str, Any] = released.draw_state_dict(vocabulary=300)
    for name, value in change.items():
        if value is None:
            del state[name]
        else:
            state[name] = value
    code = run_command_line(["import-pau", str(save_released(tmp_path, state)), "--out", str(tmp_path / "pau")])
    lines = capsys.readouterr().err.strip().splitlines()
    assert code == 1 and len(lines) == 1 and message in lines[0]
    assert [path.name for path in tmp_path.iterdir()] == ["pytorch_model.bin"]


def test_a_video_checkpoint_without_its_transformer_is_refused(tmp_path: Path) -> None:
    state = released.draw_state_dict(vocabulary=300)
    kept = {n: t for n, t in state.items() if not n.startswith(("transformerClip.", "frame_position"))}
    with pytest.raises(ReleasedCheckpointError, match=r"misses frame_position_embeddings.weight, transformerClip"):
        import_checkpoint(save_released(tmp_path, kept), tmp_path / "pau")


def test_pickled_code_is_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mark = tmp_path / "ran"

    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (mark,))

    state = {**released.draw_state_dict(vocabulary=300), "trap": Trap()}
    files = [save_released(tmp_path, state, "zip.bin"), tmp_path / "plain.bin", tmp_path / "noise.bin"]
    files[1].write_bytes(pickle.dumps(state))
    files[2].write_bytes(b"not weights")
    files += [tmp_path / "empty.bin", tmp_path / "damaged.safetensors"]
    files[3].write_bytes(b"")
    files[4].write_bytes(b"\x08\0\0\0\0\0\0\0{}")
    for file in files:
        assert run_command_line(["import-pau", str(file), "--out", str(tmp_path / "pau")]) == 1
        assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert not mark.exists() and not (tmp_path / "pau").exists()


def test_another_folder_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("keep")
    path = save_released(tmp_path, released.draw_state_dict(vocabulary=300))
    assert run_command_line(["import-pau", str(path), "--out", str(tmp_path / "notes")]) == 1
    assert "is not a checkpoint" in capsys.readouterr().err and (tmp_path / "notes" / "a.txt").exists()
