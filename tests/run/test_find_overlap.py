"""Overlap with a test set: planted copies are found although they were altered, and a filter leaves them out."""

import io
import tarfile
from pathlib import Path

import pytest
from PIL import Image, ImageOps

from auditor import Audit
from auditor.audit_folder.side_files import overlap_name
from auditor.cli import run_command_line
from auditor.errors import AuditError
from auditor.query.rules import Rules
from auditor.run.audit_config import AuditConfig
from auditor.run.find_overlap import find_overlap
from auditor.run.run_audit import run_audit
from tests.support.corpora import make_caption, make_picture, make_sample, write_tar

COUNT = 24


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory, random_model: str) -> tuple[str, str, str]:
    """An audit, a test set as a corpus that shares three media and two captions with it, and the model."""
    place = tmp_path_factory.mktemp("overlap")
    write_tar(place / "corpus/0.tar", [(f"{i}", make_sample(i)) for i in range(COUNT)])
    shared = [(f"t{i}", {"jpg": make_picture(i), "txt": f"nothing like it {i}".encode()}) for i in (3, 7, 11)]
    text = make_caption(50).upper().encode() + b" !"
    other = [
        ("u0", {"jpg": make_picture(900), "txt": text}),
        ("u1", {"jpg": make_picture(901), "txt": make_caption(80).encode()}),
    ]
    write_tar(place / "test/0.tar", [*shared, *other])
    run_audit(AuditConfig(str(place / "corpus"), str(place / "audit"), random_model, quiet=True))
    return str(place / "audit"), str(place / "test"), random_model


def test_exact_media_and_captions_are_found(audited: tuple[str, str, str]) -> None:
    audit, other, _ = audited
    rows = find_overlap(audit, other, media_cosine=2.0, caption_cosine=2.0).to_pylist()
    media = {(row["key"], row["other_key"]) for row in rows if row["what"] == "media"}
    assert media == {("3", "t3"), ("7", "t7"), ("11", "t11")}
    assert {row["key"] for row in rows if row["what"] == "caption"} == {"5", "8"}
    assert {row["how"] for row in rows} == {"exact"}


def test_a_filter_leaves_them_out(audited: tuple[str, str, str], capsys: pytest.CaptureFixture[str]) -> None:
    audit, other, _ = audited
    find_overlap(audit, other, media_cosine=2.0, caption_cosine=2.0)
    kept = Audit(audit).keep(no_overlap=other)
    assert kept.count == COUNT - 3
    assert Rules.of(no_overlap=other).command_line() == ["--no-overlap", other]
    assert run_command_line(["filter", audit, "--no-overlap", other, "--dry-run"]) == 0
    assert "no_overlap" in capsys.readouterr().out
    assert run_command_line(["filter", audit, "--no-overlap", "elsewhere", "--dry-run"]) == 1
    assert "auditor overlap" in capsys.readouterr().err


def test_the_command_and_an_audit_as_the_other(
    audited: tuple[str, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    audit, other, model = audited
    run_audit(AuditConfig(other, f"{other}-audit", model, quiet=True))
    assert run_command_line(["overlap", audit, f"{other}-audit", "--media-cosine", "2", "--caption-cosine", "2"]) == 0
    assert "media" in capsys.readouterr().out
    assert Path(audit, overlap_name(f"{other}-audit")).exists()
    assert run_command_line(["overlap", audit, "nowhere.tar"]) == 1
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_another_model_is_refused(audited: tuple[str, str, str], shared: Path) -> None:
    audit, other, _ = audited
    with pytest.raises(AuditError, match="not the model"):
        find_overlap(audit, other, model=f"local-dir:{shared}/models/flickr8k-lite")


def photos(shared: Path, count: int) -> list[Image.Image]:
    with tarfile.open(shared / "data/human/photos-00000.tar") as tar:
        names = [name for name in tar.getnames() if name.endswith(".jpg")][:count]
        files = [tar.extractfile(name) for name in names]
        return [Image.open(io.BytesIO(file.read())) for file in files if file is not None]


def saved(image: Image.Image, quality: int = 95) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def cropped(image: Image.Image) -> Image.Image:
    width, height = image.size
    return image.crop((width // 20, height // 20, width - width // 20, height - height // 20))


def test_altered_copies_of_real_photos_are_found_and_little_else(shared: Path, tmp_path: Path) -> None:
    """Photos that were not used to choose the threshold: 60 in the corpus, 20 of them altered in the test set."""
    real = photos(shared, 80)
    ways = (lambda image: saved(image, 60), lambda image: saved(ImageOps.mirror(image)), lambda i: saved(cropped(i)))
    write_tar(
        tmp_path / "corpus/0.tar", [(f"{n}", {"jpg": saved(p), "txt": b"a photo"}) for n, p in enumerate(real[:60])]
    )
    copies = [(f"{n}", {"jpg": ways[n % 3](real[n]), "txt": b"nothing"}) for n in range(20)]
    others = [(f"o{n}", {"jpg": saved(real[60 + n]), "txt": b"nothing"}) for n in range(20)]
    write_tar(tmp_path / "test/0.tar", [*copies, *others])
    model = f"local-dir:{shared}/models/flickr8k-lite"
    run_audit(AuditConfig(str(tmp_path / "corpus"), str(tmp_path / "audit"), model, quiet=True))
    found = find_overlap(str(tmp_path / "audit"), str(tmp_path / "test")).to_pylist()
    media = {(row["key"], row["other_key"]) for row in found if row["what"] == "media"}
    assert len(media & {(f"{n}", f"{n}") for n in range(20)}) >= 19
    assert len(media) <= 21
