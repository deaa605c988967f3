"""Matrices read by ranges of rows equal np.load; other content is refused."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from auditor.corpus.shard import CorpusError
from auditor.corpus.stored.npy_matrix import MatrixFile

MATRIX = np.random.default_rng(0).normal(size=(100, 8)).astype(np.float16)


@pytest.fixture(params=["npy", "npz", "compressed"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> MatrixFile:
    other = np.zeros((3, 5), np.float32)
    if request.param == "npy":
        np.save(tmp_path / "a.npy", MATRIX)
        return MatrixFile(str(tmp_path / "a.npy"))
    save = np.savez if request.param == "npz" else np.savez_compressed
    save(tmp_path / "a.npz", other=other, wanted=MATRIX)
    return MatrixFile(str(tmp_path / "a.npz"), "wanted")


@pytest.mark.parametrize("cuts", [[(0, 100)], [(0, 30), (30, 77), (77, 100)], [(50, 60), (90, 91)], [(40, 50), (0, 9)]])
def test_ranges_of_rows_equal_the_whole_matrix(place: MatrixFile, cuts: list[tuple[int, int]]) -> None:
    with place.open() as matrix:
        assert (matrix.rows, matrix.width) == MATRIX.shape
        for start, stop in cuts:
            assert np.array_equal(matrix.read(start, stop), MATRIX[start:stop])


class Planted:
    def __reduce__(self) -> tuple[type[Exception], tuple[str]]:
        return RuntimeError, ("code of the file was run",)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([[Planted()]], object), allow_pickle=True)
    (tmp_path / "b.npy").write_bytes(pickle.dumps([1, 2]))
    for name in ("a.npy", "b.npy"):
        with pytest.raises(CorpusError, match=name), MatrixFile(str(tmp_path / name)).open():
            pass


@pytest.mark.parametrize("wrong", [np.zeros(4, np.float32), np.zeros((4, 4), np.int64), np.asfortranarray(MATRIX)])
def test_only_row_major_matrices_of_floats_are_read(tmp_path: Path, wrong: np.ndarray) -> None:  # type: ignore[type-arg]
    np.save(tmp_path / "a.npy", wrong)
    with (
        pytest.raises(CorpusError, match="not a row-major matrix of floats"),
        MatrixFile(str(tmp_path / "a.npy")).open(),
    ):
        pass


def test_a_file_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, MATRIX)
    path.write_bytes(path.read_bytes()[:-10])
    with MatrixFile(str(path)).open() as matrix, pytest.raises(CorpusError, match="ends too early"):
        matrix.read(90, 100)


def test_a_missing_member_error_lists_the_members(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", b32_img=MATRIX)
    place = MatrixFile(str(tmp_path / "a.npz"), "l14_img")
    with pytest.raises(CorpusError, match="has no l14_img; it has b32_img"), place.open():
        pass
    (tmp_path / "broken.npz").write_bytes(b"PK nothing")
    with pytest.raises(CorpusError, match="cannot be read"), MatrixFile(str(tmp_path / "broken.npz"), "a").open():
        pass
