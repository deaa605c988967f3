"""Describe the Parquet files of an audit in Croissant, the metadata format of MLCommons; needs `mlcroissant`."""

import os

from auditor.audit_folder.folder import Folder, split_target
from auditor.errors import AuditorError
from auditor.schema import COLUMNS

FOLDERS = ("samples", "embeddings", "duplicates", "overlap")
TYPES = {"string": "TEXT", "double": "FLOAT64", "float": "FLOAT32"}  # others are called as in Arrow


def write_croissant(audit: Folder, digest: str, out: str) -> None:
    """Write a record set for each kind of file, without vectors."""
    import mlcroissant as mlc

    folder, name = split_target(out)
    if not (folder.local and audit.local):
        raise AuditorError("--croissant needs a local audit and a local file: it refers to files beside it")
    place = os.path.relpath(audit.root, folder.root)
    examples = {f"{part}/*": f"{part}/{names[0]}" for part in FOLDERS if (names := audit.names(part, ".parquet"))}
    examples |= {part: part for part in audit.names("", ".parquet")}
    sets, records = [], []
    for pattern, example in examples.items():
        part, files = pattern.removesuffix("/*"), os.path.normpath(f"{place}/{pattern}.parquet")
        sets.append(mlc.FileSet(id=part, name=part, includes=[files], encoding_formats=["application/x-parquet"]))
        fields = [
            mlc.Field(
                id=f"{part}-rows/{column.name}",
                name=column.name,
                description=COLUMNS[column.name].meaning if column.name in COLUMNS else None,
                data_types=[data_type],
                source=mlc.Source(file_set=part, extract=mlc.Extract(column=column.name)),
            )
            for column in audit.table_schema(f"{example}.parquet")
            if (data_type := getattr(mlc.DataType, TYPES.get(str(column.type), str(column.type).upper()), None))
        ]
        records.append(mlc.RecordSet(id=f"{part}-rows", name=f"{part}-rows", fields=fields))
    words = f"What pau-auditor measured of the corpus {digest}."
    metadata = mlc.Metadata(name="audit", description=words, distribution=sets, record_sets=records)
    folder.write_json(name, metadata.to_json())
