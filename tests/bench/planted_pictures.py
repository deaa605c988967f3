"""Pictures for the benchmark of prompt columns: photos of Flickr8k, drawings, watermarked photos, screenshots of text.

Drawings are those of Debian's package openclipart-png; `OPENCLIPART` is the folder of its PNG files:

    apt-get download openclipart-png && dpkg -x openclipart-png_*.deb /tmp/openclipart

Everything is encoded once by the small model of ../shared. Settings are chosen on `train-00000`, `val-00000` is
reported.
"""

import os
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from auditor.vectors import Floats
from tests.bench.flickr8k import CACHE, backbone, read_photos
from tests.support.copies import draw_screenshot

OPENCLIPART = Path(os.environ.get("OPENCLIPART", "/tmp/openclipart/usr/share/openclipart/png"))
PHOTOS, PLANTED = 1000, 250
WORDS = ("stock photo", "SAMPLE", "© images.example", "preview", "shutterpics")


def add_watermark(picture: Image.Image, generator: np.random.Generator) -> Image.Image:
    """Repeat a half-transparent name over the picture, as agencies do."""
    layer = Image.new("RGBA", (2 * picture.width, 2 * picture.height))
    pen, size = ImageDraw.Draw(layer), int(generator.integers(18, 36))
    font, word = ImageFont.load_default(size), str(generator.choice(WORDS))
    for y in range(0, layer.height, 3 * size):
        for x in range(0, layer.width, round(pen.textlength(word, font) + 2 * size)):
            pen.text((x + y % 50, y), word, (255, 255, 255, int(generator.integers(110, 200))), font)
    layer = layer.rotate(float(generator.uniform(15, 45)))
    left, top = picture.width // 2, picture.height // 2
    layer = layer.crop((left, top, left + picture.width, top + picture.height))
    return Image.alpha_composite(picture.convert("RGBA"), layer).convert("RGB")


def read_drawings(shard: str, count: int) -> list[Image.Image]:
    """Random drawings on white; those of the two shards are different."""
    paths = sorted(OPENCLIPART.rglob("*.png"))
    if not paths:
        raise SystemExit(f"no drawings in {OPENCLIPART}: see the docstring of {__name__}")
    order = np.random.default_rng(5).permutation(len(paths))
    drawings = []
    for number in order[count * (shard != "train-00000") :][:count]:
        drawing = Image.open(paths[number]).convert("RGBA")
        drawing.thumbnail((256, 256))
        page = Image.new("RGBA", drawing.size, "white")
        drawings.append(Image.alpha_composite(page, drawing).convert("RGB"))
    return drawings


def encode_pictures(shared: Path, shard: str) -> dict[str, Floats]:
    """Vectors of the photos of a shard, and of drawings, watermarked photos and screenshots."""
    from model.pixels import decode_image, fit_image

    model = backbone(f"local-dir:{shared / 'models' / 'flickr8k-lite'}")
    cached = CACHE / f"planted-{shard}-{PHOTOS}-{PLANTED}-{model.fingerprint[:16]}.npz"
    if cached.exists():
        return dict(np.load(cached))
    images = read_photos(shared / "data" / "flickr8k" / f"{shard}.tar", PHOTOS, pixels=True)[1]
    photos = [decode_image(data) for data in images]
    generator = np.random.default_rng(len(shard))
    pictures = {
        "photos": photos,
        "drawings": read_drawings(shard, PLANTED),
        "watermarks": [add_watermark(photo, generator) for photo in photos[-PLANTED:]],
        "screenshots": [draw_screenshot(number + 1000 * len(shard), generator) for number in range(PLANTED)],
    }
    vectors = {}
    for name, group in pictures.items():
        fitted = [fit_image(model.pixels, picture.convert("RGB")) for picture in group]
        parts = [model.encode_images(np.stack(fitted[at : at + 32])).cpu().numpy() for at in range(0, len(fitted), 32)]
        vectors[name] = np.concatenate(parts).astype(np.float32)
    CACHE.mkdir(parents=True, exist_ok=True)
    np.savez(cached, **vectors)
    return vectors
