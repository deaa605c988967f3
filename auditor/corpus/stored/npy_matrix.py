"""Matrices in .npy and .npz files, read by stretches of rows and never by pickle; local or behind fsspec.

A member of an .npz that is not compressed is read at its place in the file, as a .npy is; a compressed one is unpacked
from its beginning, forward only. Memory follows the stretch, not the file.
"""

import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from auditor.corpus import remote_files
from auditor.corpus.shard import CorpusError

Matrix = npt.NDArray[np.floating[Any]]


class NpyError(CorpusError):
    """A file that does not hold the matrix it should."""


@dataclass(frozen=True, slots=True)
class MatrixPlace:
    """Where a matrix is: a .npy, or a member of an .npz."""

    path: str
    member: str | None = None

    @property
    def label(self) -> str:
        name = os.path.basename(self.path)
        return f"{self.member} of {name}" if self.member else name

    @contextmanager
    def open(self) -> Iterator["OpenMatrix"]:
        with ExitStack() as stack:
            try:
                yield OpenMatrix(self, stack.enter_context(self._stream(stack)))
            except FileNotFoundError:
                raise NpyError(f"{self.path} does not exist") from None
            except (ValueError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
                raise NpyError(f"{self.label} cannot be read: {' '.join(str(error).split())}") from error

    def _stream(self, stack: ExitStack) -> IO[bytes]:
        opened = remote_files.open_url(self.path) if remote_files.is_url(self.path) else open(self.path, "rb")  # noqa: SIM115
        file: IO[bytes] = stack.enter_context(opened)
        if self.member is None:
            return file
        archive = stack.enter_context(zipfile.ZipFile(file))
        name = f"{self.member}.npy"
        if name not in archive.namelist():
            there = ", ".join(sorted(entry.removesuffix(".npy") for entry in archive.namelist())[:10])
            raise NpyError(f"{os.path.basename(self.path)} has no {self.member}; it has {there or 'nothing'}")
        entry = archive.getinfo(name)
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
            return archive.open(name)
        file.seek(entry.header_offset + 26)  # where the lengths of name and extra field stand
        lengths = int.from_bytes(file.read(2), "little") + int.from_bytes(file.read(2), "little")
        file.seek(entry.header_offset + 30 + lengths)
        return file


class OpenMatrix:
    """Rows of a matrix by stretches, best from front to back."""

    def __init__(self, place: MatrixPlace, stream: IO[bytes]) -> None:
        self.place, self.stream = place, stream
        shape, fortran, self.dtype = read_header(stream)
        if self.dtype.kind != "f" or len(shape) != 2 or fortran:
            raise NpyError(f"{place.label} is not a matrix of floats, row by row: {shape} of {self.dtype}")
        self.rows, self.width = shape
        self.begin = stream.tell()

    def read(self, start: int, stop: int) -> Matrix:
        """Rows `start` to `stop`."""
        size = self.width * self.dtype.itemsize
        self.stream.seek(self.begin + start * size)  # always: streams of a file in memory share their position
        data = self.stream.read((stop - start) * size)
        if len(data) != (stop - start) * size:
            raise NpyError(f"{self.place.label} ends too early: {self.rows} rows are announced")
        return np.frombuffer(data, self.dtype).reshape(stop - start, self.width)


def read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether by columns, and type; of an array of Python objects nothing is ever loaded."""
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        header = np.lib.format.read_array_header_1_0(stream)
    elif version == (2, 0):
        header = np.lib.format.read_array_header_2_0(stream)
    else:
        raise NpyError(f"an .npy of version {version[0]}.{version[1]} is not known")
    return header
