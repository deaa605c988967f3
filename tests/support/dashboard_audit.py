"""Writes and audits a small corpus of pictures, clips that browsers play, broken files and hostile text."""

import io
from pathlib import Path

import numpy as np
from PIL import Image

from tests.support.corpora import make_caption, write_tar

HOSTILE = (
    "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>",
    "**bold** [link](javascript:window.hacked=3) ![](https://example.invalid/x.png) :red[red] $x^2$ :smile: `code`",
    "# heading www.example.invalid https://example.invalid/ <b>not bold</b> :material/home:",
)
HOSTILE_KEY = "000000-**key**"
TIMED = (("00:02.400", "00:04.600"), ("00:06.000", "00:07.500"), ("00:40.000", "00:50.000"))


def make_smooth_photo(seed: int) -> bytes:
    """A smooth random picture that compresses well."""
    coarse = np.random.default_rng(seed).integers(20, 236, (3, 4, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(coarse).resize((200, 150), Image.Resampling.BICUBIC).save(buffer, "JPEG")
    return buffer.getvalue()


def write_corpus(folder: Path, images: int = 60, clips: int = 25) -> Path:
    """Write two shards of pictures and clips.

    The first captions are hostile, one image is corrupt, one has no caption, and one video has timed captions.
    """
    from tests.support.clips import make_clip

    samples: list[tuple[str, dict[str, bytes]]] = []
    for number in range(images):
        text = HOSTILE[number] if number < len(HOSTILE) else make_caption(number)
        key = HOSTILE_KEY if number == 0 else f"{number:06d}"
        samples.append((key, {"jpg": make_smooth_photo(number), "txt": text.encode()}))
    samples += [
        ("900000", {"jpg": b"not a picture", "txt": b"a broken file"}),
        ("900001", {"jpg": make_smooth_photo(901)}),
    ]
    write_tar(folder / "00000.tar", samples)
    moving = [
        (
            f"clip{number:03d}",
            {
                "mp4": make_clip(frames=30 + number % 20, size=(128, 96), rate=10 + number // 20),
                "txt": make_caption(500 + number).encode(),
            },
        )
        for number in range(clips)
    ]
    write_tar(folder / "00001.tar", [*moving, ("timed", make_timed_video())])
    return folder


def make_timed_video() -> dict[str, bytes]:
    """A video of ten seconds with three timed captions, one of them beyond its end."""
    from tests.support.clips import make_clip

    cues = "".join(f"{a} --> {b}\n{make_caption(700 + n)}\n\n" for n, (a, b) in enumerate(TIMED))
    return {"mp4": make_clip(frames=50, size=(128, 96), rate=5), "vtt": f"WEBVTT\n\n{cues}".encode()}


def write_audit(folder: Path, model: str) -> Path:
    """Write the corpus and its audit; returns the folder of the audit."""
    from auditor.run.audit_config import AuditConfig
    from auditor.run.run_audit import run_audit
    from auditor.sweep.sweep_config import SweepConfig

    corpus = write_corpus(folder / "corpus")
    config = AuditConfig(
        corpus=str(corpus), out=str(folder / "audit"), model=model, sweep=SweepConfig(frames=6), quiet=True
    )
    run_audit(config)
    return folder / "audit"
