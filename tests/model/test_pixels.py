"""Pixels equal open_clip's own transform byte for byte; images decode as a browser shows them."""

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from model.model_errors import ModelError
from model.pixels import DecodeError, DecodeLimits, Pixels, PixelSpec, decode_image, fit_image

SIZES = [(640, 427), (427, 640), (224, 224), (225, 223), (37, 501), (13, 11), (1, 1), (3, 224), (1000, 17)]  # w, h


def photo(width: int, height: int, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def encoded(image: Image.Image, form: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def shown(data: bytes) -> Pixels:
    return np.asarray(decode_image(data))


def png(width: int, height: int, depth: int, colour: int, rows: bytes, *extra: tuple[bytes, bytes]) -> bytes:
    """A PNG written by hand, for features that Pillow cannot write; `rows` have no filter bytes."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    pitch = len(rows) // height
    raw = b"".join(b"\0" + rows[i * pitch : (i + 1) * pitch] for i in range(height))
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)), *extra]
    chunks += [(b"IDAT", zlib.compress(raw)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*c) for c in chunks)


@pytest.mark.parametrize("mode", ["shortest", "longest", "squash"])
@pytest.mark.parametrize("size", [224, (224, 224), (96, 161), (33, 20)])
def test_fit_image_equals_open_clip(mode: str, size: int | tuple[int, int]) -> None:
    transform = pytest.importorskip("open_clip.transform")
    for interpolation in ("bicubic", "bilinear", "random"):
        config = {"size": size, "resize_mode": mode, "interpolation": interpolation, "fill_color": 77}
        theirs = transform.image_transform_v2(transform.PreprocessCfg(**config), is_train=False)
        spec = PixelSpec.from_open_clip(config)
        for width, height in SIZES:
            image = photo(width, height, seed=width)
            expected: Any = image
            try:
                for step in theirs.transforms[:-2]:  # all but ToTensor and Normalize
                    expected = step(expected)
            except ValueError:  # open_clip fails if an edge rounds to zero pixels
                assert mode == "longest" and max(width, height) / min(width, height) > 10
                assert fit_image(spec, image).shape == (*spec.size, 3)
                continue
            np.testing.assert_array_equal(fit_image(spec, image), np.asarray(expected))


def test_fit_image_equals_the_preprocess_of_a_model(flickr_model: str) -> None:
    open_clip = pytest.importorskip("open_clip")
    import torch

    model, _, preprocess = open_clip.create_model_and_transforms(flickr_model)
    spec = PixelSpec.from_open_clip(model.visual.preprocess_cfg)
    image = photo(431, 300)
    ours = torch.from_numpy(fit_image(spec, image).copy()).permute(2, 0, 1).float() / 255
    ours = (ours - torch.tensor(spec.mean).view(3, 1, 1)) / torch.tensor(spec.std).view(3, 1, 1)
    torch.testing.assert_close(ours, preprocess(image), rtol=0, atol=1e-6)


def test_only_the_crop_of_extreme_aspect_ratios_is_resized() -> None:
    ramp = np.linspace(0, 255, 40_000, dtype=np.float64).astype(np.uint8)
    image = Image.fromarray(np.repeat(ramp[:, None, None], 3, axis=2))  # 1 x 40,000: whole, 224 x 8,960,000
    fitted = fit_image(PixelSpec(), image)
    assert fitted.shape == (224, 224, 3)
    assert np.abs(fitted.astype(int) - 127).max() <= 1  # the middle of the ramp


def test_spec_survives_json_and_refuses_what_it_does_not_know() -> None:
    spec = PixelSpec(size=(96, 128), resize_mode="longest", interpolation="bilinear", fill=3)
    assert PixelSpec.from_dict(spec.to_dict()) == spec
    assert PixelSpec.from_open_clip({}) == PixelSpec()
    assert PixelSpec.from_open_clip({"mean": 0.5, "std": [0.1, 0.2, 0.3]}).mean == (0.5, 0.5, 0.5)
    with pytest.raises(ModelError, match="colour"):
        PixelSpec.from_dict({**spec.to_dict(), "colour": 1})
    with pytest.raises(ModelError, match="resize mode"):
        PixelSpec.from_open_clip({"resize_mode": "widest"})


@pytest.mark.parametrize("form", ["PNG", "BMP", "TIFF", "WEBP", "GIF", "JPEG"])
def test_every_format(form: str) -> None:
    image = Image.new("RGB", (19, 11), (200, 30, 90))
    options = {"lossless": True} if form == "WEBP" else {}
    assert np.abs(shown(encoded(image, form, **options)).astype(int) - (200, 30, 90)).max() <= 2


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_exif_orientation(form: str) -> None:
    corner = Image.new("RGB", (32, 16))
    corner.paste((255, 255, 255), (0, 0, 16, 8))  # top left is white
    where = {1: (0, 0), 2: (0, 1), 3: (1, 1), 4: (1, 0), 5: (0, 0), 6: (0, 1), 7: (1, 1), 8: (1, 0)}
    for orientation, (bottom, right) in where.items():
        exif = Image.Exif()
        exif[0x0112] = orientation
        pixels = shown(encoded(corner, form, exif=exif, **({"quality": 95} if form == "JPEG" else {})))
        assert pixels.shape[:2] == ((32, 16) if orientation >= 5 else (16, 32))
        height, width = pixels.shape[:2]
        quadrant = pixels[bottom * height // 2 :, right * width // 2 :][: height // 2, : width // 2]
        assert quadrant.mean() > 245 and pixels.mean() < 80, orientation


def test_damaged_exif_is_ignored() -> None:
    assert shown(encoded(photo(8, 8), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")).shape == (8, 8, 3)


def test_sixteen_bits_are_scaled_not_clipped() -> None:
    ramp = np.array([[0, 128, 257, 32896, 40000, 65535]], dtype=np.uint16)
    expected = np.rint(ramp / 257).astype(np.uint8)
    np.testing.assert_array_equal(shown(png(6, 1, 16, 0, ramp.astype(">u2").tobytes()))[..., 0], expected)
    np.testing.assert_array_equal(shown(encoded(Image.fromarray(ramp), "TIFF"))[..., 1], expected)
    colour = np.stack([ramp, ramp[:, ::-1], ramp], axis=-1)
    difference = shown(png(6, 1, 16, 2, colour.astype(">u2").tobytes())).astype(int) - np.rint(colour / 257)
    assert np.abs(difference).max() <= 1


def tiff(width: int, bits: int, photometric: int, row: bytes) -> bytes:
    """A TIFF of one row written by hand, for features that Pillow cannot write."""
    tags = [
        (256, width),
        (257, 1),
        (258, bits),
        (259, 1),
        (262, photometric),
        (273, 0),
        (277, 1),
        (278, 1),
        (279, len(row)),
    ]
    start = 8 + 2 + 12 * len(tags) + 4
    entries = [struct.pack("<HHII", tag, 4, 1, start if tag == 273 else value) for tag, value in tags]
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + b"".join(entries) + b"\0" * 4 + row


def test_the_range_of_deep_tiffs() -> None:
    assert shown(tiff(2, 16, 1, struct.pack("<HH", 0, 257 * 200)))[0, :, 0].tolist() == [0, 200]
    assert shown(tiff(2, 16, 0, struct.pack("<HH", 0, 257 * 200)))[0, :, 0].tolist() == [255, 55]  # white is zero
    assert shown(tiff(2, 12, 1, bytes([0x00, 0x0F, 0xFF])))[0, :, 0].tolist() == [0, 255]
    floats = shown(encoded(Image.fromarray(np.array([[0.0, 0.5, 1.0]], dtype=np.float32)), "TIFF"))
    assert floats[0, :, 0].tolist() == [0, 128, 255]
    wide = shown(encoded(Image.fromarray(np.array([[0, 2**29, 2**30]], dtype=np.int32)), "TIFF"))
    assert wide[0, :, 0].tolist() == [0, 128, 255]


def test_transparency_is_shown_on_white() -> None:
    half = Image.new("RGBA", (4, 4), (0, 0, 0, 128))
    assert shown(encoded(half, "PNG"))[0, 0].tolist() == [127, 127, 127]
    assert shown(encoded(Image.new("LA", (4, 4), (10, 0)), "PNG"))[0, 0].tolist() == [255, 255, 255]
    clear = Image.new("RGBA", (4, 4), (9, 200, 9, 0))
    assert shown(encoded(clear, "WEBP", lossless=True))[0, 0].tolist() == [255, 255, 255]
    palette = Image.new("P", (4, 4), 1)
    palette.putpalette([0, 0, 0, 250, 0, 0])
    assert shown(encoded(palette, "PNG"))[0, 0].tolist() == [250, 0, 0]
    assert shown(encoded(palette, "PNG", transparency=1))[0, 0].tolist() == [255, 255, 255]
    assert shown(encoded(palette, "GIF", transparency=1))[0, 0].tolist() == [255, 255, 255]
    keyed = png(2, 1, 8, 2, bytes([1, 2, 3, 4, 5, 6]), (b"tRNS", struct.pack(">HHH", 1, 2, 3)))
    assert shown(keyed)[0].tolist() == [[255, 255, 255], [4, 5, 6]]
    deep = png(2, 1, 16, 0, struct.pack(">HH", 1000, 2570), (b"tRNS", struct.pack(">H", 1000)))
    assert shown(deep)[0, :, 0].tolist() == [255, 10]


def test_gray_cmyk_and_bilevel() -> None:
    assert shown(encoded(Image.new("L", (4, 4), 77), "PNG"))[0, 0].tolist() == [77, 77, 77]
    assert shown(encoded(Image.new("1", (4, 4), 1), "PNG"))[0, 0].tolist() == [255, 255, 255]
    red = shown(encoded(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG"))[8, 8].astype(int)
    assert red[0] > 240 and red[1:].max() < 15


@pytest.mark.parametrize("form", ["GIF", "PNG", "WEBP"])
def test_animations_show_their_first_frame(form: str) -> None:
    first, second = Image.new("RGB", (8, 8), (255, 0, 0)), Image.new("RGB", (8, 8), (0, 0, 255))
    data = encoded(first, form, save_all=True, append_images=[second], **({"lossless": True} if form == "WEBP" else {}))
    assert shown(data)[4, 4].tolist() == [255, 0, 0]


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"])
def test_truncated_files_are_corrupt(form: str) -> None:
    data = encoded(photo(64, 48), form)
    for share in (0.1, 0.5, 0.9):
        with pytest.raises(DecodeError) as caught:
            decode_image(data[: int(len(data) * share)])
        assert caught.value.status == "corrupt"


def test_bombs_are_too_large() -> None:
    huge = png(60_000, 60_000, 8, 0, b"\0" * 60_000)  # claims 3.6 gigapixels
    for data, limits in [
        (huge, DecodeLimits()),
        (encoded(photo(100, 100), "PNG"), DecodeLimits(max_pixels=9_999)),
        (encoded(photo(100, 100), "PNG"), DecodeLimits(max_bytes=1_000)),
    ]:
        with pytest.raises(DecodeError) as caught:
            decode_image(data, limits)
        assert caught.value.status == "too_large"
    assert shown(encoded(photo(100, 100), "PNG")).shape == (100, 100, 3)


@pytest.mark.parametrize("data", [b"", b"hello", b"<svg/>", b"%!PS-Adobe-3.0 EPSF-3.0\n", b"\xff\xd8\xff"])
def test_a_file_that_is_not_an_image_is_corrupt(data: bytes) -> None:
    with pytest.raises(DecodeError) as caught:
        decode_image(data)
    assert caught.value.status == "corrupt" and str(caught.value)
