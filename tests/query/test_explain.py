"""Explanations of rows: against naive ranks, for videos, with a reference sample, and without torch."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from auditor.audit_folder import arrow_schema
from auditor.audit_folder.embeddings import build_nullable_vectors
from auditor.audit_folder.manifest import FORMAT
from auditor.cli import cli
from auditor.python_api import Audit
from auditor.query.explain import ExplainError, explain_row
from auditor.score.statistics.rivals import ReferenceSample
from auditor.vectors import MediaVectors
from tests.support.pairs import convert_to_video, make_planted_pairs

DIM, SHARD = 24, 20


def facts(ref: ReferenceSample, kind: str) -> list[dict[str, object]]:
    return [
        {
            "uid": f"{kind[0]}{i:031x}",
            "key": f"{kind}-{i:03d}",
            "caption_index": 0,
            "shard": f"{kind}-{i // SHARD}",
            "kind": kind,
            "caption": f"caption {i}",
            "media_digest": f"{kind}{ref.group[i]}",
            "status": "ok",
        }
        for i in range(len(ref))
    ]


def write_shards(folder: Path, ref: ReferenceSample, kind: str) -> pa.Table:
    every = np.ones(len(ref), bool)
    rows = pa.Table.from_pylist(facts(ref, kind), schema=arrow_schema.FACTS)
    frames: list[object] = [None] * len(ref)
    times: list[object] = [None] * len(ref)
    if ref.media.frames is not None and ref.media.mask is not None:
        clips = zip(ref.media.frames, ref.media.mask, strict=True)
        frames = [clip[there].astype(np.float16).tolist() for clip, there in clips]
        times = [[0.5 * i for i in range(int(there.sum()))] for there in ref.media.mask]
    kinds = arrow_schema.build_embeddings_schema(DIM)
    stored = rows.append_column("visual", build_nullable_vectors(ref.visual, every)).append_column(
        "text", build_nullable_vectors(ref.text, every)
    )
    stored = stored.append_column("frame_embeddings", pa.array(frames, kinds.field("frame_embeddings").type))
    stored = stored.append_column("frame_times", pa.array(times, kinds.field("frame_times").type))
    for name in ("context_embeddings", "context_times", "part_embeddings"):
        stored = stored.append_column(name, pa.nulls(stored.num_rows, kinds.field(name).type))
    scores = pa.table([pa.nulls(len(ref), field.type) for field in arrow_schema.SCORES], schema=arrow_schema.SCORES)
    for start in range(0, len(ref), SHARD):
        name = f"{kind}-{start // SHARD}.parquet"
        pq.write_table(stored.slice(start, SHARD), folder / "embeddings" / name)
        both = [*rows.slice(start, SHARD).columns, *scores.slice(start, SHARD).columns]
        pq.write_table(pa.table(both, schema=arrow_schema.SAMPLES), folder / "samples" / name)
    return stored.drop_columns(["frame_embeddings", "frame_times"])


def halved(ref: ReferenceSample) -> ReferenceSample:
    """As it comes back from disk."""
    visual, text = ref.visual.astype(np.float16), ref.text.astype(np.float16)
    frames = None if ref.media.frames is None else ref.media.frames.astype(np.float16).astype(np.float32)
    media = MediaVectors(visual.astype(np.float32), frames, ref.media.mask)
    return replace(ref, media=media, text=text.astype(np.float32))


@pytest.fixture(scope="module")
def pictures() -> ReferenceSample:
    return halved(make_planted_pairs(50, 0.0, seed=1).reference)


@pytest.fixture(scope="module")
def clips() -> ReferenceSample:
    return halved(convert_to_video(make_planted_pairs(30, 0.0, seed=2).reference))


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory, pictures: ReferenceSample, clips: ReferenceSample) -> Path:
    folder = tmp_path_factory.mktemp("audit")
    (folder / "embeddings").mkdir()
    (folder / "samples").mkdir()
    reference = [write_shards(folder, pictures, "image"), write_shards(folder, clips, "video")]
    pq.write_table(pa.concat_tables(reference), folder / "reference.parquet")
    statistics = {"video": {"frame_threshold": 0.3}}
    (folder / "manifest.json").write_text(json.dumps({"format": FORMAT, "state": "complete", "statistics": statistics}))
    (folder / "head").mkdir()
    from safetensors.numpy import save_file

    banks = {"visual": pictures.visual[:4], "text": pictures.text[:4]}
    save_file({name: np.ascontiguousarray(bank) for name, bank in banks.items()}, folder / "head" / "head.safetensors")
    head = {"dim": DIM, "prototypes": 4, "evidence": "exp", "tau": 5.0, "scale": 20.0}
    (folder / "head" / "config.json").write_text(json.dumps({"head": head}))
    return folder


@pytest.mark.parametrize("kind", ["image", "video"])
def test_fits_and_ranks_equal_naive_ones(
    audit: Path, pictures: ReferenceSample, clips: ReferenceSample, kind: str
) -> None:
    ref = pictures if kind == "image" else clips
    matrix = ref.media.similarity(ref.text)
    with Audit(audit) as opened:
        for row in (0, 7, 23):
            found = explain_row(opened.database, f"{kind}-{row:03d}", n=3)
            others = np.delete(np.arange(len(ref)), row)
            captions = others[np.argsort(-matrix[row, others])]
            media = others[np.argsort(-matrix[others, row])]
            assert [fit.key for fit in found.captions] == [f"{kind}-{i:03d}" for i in captions[:3]]
            assert [fit.key for fit in found.media] == [f"{kind}-{i:03d}" for i in media[:3]]
            assert found.caption_rank == 1 + (matrix[row, others] > matrix[row, row]).sum()
            assert found.medium_rank == 1 + (matrix[others, row] > matrix[row, row]).sum()
            assert found.captions_of == found.media_of == len(ref)


def test_frames_of_a_video(audit: Path, clips: ReferenceSample) -> None:
    assert clips.media.frames is not None and clips.media.mask is not None
    with Audit(audit) as opened:
        found = explain_row(opened.database, "video-004")
        assert not explain_row(opened.database, "image-004").frames
    expected, there = clips.media.frame_similarity(clips.text)[4], clips.media.mask[4]
    assert [frame.similarity for frame in found.frames] == pytest.approx(expected[there].tolist(), abs=2e-3)
    assert found.best_frame == expected.argmax()
    assert [frame.time for frame in found.frames] == [0.5 * i for i in range(len(found.frames))]
    assert [frame.fits for frame in found.frames] == [bool(s >= 0.3) for s in expected[there]]


def test_prototypes_add_up_to_the_uncertainty(audit: Path, pictures: ReferenceSample) -> None:
    with Audit(audit) as opened:
        found = explain_row(opened.database, "image-003")
    evidence = np.exp(20.0 * (pictures.text[:4] @ pictures.visual[3]).astype(np.float64) / 5.0)
    assert sum(belief.belief for belief in found.prototypes_visual) == pytest.approx(
        1 - 4 / (evidence + 1).sum(), abs=2e-3
    )
    assert found.prototypes_visual[0].prototype == evidence.argmax()
    assert found.prototypes_visual[0].like is not None and found.prototypes_text[0].like in {
        f"image-{number:03d}" for number in range(len(pictures.text))
    }
    assert found.prototypes_text[0].belief >= found.prototypes_text[-1].belief


def test_a_huge_corpus_is_compared_with_its_reference(audit: Path) -> None:
    with Audit(audit) as opened:
        sampled = explain_row(opened.database, "image-003", whole_corpus=0)
        assert sampled.compared_with == "reference"
        whole = explain_row(opened.database, "image-003")
    assert sampled.captions == whole.captions and sampled.medium_rank == whole.medium_rank
    with Audit(audit) as opened:  # the reference keeps no frames, yet videos can be explained
        assert explain_row(opened.database, "video-003", whole_corpus=0).captions


def test_python_prints_an_explanation_as_a_page(audit: Path) -> None:
    with Audit(audit) as opened:
        explanation = opened.explain(opened.sql("SELECT uid FROM samples LIMIT 1")["uid"][0].as_py())
    page = repr(explanation).splitlines()
    assert explanation.row["key"] in page[0] and explanation.row["caption"] in page[0]
    assert any("similarity" in line for line in page) and len(page) > 5
    assert "Explanation(" not in repr(explanation)


def test_a_row_that_is_not_there(audit: Path) -> None:
    with Audit(audit) as opened, pytest.raises(ExplainError, match="no row 'nonesuch'"):
        explain_row(opened.database, "nonesuch")


def test_the_command_and_its_json(audit: Path) -> None:
    shown = CliRunner().invoke(cli, ["explain", str(audit), "video-002"])
    assert shown.exit_code == 0 and "frames against the caption" in shown.output
    printed = CliRunner().invoke(cli, ["explain", str(audit), "image-001", "--json"])
    assert json.loads(printed.output)["row"]["key"] == "image-001"


def test_explaining_needs_no_torch(audit: Path) -> None:
    code = (
        "import sys; from auditor.query.explain import explain_row; from auditor.query.database import AuditDatabase; "
        f"explain_row(AuditDatabase({str(audit)!r}), 'image-001'); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=300).returncode == 0
