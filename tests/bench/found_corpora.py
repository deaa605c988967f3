"""Two corpora that nobody planted anything in, for benchmarks: drawings and stamps of Debian packages.

- `openclipart-png` and `openclipart-svg`: drawings, with the titles that their makers wrote into the SVG metadata;
- `tuxpaint-stamps-default`: pictures for children, each with one right caption in a hundred languages.

The packages are installed by their name (`apt-get install openclipart-png openclipart-svg tuxpaint-stamps-default`).
"""

import os
import re
import struct
from collections.abc import Sequence
from html import unescape
from pathlib import Path

import numpy as np

from auditor.vectors import Floats
from tests.bench.flickr8k import CACHE, Photos, backbone, encode_photos, encoder

DRAWINGS = Path("/usr/share/openclipart")
STAMPS = Path(os.environ.get("TUXPAINT_STAMPS", "/usr/share/tuxpaint/stamps"))
MOST_PIXELS = 20_000_000  # some drawings have 169 million
LANGUAGES = ("en", "de", "ja")


def encode_cached(shared: Path, name: str, files: Sequence[Path], captions: Sequence[str]) -> tuple[Floats, Floats]:
    model = backbone(f"local-dir:{shared / 'models' / 'flickr8k-lite'}")
    cached = CACHE / f"{name}-{len(files)}-{len(captions)}-{model.fingerprint[:16]}.npz"
    if not cached.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        visual = encode_photos(model, [file.read_bytes() for file in files])
        np.savez(cached, visual=visual, text=encoder(shared)(captions))
    with np.load(cached) as stored:
        return stored["visual"], stored["text"]


def build(shared: Path, name: str, files: Sequence[Path], captions: Sequence[str], media: Sequence[int]) -> Photos:
    visual, text = encode_cached(shared, name, files, captions)
    scale = backbone(f"local-dir:{shared / 'models' / 'flickr8k-lite'}").logit_scale
    root = STAMPS if name == "stamps" else DRAWINGS / "png"
    keys = [drawing_key(file.relative_to(root)) for file in files]
    return Photos(keys, list(captions), visual, text, np.asarray(media, np.int64), scale)


def drawing_key(path: Path) -> str:
    return str(path.with_suffix("")).replace("/", "__").replace(".", "_")


def load_drawings(shared: Path, limit: int = 2400, seed: int = 0) -> Photos:
    """Random drawings with a title, those of the judged titles among them."""
    judged = {line.split("\t")[0] for line in (shared / "data/openclipart/labels.tsv").read_text().splitlines()[1:]}
    titles = {}
    for file in sorted((DRAWINGS / "png").rglob("*.png")):
        source = DRAWINGS / "svg" / file.relative_to(DRAWINGS / "png").with_suffix(".svg")
        title = read_title(source)
        if title and count_pixels(file) < MOST_PIXELS:
            titles[file] = title
    files = list(titles)
    order = np.random.default_rng(seed).permutation(len(files))
    first = [row for row in order if drawing_key(files[row].relative_to(DRAWINGS / "png")) in judged]
    chosen = [files[row] for row in [*first, *(row for row in order if row not in set(first))][:limit]]
    return build(shared, "drawings", chosen, [titles[file] for file in chosen], range(len(chosen)))


def count_pixels(png: Path) -> int:
    with png.open("rb") as file:
        width, height = struct.unpack(">II", file.read(24)[16:])
    return int(width * height)


def read_title(svg: Path) -> str:
    for path in (svg, svg.with_suffix(".svgz")):
        if path.exists() and path.suffix == ".svg":
            found = re.search(r"<dc:title[^>]*>(.*?)</dc:title>", path.read_text("utf-8", "replace"), re.DOTALL)
            return " ".join(unescape(found.group(1)).split()) if found else ""
    return ""


def load_stamps(shared: Path, languages: Sequence[str] = LANGUAGES, step: int = 1) -> tuple[Photos, list[str]]:
    """Every `step`-th picture with one caption in each language that has it, and the language of each caption."""
    files, captions, media, spoken = [], [], [], []
    for picture in sorted(STAMPS.rglob("*.png"))[::step]:
        text = picture.with_suffix(".txt")
        if not text.exists():
            continue
        lines = text.read_text("utf-8", "replace").splitlines()
        found = {"en": lines[0].strip()} | dict(re.findall(r"^(\w+)\.utf8=(.+)$", "\n".join(lines[1:]), re.MULTILINE))
        files.append(picture)
        for language in languages:
            if found.get(language):
                captions.append(found[language].strip())
                media.append(len(files) - 1)
                spoken.append(language)
    return build(shared, "stamps", files, captions, media), spoken
