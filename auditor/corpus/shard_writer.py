"""Write WebDataset shards: tars whose members are `key.extension`, byte for byte the same for the same samples."""

import io
import os
import tarfile
from collections.abc import Container, Iterable, Mapping
from pathlib import Path

from auditor.corpus.file_names import make_portable_extension, make_portable_key

Members = Mapping[str, bytes | Path]  # by extension; a Path stands for the content of its file


def write_shard(path: str | Path, samples: Iterable[tuple[str, Members]]) -> int:
    """Write samples, each a key and its members, to a tar and return their number.

    The tar gets its name when it is complete; its folder is created if it is missing.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    count = 0
    try:
        with tarfile.open(unfinished, "w", format=tarfile.PAX_FORMAT) as tar:
            for key, members in samples:
                count += 1
                add_sample_members(tar, key, members)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    return count


class PortableTar:
    """A tar that unpacks on every system: member names are unique and stay inside the folder."""

    def __init__(self, path: Path) -> None:
        self.tar = tarfile.open(path, "w", format=tarfile.PAX_FORMAT)  # noqa: SIM115
        self.used_keys: set[str] = set()

    def __enter__(self) -> "PortableTar":
        return self

    def __exit__(self, *_: object) -> None:
        self.tar.close()

    def add(self, key: str, members: Members) -> None:
        """Add a sample; if its key is in use, the sample gets a similar unused key."""
        renamed: dict[str, bytes | Path] = {}
        for extension, content in members.items():
            renamed[make_unique_name(make_portable_extension(extension), renamed)] = content
        free_key = make_unique_name(make_portable_key(key), self.used_keys)
        self.used_keys.add(free_key)
        add_sample_members(self.tar, free_key, renamed)


def make_unique_name(name: str, used_names: Container[str]) -> str:
    candidate, number = name, 0
    while candidate in used_names:
        number += 1
        candidate = f"{name}-{number}"
    return candidate


def add_sample_members(tar: tarfile.TarFile, key: str, members: Members) -> None:
    for extension, content in members.items():
        info = tarfile.TarInfo(f"{key}.{extension}")  # fixed time, owner and mode: equal input gives equal bytes
        with content.open("rb") if isinstance(content, Path) else io.BytesIO(content) as file:
            info.size = file.seek(0, os.SEEK_END)
            file.seek(0)
            tar.addfile(info, file)
