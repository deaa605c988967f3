"""What can happen to a file of an audit: cut off, zeroed, emptied, replaced by a folder or a dangling link."""

from pathlib import Path


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def zero(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 4 : len(data) // 2] = bytes(len(data) // 2 - len(data) // 4)
    file.write_bytes(data)


def empty(file: Path) -> None:
    file.write_bytes(b"")


def to_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def dangle(file: Path) -> None:
    file.unlink()
    file.symlink_to("/nowhere/at/all")
