"""Openings that many captions share are named, by source; one repeated caption and human captions are none."""

import io
import re
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor.audit_folder.fault_records import Fault
from auditor.faults.shared_openings import SHARE, find_shared_openings
from auditor.python_api import Audit
from auditor.report.finding_rules import build_fault_rule
from tests.conftest import SHARED
from tests.support.synthetic import write_corpus_audit

OPENINGS = ("In this image, we can see {}", "The PICTURE captures a lively {}", "{} seen from above on a sunny day")


def write_captions(folder: Path, captions: list[str], sources: list[str | None] | None = None) -> Audit:
    path, _ = write_corpus_audit(folder, captions=5)
    at = 0
    for file in sorted((path / "samples").glob("*.parquet")):
        rows = pq.read_table(file)
        texts = [captions[(at + i) % len(captions)] for i in range(len(rows))]
        places = [sources[(at + i) % len(sources)] if sources else None for i in range(len(rows))]
        columns = {"caption": texts, "caption_source": places, "caption_hash": [hash(text) >> 2 for text in texts]}
        for name, values in columns.items():
            index = rows.schema.get_field_index(name)
            rows = rows.set_column(index, rows.schema.field(name), pa.array(values, rows.schema.field(name).type))
        pq.write_table(rows, file)
        at += len(rows)
    return Audit(path)


def count(audit: Audit, fault: Fault) -> int:
    assert fault.where is not None
    return audit.count(fault.where)


def test_the_longest_shared_opening_is_named(tmp_path: Path) -> None:
    """Case and punctuation do not matter; the rows of the finding are exactly those with the opening."""
    captions = [OPENINGS[i % 3].format(f"dog number {i} and cat {i * 7}") for i in range(300)]
    audit = write_captions(tmp_path, captions)
    faults = find_shared_openings(audit.database)
    assert {fault.value for fault in faults} == {"in this image we can see", "the picture captures a lively dog"}
    for fault in faults:
        pattern = re.compile(r"\W+".join((fault.value or "").split()), re.I)
        rows = audit.sql("SELECT caption FROM samples WHERE status = 'ok'")["caption"].to_pylist()
        expected = sum(bool(pattern.match(caption)) for caption in rows)
        assert fault.rows == count(audit, fault) == expected and fault.share == pytest.approx(1 / 3, abs=0.03)
    rule = build_fault_rule("opening", faults)
    assert rule.apart and "open with 'in this image we can see'" in rule.meaning


def test_openings_belong_to_a_source(tmp_path: Path) -> None:
    captions = [OPENINGS[0].format(i) if i % 2 else f"{i} dogs at {i * 3} o'clock" for i in range(300)]
    audit = write_captions(tmp_path, captions, ["raw", "refined"])
    (fault,) = find_shared_openings(audit.database)
    assert "captions of refined (100% of the different ones)" in fault.sentence
    assert fault.where is not None and fault.where.endswith("caption_source = 'refined'")
    assert fault.rows == audit.count("status = 'ok' AND caption_source = 'refined'")


def test_one_repeated_caption_is_no_opening(tmp_path: Path) -> None:
    captions = [
        f"{i} dogs at {i * 3} o'clock" if i % 2 else "In this image we can see a dog on grass" for i in range(300)
    ]
    assert find_shared_openings(write_captions(tmp_path, captions).database) == []


def test_quotes_and_other_scripts(tmp_path: Path) -> None:
    captions = [f"L'image montre l'été à midi, {i} chiens" for i in range(300)]
    audit = write_captions(tmp_path, captions)
    (fault,) = find_shared_openings(audit.database)
    assert fault.value == "l image montre l été à" and count(audit, fault) == fault.rows > 200


@pytest.mark.skipif(not (SHARED / "data" / "flickr8k").exists(), reason="needs the photos of ../shared")
def test_people_share_no_opening() -> None:
    import tarfile

    captions: set[str] = set()
    for path in sorted((SHARED / "data" / "flickr8k").glob("*.tar")):
        with tarfile.open(path) as tar:
            texts = (
                io.TextIOWrapper(file).read() for m in tar if m.name.endswith(".txt") and (file := tar.extractfile(m))
            )
            captions |= {line for text in texts for line in text.splitlines() if line.strip()}
    openings = Counter(" ".join(re.findall(r"\w+", caption.lower())[:4]) for caption in captions)
    assert len(captions) > 15_000 and openings.most_common(1)[0][1] / len(captions) < SHARE / 2
