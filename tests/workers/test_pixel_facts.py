"""Pixel facts agree with their plain definitions and separate broken images from sound ones."""

import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFilter

from auditor.schema import FACTS
from auditor.workers.pixel_facts import (
    PixelFacts,
    compute_luma,
    describe_pixels,
    measure_border_share,
    measure_colorfulness,
)


def picture(seed: int = 0, side: int = 96) -> Image.Image:
    """Blocks of color with hard edges and a little noise."""
    generator = np.random.default_rng(seed)
    blocks = generator.integers(0, 255, (6, 6, 3)).astype(np.uint8)
    large = np.kron(blocks, np.ones((side // 6, side // 6, 1), np.uint8)).astype(np.int16)
    return Image.fromarray((large + generator.integers(-5, 5, large.shape)).clip(0, 255).astype(np.uint8))


def facts_of(image: Image.Image) -> PixelFacts:
    return describe_pixels(np.asarray(image)[None])[0]


def test_facts_are_what_their_definitions_say() -> None:
    pixels = np.asarray(picture())
    luma = (pixels @ np.array([0.299, 0.587, 0.114])) / 255
    found = facts_of(picture())
    assert found.brightness == pytest.approx(luma.mean(), abs=0.01)
    assert found.contrast == pytest.approx(luma.std(), abs=0.01)
    assert found.dark_share == pytest.approx((luma < 0.06).mean(), abs=0.02)
    steps = np.concatenate([np.abs(np.diff(luma, axis=axis)).ravel() for axis in (0, 1)])
    spread = np.quantile(luma, 0.99) - np.quantile(luma, 0.01)
    assert found.sharpness == pytest.approx(np.quantile(steps, 0.995) / spread, abs=0.03)
    counts = np.histogram(compute_luma(pixels[None]), np.arange(257))[0] / luma.size
    assert found.entropy == pytest.approx(-sum(share * np.log2(share) for share in counts if share), abs=1e-6)


def test_facts_equal_their_plain_computation() -> None:
    for shape in ((96, 96, 3), (33, 47, 3), (2, 2, 3)):
        pixels = np.random.default_rng(shape[0]).integers(0, 256, shape, dtype=np.uint8)
        found, luma = facts_of(Image.fromarray(pixels)), pixels.astype(int) @ [77, 150, 29] // 256
        np.testing.assert_array_equal(compute_luma(pixels), luma)
        steps = np.concatenate([np.abs(np.diff(luma, axis=axis)).ravel() for axis in (0, 1)])
        low, high, edge = (
            np.sort(values, axis=None)[max(0, math.ceil(share * values.size) - 1)]
            for values, share in ((luma, 0.01), (luma, 0.99), (steps, 0.995))
        )
        assert found.sharpness == edge / max(high - low, 5)
        red, green, blue = (pixels[::2, ::2, channel].astype(float) for channel in range(3))
        axes = red - green, (red + green) / 2 - blue
        spread, mean = math.hypot(*(axis.std() for axis in axes)), math.hypot(*(axis.mean() for axis in axes))
        assert found.colourfulness == pytest.approx((spread + 0.3 * mean) / 255, abs=1e-6)


def test_blurred_pictures_are_not_sharp_whatever_their_contrast() -> None:
    for seed in range(20):
        sound = picture(seed)
        blurred = sound.filter(ImageFilter.GaussianBlur(10))
        faint = Image.blend(Image.new("RGB", sound.size, (128, 128, 128)), sound, 0.3)
        assert facts_of(blurred).sharpness < 0.15 < facts_of(sound).sharpness
        assert facts_of(faint).sharpness > 0.15


def test_blank_dark_and_grey_pictures_are_seen() -> None:
    blank = facts_of(Image.new("RGB", (64, 64), (250, 250, 250)))
    assert (blank.contrast, blank.entropy, blank.bright_share, blank.border_share) == (0, 0, 1, 1)
    dark = facts_of(Image.fromarray((np.asarray(picture()) * 0.05).astype(np.uint8)))
    assert dark.dark_share == 1 and dark.brightness < 0.05
    grey = np.repeat(np.asarray(picture().convert("L"))[..., None], 3, axis=2)
    assert measure_colorfulness(grey) == 0 < measure_colorfulness(np.asarray(picture()))


def test_borders_are_measured_on_all_sides() -> None:
    pixels = np.asarray(picture()).copy()
    assert measure_border_share(compute_luma(pixels)) == 0
    pixels[:12] = pixels[-12:] = 0
    assert measure_border_share(compute_luma(pixels)) == pytest.approx(0.25)
    pixels[:, :24] = 0
    assert measure_border_share(compute_luma(pixels)) == pytest.approx(1 - 0.75 * 0.75)


def test_a_video_has_the_median_of_its_frames() -> None:
    frames = np.stack([np.asarray(picture(seed)) for seed in (0, 1, 2)])
    alone = [describe_pixels(frame[None])[0].brightness for frame in frames]
    assert describe_pixels(frames)[0].brightness == pytest.approx(sorted(alone)[1])


def test_every_fact_is_a_column() -> None:
    assert set(PixelFacts._fields) <= set(FACTS)


def test_real_photos_are_sharp_and_blurred_ones_are_not(shared: Path) -> None:
    import io
    import tarfile

    sound, blurred = [], []
    with tarfile.open(shared / "data" / "flickr8k" / "val-00000.tar") as tar:
        photos = [member for member in tar if member.name.endswith(".jpg")][:60]
        for member in photos:
            image = Image.open(io.BytesIO(tar.extractfile(member).read())).convert("RGB").resize((224, 224))  # type: ignore[union-attr]
            sound.append(facts_of(image).sharpness)
            blurred.append(facts_of(image.filter(ImageFilter.GaussianBlur(8))).sharpness)
    assert max(blurred) < 0.15 < min(sound)
