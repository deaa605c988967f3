"""Damage a file of an audit: cut it, zero it, empty it, or replace it by a folder or a broken link."""

from pathlib import Path


def cut_in_half(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def zero_bytes(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 4 : len(data) // 2] = bytes(len(data) // 2 - len(data) // 4)
    file.write_bytes(data)


def empty_file(file: Path) -> None:
    file.write_bytes(b"")


def replace_by_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def replace_by_broken_link(file: Path) -> None:
    file.unlink()
    file.symlink_to("/nowhere/at/all")
