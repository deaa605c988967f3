"""Read matrices in .npy and .npz files by ranges of rows, never with pickle; local or behind fsspec.

An uncompressed member of an .npz is read in place, like an .npy; a compressed one is unpacked from its beginning,
forward only. Memory use depends on the range, not on the file.
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

from auditor.corpus.corpus_files import open_file
from auditor.corpus.shard import CorpusError

Matrix = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class MatrixFile:
    """The place of a matrix: an .npy, or a member of an .npz."""

    path: str
    member: str | None = None

    @property
    def label(self) -> str:
        name = os.path.basename(self.path)
        return f"{self.member} of {name}" if self.member else name

    @property
    def column_name(self) -> str:
        """The name that stands for it in the place of a column: the member, or the folder of an .npy."""
        return self.member or os.path.basename(os.path.dirname(self.path))

    @contextmanager
    def open(self) -> Iterator["OpenMatrix"]:
        with ExitStack() as stack:
            try:
                yield OpenMatrix(self, stack.enter_context(self._stream(stack)))
            except FileNotFoundError:
                raise CorpusError(f"{self.path} does not exist") from None
            except (ValueError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
                raise CorpusError(f"{self.label} cannot be read: {' '.join(str(error).split())}") from error

    def _stream(self, stack: ExitStack) -> IO[bytes]:
        file = stack.enter_context(open_file(self.path))
        if self.member is None:
            return file
        archive = stack.enter_context(zipfile.ZipFile(file))
        name = f"{self.member}.npy"
        if name not in archive.namelist():
            members = ", ".join(sorted(entry.removesuffix(".npy") for entry in archive.namelist())[:10])
            raise CorpusError(f"{os.path.basename(self.path)} has no {self.member}; it has {members or 'nothing'}")
        entry = archive.getinfo(name)
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
            return archive.open(name)
        file.seek(entry.header_offset + 26)  # the lengths of name and extra field
        lengths = int.from_bytes(file.read(2), "little") + int.from_bytes(file.read(2), "little")
        file.seek(entry.header_offset + 30 + lengths)
        return file


class OpenMatrix:
    """An open matrix; ranges of rows are best read from front to back."""

    def __init__(self, file: MatrixFile, stream: IO[bytes]) -> None:
        self.file, self.stream = file, stream
        version = np.lib.format.read_magic(stream)
        if version not in ((1, 0), (2, 0)):
            raise CorpusError(f"unknown .npy version {version[0]}.{version[1]}")
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, self.dtype = read_header(stream)  # loads no Python object
        if self.dtype.kind != "f" or len(shape) != 2 or fortran:
            raise CorpusError(f"{file.label} is not a row-major matrix of floats: {shape} of {self.dtype}")
        self.rows, self.width = shape
        self.begin = stream.tell()

    def read(self, start: int, stop: int) -> Matrix:
        size = self.width * self.dtype.itemsize
        self.stream.seek(self.begin + start * size)  # always: streams of a file in memory share one position
        data = self.stream.read((stop - start) * size)
        if len(data) != (stop - start) * size:
            raise CorpusError(f"{self.file.label} ends too early: its header announces {self.rows} rows")
        return np.frombuffer(data, self.dtype).reshape(stop - start, self.width)
