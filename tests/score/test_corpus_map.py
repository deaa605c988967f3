"""The map: every usable row is placed among the sample, and a stored layout is reused."""

from pathlib import Path

import numpy as np
import pytest

from auditor import Audit
from auditor.audit_folder.folder import Folder
from auditor.audit_folder.side_files import read_topics
from auditor.score import corpus_map
from auditor.score.statistics import map_layout
from tests.support.planted import make_captions, make_embeddings, write_planted

PLACES = ("map_x", "map_y", "map_text_x", "map_text_y")


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("map") / "audit"
    write_planted(folder, *make_embeddings(90), shards=2, captions=make_captions(90), broken=[5])
    return folder


def test_usable_rows_lie_where_the_layout_places_them(audit: Path) -> None:
    rows = Audit(audit).sql(f"SELECT key, status, {', '.join(PLACES)} FROM samples ORDER BY key").to_pylist()
    assert [row["key"] for row in rows if row["map_x"] is None] == [row["key"] for row in rows if row["status"] != "ok"]
    media, _ = make_embeddings(90)
    usable = [i for i in range(90) if rows[i]["status"] == "ok"]
    fitted = map_layout.fit_layout(media[usable].astype(np.float16).astype(np.float32))
    naive = fitted.place(media[usable].astype(np.float16).astype(np.float32))
    found = np.array([[rows[i]["map_x"], rows[i]["map_y"]] for i in usable])
    assert np.abs(found).max() <= 1 and np.ptp(found, axis=0).min() > 0.5
    assert np.corrcoef(np.ravel(distances(naive)), np.ravel(distances(found)))[0, 1] > 0.5
    assert len(read_topics(Folder(audit))) == 8 and all(read_topics(Folder(audit)))


def distances(position: np.ndarray) -> np.ndarray:
    return np.linalg.norm(position[:, None] - position[None], axis=-1)


def test_a_stored_map_is_reused(audit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(audit)
    pairs = [one for kind in ("image",) if (one := draw(folder, kind))]
    kept = corpus_map.fit_map(folder, pairs, 0, keep=False)
    monkeypatch.setattr(corpus_map, "fit_layout", lambda *_: pytest.fail("it was laid out again"))
    assert corpus_map.fit_map(folder, pairs, 0, keep=False).fingerprint == kept.fingerprint


def draw(folder: Folder, kind: str) -> corpus_map.EncodedPairs | None:
    from auditor.score.pair_sample import SampleRequest, count_encoded, draw_pairs

    counts = count_encoded(folder, folder.names("embeddings", ".parquet"))
    return draw_pairs(folder, counts, [SampleRequest(kind, 4096)], 0)[0]


def test_the_sample_is_bounded_and_even() -> None:
    assert len(corpus_map.space_evenly(10**6)) == corpus_map.SAMPLE and corpus_map.space_evenly(3).tolist() == [0, 1, 2]
