"""Write WebDataset shards: tars whose members are `key.extension`, byte for byte the same for the same samples."""

import io
import os
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path


def write_shard(path: str | Path, samples: Iterable[tuple[str, Mapping[str, bytes]]]) -> int:
    """Write the samples, each a key and its members by extension, to a tar; returns how many there were.

    The tar appears under its name only when it is whole; its folder is made where it is missing.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    count = 0
    try:
        with tarfile.open(unfinished, "w", format=tarfile.PAX_FORMAT) as tar:
            for key, members in samples:
                count += 1
                for extension, data in members.items():
                    info = tarfile.TarInfo(f"{key}.{extension}")  # time, owner and mode stay fixed: same in, same out
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    return count
