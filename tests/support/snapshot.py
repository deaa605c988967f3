"""A folder that tests may change: each test gets it back as it was, at the same path, without building it again."""

import shutil
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Snapshot:
    folder: Path
    copy: Path

    def restore(self) -> Path:
        shutil.rmtree(self.folder)
        return Path(shutil.copytree(self.copy, self.folder))


def take_snapshot(folder: Path, name: str) -> Snapshot:
    return Snapshot(folder, Path(shutil.copytree(folder, folder.with_name(f"{folder.name}-{name}"))))
