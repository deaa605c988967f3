"""A new user who audits a few files reads correct counts in plain words."""

from pathlib import Path

import pytest

from auditor.cli import run_command_line
from auditor.python_api import Audit
from tests.support.clips import make_clip
from tests.support.synthetic import make_photo, write_audit


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory, random_model: str) -> tuple[Path, str]:
    """Six photos, one of them with a caption that is repeated, and three clips; what the audit printed."""
    root = tmp_path_factory.mktemp("first")
    (root / "mine").mkdir()
    for number in range(6):
        (root / "mine" / f"photo{number}.jpg").write_bytes(make_photo(number))
        (root / "mine" / f"photo{number}.txt").write_text("a dog\na cat\na dog" if number == 0 else f"words {number}")
    for number in range(3):
        (root / "mine" / f"clip{number}.mp4").write_bytes(make_clip(frames=12 + number, size=(64, 48)))
        (root / "mine" / f"clip{number}.txt").write_text(f"a clip {number}")
    arguments = ["audit", str(root / "mine"), "--out", str(root / "audit"), "--model", random_model, "--frames", "4"]
    with pytest.MonkeyPatch.context() as patch:
        lines: list[str] = []
        patch.setattr("auditor.run.outcome.print_lines", lines.append)
        patch.setattr("auditor.run.outcome.print_table", lambda rows, title, *_: lines.append(title))
        assert run_command_line([*arguments, "--allow-random-weights", "--quiet"]) == 0
    return root / "audit", "\n".join(lines)


def test_media_are_counted_as_media(said: tuple[Path, str]) -> None:
    summary = Audit(said[0]).summary()
    assert summary.kinds == {"image": 6, "video": 3} and summary.captions == {"image": 8, "video": 3}
    assert "6 with 8 captions" in said[1] and "pairs without an estimate" in said[1]


def test_a_repeated_pair_is_a_duplicate(said: tuple[Path, str]) -> None:
    audit = Audit(said[0])
    repeated = audit.sql("SELECT key, caption_index FROM samples WHERE caption = 'a dog' AND duplicate_of IS NOT NULL")
    assert repeated.to_pylist() == [{"key": "photo0", "caption_index": 2}]
    first = audit.sql("SELECT uid FROM samples WHERE key = 'photo0' AND caption_index = 0").to_pylist()[0]["uid"]
    assert [row["uid"] for row in audit.explain("photo0", 2).duplicates] == [first]
    assert "photo0" in audit.keep(no_duplicates=True, where="caption = 'a dog'").keys.to_pylist()


def test_frames_add_up_to_their_share(said: tuple[Path, str], capsys: pytest.CaptureFixture[str]) -> None:
    found = Audit(said[0]).explain("clip1")
    assert all(frame.fits is not None for frame in found.frames)
    share = sum(bool(frame.fits) for frame in found.frames) / len(found.frames)
    assert found.row["frame_match_share"] == pytest.approx(share)
    assert run_command_line(["explain", str(said[0]), "clip1"]) == 0
    words = capsys.readouterr().out
    assert "of the 3 captions of videos in the corpus" in words and "of the 3 videos in the corpus" in words
    assert "the medium nearest to it" in words


def test_nothing_suspicious_is_said(said: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "the corpus has too few different pairs of this kind" in str(Audit(said[0]).findings()).lower()
    audit = str(write_audit(tmp_path / "audit", 200))
    assert run_command_line(["worst", audit, "--where", "p_mismatch < 0.01"]) == 0
    assert "nothing is suspicious" in capsys.readouterr().err
    assert run_command_line(["worst", audit]) == 0
    assert "nothing is suspicious" not in capsys.readouterr().err


def test_ties_are_ordered_by_the_score_behind_them(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from auditor.query.row_queries import read_media_page

    folder = write_audit(tmp_path / "audit", 300, 100)
    for path in (folder / "samples").glob("*.parquet"):
        table = pq.read_table(path)
        p = [None if value is None else float(value > 0.5) for value in table["p_mismatch"].to_pylist()]
        place = table.schema.get_field_index("p_mismatch")
        pq.write_table(table.set_column(place, table.schema.field(place), pa.array(p, pa.float32())), path)
    audit = Audit(folder)
    usable = audit.sql("SELECT * FROM samples WHERE status = 'ok'").to_pylist()
    expected = [row["uid"] for row in sorted(usable, key=lambda row: (-row["p_mismatch"], row["mismatch_score"]))]
    assert sum(row["p_mismatch"] for row in usable) < 40  # so that both ends of a tie are looked at
    assert audit.worst(n=60)["uid"].to_pylist() == expected[:60]
    assert audit.page("status = 'ok'", "p_mismatch", True, 60)["uid"].to_pylist() == expected[:60]
    assert audit.page("status = 'ok'", "p_mismatch", False, 60)["uid"].to_pylist() == expected[::-1][:60]
    pages = read_media_page(audit.database, "status = 'ok'", "p_mismatch", True, 60)
    assert [rows[0]["uid"] for rows in pages] == expected[:60]
    for top in (20, 100):
        assert set(audit.keep(keep_top=top, by="p_mismatch").uids.to_pylist()) == set(expected[::-1][:top])


def test_larger_files_are_allowed_together_with_the_memory_they_take() -> None:
    from auditor.run.start_audit import DecodeOptions, build_limits

    usual = build_limits(DecodeOptions(max_pixels=10, max_bytes=1 << 30, timeout=5.0))
    larger = build_limits(DecodeOptions(max_pixels=10, max_bytes=5 << 30, timeout=5.0))
    assert (usual.max_pixels, usual.max_bytes, usual.seconds) == (10, 1 << 30, 5.0)
    assert larger.max_bytes == 5 << 30 and larger.memory - usual.memory == 4 << 30
    assert build_limits(DecodeOptions(max_pixels=10, max_bytes=1000, timeout=5.0)).memory == usual.memory
