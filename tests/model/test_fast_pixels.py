"""The fast path compared with Pillow: same errors and sizes, pixels within rounding, embeddings within 0.999."""

import contextlib
import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from model import fast_pixels, pixels
from model.backbone import load_backbone
from model.pixels import DecodeError, DecodeLimits, Pixels, PixelSpec
from tests.support.clips import make_photo

LIMITS = DecodeLimits(max_pixels=20_000_000)


def smooth(width: int, height: int, seed: int = 0) -> Image.Image:
    """A picture with edges and gradients, like a photo."""
    small = np.random.default_rng(seed).integers(0, 256, (12, 16, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


def saved(image: Image.Image, form: str = "JPEG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def outcome(module: object, data: bytes, spec: PixelSpec) -> tuple[Pixels, tuple[int, int]] | tuple[str, str]:
    try:
        return module.decode_and_fit(data, spec, LIMITS)  # type: ignore[attr-defined, no-any-return]
    except DecodeError as error:
        return error.status, str(error)


def difference(data: bytes, spec: PixelSpec = PixelSpec()) -> float:  # noqa: B008 (frozen)
    """Mean difference in gray levels between the two paths, whose errors and sizes must be equal."""
    slow, fast = outcome(pixels, data, spec), outcome(fast_pixels, data, spec)
    if isinstance(slow[0], str) or isinstance(fast[0], str):
        assert slow == fast
        return 0.0
    assert slow[1] == fast[1] and slow[0].shape == fast[0].shape
    return float(np.abs(slow[0].astype(int) - fast[0]).mean())


@pytest.mark.parametrize("mode", ["shortest", "longest", "squash"])
@pytest.mark.parametrize("size", [(224, 224), (64, 96)])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
def test_every_way_of_fitting(mode: str, size: tuple[int, int], interpolation: str) -> None:
    spec = PixelSpec(size=size, interpolation=interpolation, resize_mode=mode, fill=7)  # type: ignore[arg-type]
    for shape in ((500, 375), (375, 500), (20, 30), size[::-1], (1, 300), (1000, 3), (2, 2)):
        assert difference(saved(smooth(*shape), "PNG"), spec) < 0.2


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
def test_pixels_that_are_cropped_are_not_computed_and_the_others_stay_the_same(interpolation: str) -> None:
    generator = np.random.default_rng(0)
    for height, width in generator.integers(2, 700, (60, 2)).tolist():
        values = generator.integers(0, 256, (height, width, 3), dtype=np.uint8)
        spec = PixelSpec(size=(64, 64), interpolation=interpolation)  # type: ignore[arg-type]
        target = pixels.compute_resized_size(spec, (width, height))
        planes = torch.from_numpy(values)[None].permute(0, 3, 1, 2)
        whole = fast_pixels.KERNELS[interpolation](planes, [target[1], target[0]], False, None, None)[0].permute(
            1, 2, 0
        )
        y, x = pixels.center_offset(target[1], 64), pixels.center_offset(target[0], 64)
        fitted = fast_pixels.fit_pixels(spec, values, target)
        np.testing.assert_array_equal(fitted, whole[y : y + 64, x : x + 64].numpy())


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}, {"quality": 30}])
def test_jpegs_decode_to_the_very_same_bytes(options: dict[str, object]) -> None:
    for image in (smooth(501, 373), smooth(501, 373).convert("L")):
        data = saved(image, **options)
        found = fast_pixels.decode_plain_jpeg(data, PixelSpec(), LIMITS)
        assert found is not None
        np.testing.assert_array_equal(found[0], np.asarray(pixels.decode_image(data)))
        assert difference(data) < 0.02


@pytest.mark.parametrize("orientation", range(1, 9))
def test_rotated_and_unusual_files_are_decoded_by_pillow(orientation: int) -> None:
    exif = Image.Exif()
    exif[pixels.ORIENTATION] = orientation
    data = saved(smooth(120, 90), exif=exif)
    assert (fast_pixels.decode_plain_jpeg(data, PixelSpec(), LIMITS) is None) is (orientation != 1)
    assert difference(data, PixelSpec(size=(64, 64))) < 0.1
    for mode, form in (("CMYK", "JPEG"), ("P", "PNG"), ("LA", "PNG"), ("I;16", "PNG")):
        assert difference(saved(smooth(80, 60).convert("L" if ";" in mode else "RGB").convert(mode), form)) < 0.1


def test_pillow_reads_the_orientation_wherever_there_may_be_one() -> None:
    exif, generator = Image.Exif(), np.random.default_rng(0)
    exif[pixels.ORIENTATION] = 6
    plain, rotated = (saved(smooth(40, 30), comment=b"text", **options) for options in ({}, {"exif": exif}))
    assert not fast_pixels.may_be_rotated(plain) and fast_pixels.may_be_rotated(rotated)
    for _ in range(500):
        damaged = bytearray(rotated)
        for place in generator.integers(2, 250, 2):
            damaged[place] = generator.choice([0, 1, 255, 0xD8, 0xDA, 0xE1, generator.integers(256)])
        with contextlib.suppress(OSError, SyntaxError):
            if fast_pixels.read_jpeg_orientation(bytes(damaged)) != 1:
                assert fast_pixels.may_be_rotated(bytes(damaged))
    for end in range(len(rotated)):
        fast_pixels.may_be_rotated(rotated[:end])


def test_damaged_files_give_the_errors_of_pillow() -> None:
    data = saved(smooth(200, 150))
    generator = np.random.default_rng(0)
    for end in range(2, len(data), max(1, len(data) // 60)):
        difference(data[:end])
    for _ in range(150):
        broken = bytearray(data)
        for place in generator.integers(2, len(data), 4):
            broken[place] = generator.integers(256)
        assert difference(bytes(broken)) < 0.1
    huge = make_photo(4500, 4500)
    assert outcome(fast_pixels, huge, PixelSpec()) == outcome(pixels, huge, PixelSpec())
    assert outcome(fast_pixels, huge, PixelSpec())[0] == "too_large"


def test_large_jpegs_are_decoded_smaller_but_never_too_small() -> None:
    spec = PixelSpec()
    scales = {
        size: fast_pixels.choose_reduction(spec, size)
        for size in ((1340, 1340), (1400, 1344), (3000, 2700), (9000, 6000))
    }
    assert scales == {(1340, 1340): 1, (1400, 1344): 2, (3000, 2700): 4, (9000, 6000): 8}
    data = saved(smooth(2001, 1501))
    found = fast_pixels.decode_plain_jpeg(data, spec, LIMITS)
    assert found is not None and found[0].shape[:2] == (751, 1001) and found[1] == (2001, 1501)
    assert difference(data) < 1.0


def test_embeddings_stay_above_a_cosine_of_0_999(shared: Path) -> None:
    backbone = load_backbone(f"local-dir:{shared}/models/flickr8k-lite")
    files = [
        saved(mosaic(shared, size, 3 * number), quality=90) for number, size in enumerate([(2048, 1638), (3300, 3200)])
    ]
    files += [saved(smooth(2400, 1800, seed=5))]
    exact = np.stack([pixels.decode_and_fit(data, backbone.pixels, LIMITS)[0] for data in files])
    fast = np.stack([fast_pixels.decode_and_fit(data, backbone.pixels, LIMITS)[0] for data in files])
    assert (exact != fast).any(axis=(1, 2, 3)).all()  # all of them were decoded smaller
    cosines = (backbone.encode_images(exact) * backbone.encode_images(fast)).sum(dim=1)
    assert float(cosines.min()) > 0.999


def mosaic(shared: Path, size: tuple[int, int], start: int) -> Image.Image:
    """Real photos side by side, with more detail than a single photo of that size."""
    import tarfile

    canvas = Image.new("RGB", size)
    with tarfile.open(shared / "data/flickr8k/val-00000.tar") as tar:
        names = [name for name in tar.getnames() if name.endswith(".jpg")][start:]
        places = [(x, y) for y in range(0, size[1], 224) for x in range(0, size[0], 224)]
        for name, place in zip(names, places, strict=False):
            file = tar.extractfile(name)
            assert file is not None
            canvas.paste(Image.open(file), place)
    return canvas
