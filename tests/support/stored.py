"""Write stored embeddings in the published layouts: pairs that match, and some that are swapped."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

Floats = npt.NDArray[np.float32]


def make_pairs(
    count: int, dim: int = 16, swapped: float = 0.1, seed: int = 0, deviations: Floats | None = None
) -> tuple[Floats, Floats]:
    """Unit vectors of media and captions that agree, except for a share of random captions.

    `deviations` (D,) are those of the dimensions before rows are normalized, by default all 1.
    """
    random, scale = np.random.default_rng(seed), np.float32(1) if deviations is None else deviations
    visual = random.normal(size=(count, dim)).astype(np.float32)
    text = visual + 0.4 * random.normal(size=(count, dim)).astype(np.float32)
    wrong = random.random(count) < swapped
    text[wrong] = random.normal(size=(int(wrong.sum()), dim))
    return normalize_rows(visual * scale), normalize_rows(text * scale)


def normalize_rows(values: Floats) -> Floats:
    return values / np.linalg.norm(values, axis=1, keepdims=True)


def make_uids(count: int, seed: int = 0) -> list[str]:
    return [np.random.default_rng([seed, row]).bytes(16).hex() for row in range(count)]


def make_datacomp_table(count: int, seed: int = 0) -> pa.Table:
    """The columns of DataComp's metadata."""
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "uid": make_uids(count, seed),
            "url": [f"https://example.org/{seed}/{row}.jpg" for row in range(count)],
            "text": [f"caption {row} of part {seed}" for row in range(count)],
            "original_width": pa.array(random.integers(100, 900, count), pa.int32()),
            "original_height": pa.array(random.integers(100, 900, count), pa.int32()),
            "clip_b32_similarity_score": pa.array(random.random(count), pa.float32()),
            "clip_l14_similarity_score": pa.array(random.random(count), pa.float32()),
            "face_bboxes": [[[0.1, 0.2, 0.3, 0.4]]] * count,
            "sha256": [np.random.default_rng([9, seed, row]).bytes(32).hex() for row in range(count)],
        }
    )


def write_datacomp(folder: Path, files: int = 2, count: int = 300, dim: int = 16, **changes: Any) -> Path:
    """Write NAME.parquet and NAME.npz. `changes` replace arrays of the first .npz."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        pq.write_table(make_datacomp_table(count, number), folder / f"part-{number}.parquet")
        visual, text = make_pairs(count, dim, seed=number)
        arrays = {
            "b32_img": visual[:, : dim // 2].astype(np.float16),
            "b32_txt": text[:, : dim // 2].astype(np.float16),
            "l14_img": visual.astype(np.float16),
            "l14_txt": text.astype(np.float16),
        }
        np.savez(folder / f"part-{number}.npz", **(arrays | (changes if number == 0 else {})))
    return folder


def write_clip_retrieval(folder: Path, parts: int = 2, count: int = 200, dim: int = 16) -> Path:
    """Write img_emb/, text_emb/ and metadata/ like clip-retrieval's inference."""
    for part in ("img_emb", "text_emb", "metadata"):
        (folder / part).mkdir(parents=True)
    for number in range(parts):
        visual, text = make_pairs(count, dim, seed=number)
        np.save(folder / f"img_emb/img_emb_{number}.npy", visual.astype(np.float16))
        np.save(folder / f"text_emb/text_emb_{number}.npy", text.astype(np.float16))
        table = pa.table(
            {
                "image_path": [f"{number:02d}{row:04d}" for row in range(count)],
                "caption": [f"caption {row} of part {number}" for row in range(count)],
                "license": ["cc-by" if row % 2 else "unknown" for row in range(count)],
            }
        )
        pq.write_table(table, folder / f"metadata/metadata_{number}.parquet")
    return folder


def make_vector_table(visual: Floats, text: Floats, captions: list[str | None], *, fixed: bool = True) -> pa.Table:
    """A table with two vector columns: fixed-size lists of float32, or lists of float16."""

    def column(values: Floats) -> pa.Array:
        if fixed:
            return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
        return pa.array([row.astype(np.float16) for row in values], pa.list_(pa.float16()))

    return pa.table({"image_embedding": column(visual), "text_embedding": column(text), "caption": captions})


def plant_related_pairs(count: int, dim: int = 32, *, blind: bool = False, seed: int = 0) -> tuple[Floats, Floats]:
    """Unit vectors of matching pairs of many small topics; `blind` rotates the captions at random."""
    random = np.random.default_rng(seed)
    topics = random.normal(size=(40, dim))[random.integers(0, 40, count)]
    visual = topics + 0.6 * random.normal(size=(count, dim))
    text = visual + 0.5 * random.normal(size=(count, dim))
    if blind:
        text = text @ np.linalg.qr(random.normal(size=(dim, dim)))[0]
    return normalize_rows(visual.astype(np.float32)), normalize_rows(text.astype(np.float32))
