"""Write WebDataset shards: tars whose members are `key.extension`, byte for byte the same for the same samples."""

import io
import os
import tarfile
from collections.abc import Container, Iterable, Mapping
from pathlib import Path

from auditor.corpus.file_names import portable_extension, portable_key

Members = Mapping[str, bytes | Path]  # by extension; of a file its content


def write_shard(path: str | Path, samples: Iterable[tuple[str, Members]]) -> int:
    """Write the samples, each a key and its members, to a tar; returns how many there were.

    The tar appears under its name only when it is whole; its folder is made where it is missing.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    count = 0
    try:
        with new_tar(unfinished) as tar:
            for key, members in samples:
                count += 1
                add_sample(tar, key, members)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    return count


def new_tar(path: Path) -> tarfile.TarFile:
    """An empty tar to add samples to; close it."""
    return tarfile.open(path, "w", format=tarfile.PAX_FORMAT)


class PortableTar:
    """A tar of samples whose members every system takes: no two of one name, and none that leads out of its folder."""

    def __init__(self, path: Path) -> None:
        self.tar = new_tar(path)
        self.taken: set[str] = set()

    def __enter__(self) -> "PortableTar":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.tar.close()

    def add(self, key: str, members: Members) -> None:
        """A sample; where another one of the tar has its key, under a key of its own."""
        named: dict[str, bytes | Path] = {}
        for extension, content in members.items():
            named[free(portable_extension(extension), named)] = content
        own = free(portable_key(key), self.taken)
        self.taken.add(own)
        add_sample(self.tar, own, named)


def free(name: str, taken: Container[str]) -> str:
    """The name, or one like it that is not taken."""
    found, again = name, 0
    while found in taken:
        again += 1
        found = f"{name}-{again}"
    return found


def add_sample(tar: tarfile.TarFile, key: str, members: Members) -> None:
    for extension, content in members.items():
        info = tarfile.TarInfo(f"{key}.{extension}")  # time, owner and mode stay fixed: same in, same out
        with content.open("rb") if isinstance(content, Path) else io.BytesIO(content) as file:
            info.size = file.seek(0, os.SEEK_END)
            file.seek(0)
            tar.addfile(info, file)
