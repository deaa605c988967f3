"""Damage a file of an audit: cut it, empty it, replace it by a folder, link or pipe, or change what it says."""

import json
import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

PLACE = "the place of the change"


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


def replace_by_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def replace_by_endless_device(file: Path) -> None:
    file.unlink()
    file.symlink_to("/dev/zero")


def move_and_link(file: Path) -> None:
    """A link to a file outside the audit, which no command may read or change."""
    outside = Path(tempfile.mkdtemp(dir=file.anchor + "tmp")) / file.name
    file.rename(outside)
    file.symlink_to(outside)


def change_json(change: str) -> Callable[[Path], None]:
    """Damage one leaf of a JSON file; other files get the changed leaf as their whole content."""

    def damage(file: Path) -> None:
        chance = random.Random(file.name)
        if file.suffix == ".jsonl":
            entry = json.loads(file.read_text().splitlines()[0])
            entry[chance.choice(sorted(entry))] = PLACE
            text = json.dumps(entry)
        elif file.suffix == ".json":
            stored = json.loads(file.read_text())
            replace_leaf(stored, chance)
            text = json.dumps(stored)
        else:
            text = f'"{PLACE}"'
        file.write_bytes(text.replace(f'"{PLACE}"', change).encode("utf-8", "surrogatepass"))

    damage.__name__ = f"json {change[:12]}"
    return damage


def replace_leaf(stored: Any, chance: random.Random) -> None:
    """Replace a random value of nested lists and objects."""
    while True:
        place = chance.choice(sorted(stored) if isinstance(stored, dict) else range(len(stored)))
        inner = stored[place]
        if not inner or not isinstance(inner, dict | list) or chance.random() < 0.2:
            stored[place] = PLACE
            return
        stored = inner


def change_table(change: Callable[[pa.Table, random.Random], pa.Table]) -> Callable[[Path], None]:
    """Rewrite a Parquet file; its metadata stays, so that only its content is wrong."""

    def damage(file: Path) -> None:
        if file.suffix == ".parquet":
            table = pq.read_table(file)
            changed = change(table, random.Random(file.name))
            pq.write_table(changed.replace_schema_metadata(table.schema.metadata), file)

    damage.__name__ = change.__name__
    return damage


def drop_column(table: pa.Table, chance: random.Random) -> pa.Table:
    return table.drop_columns([chance.choice(table.column_names)])


def drop_all_columns(table: pa.Table, chance: random.Random) -> pa.Table:
    return pa.table({"x": list(range(table.num_rows))})


def change_type(table: pa.Table, chance: random.Random) -> pa.Table:
    place = chance.randrange(table.num_columns)
    return table.set_column(place, table.column_names[place], pa.array([{"a": 1}] * table.num_rows))


def drop_rows(table: pa.Table, chance: random.Random) -> pa.Table:
    return table.slice(0, 0)


def repeat_rows(table: pa.Table, chance: random.Random) -> pa.Table:
    return pa.concat_tables([table, table])


def fill_numbers(value: float) -> Callable[[Path], None]:
    """Give every column of floating point numbers one value."""

    def fill(table: pa.Table, chance: random.Random) -> pa.Table:
        for place, field in enumerate(table.schema):
            if pa.types.is_floating(field.type):
                table = table.set_column(place, field.name, pa.array([value] * table.num_rows, field.type))
        return table

    fill.__name__ = f"fill {value}"
    return change_table(fill)


def empty_texts(table: pa.Table, chance: random.Random) -> pa.Table:
    for place, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            table = table.set_column(place, field.name, pa.nulls(table.num_rows, field.type))
    return table


NESTED = "[" * 100_000 + "]" * 100_000
JSON_VALUES = (
    NESTED,
    "1" + "0" * 400,
    "1e999",
    "NaN",
    "-1",
    '"\\ud800"',
    '"\x1b[31m"',
    "null",
    "{}",
    '[["a"]]',
    "true",
)
HOSTILE = [
    *(replace_by_pipe, replace_by_endless_device, move_and_link),
    *map(change_json, JSON_VALUES),
    *map(change_table, (drop_column, drop_all_columns, change_type, drop_rows, repeat_rows, empty_texts)),
    *map(fill_numbers, (float("nan"), 5.0, -1.0, float("inf"))),
]
