"""Agreement of pixels: high for altered copies, low for other pictures and for pages of one template."""

import io

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFilter

from auditor.score.statistics.duplicates import LOWEST_AGREEMENT, choose_copy_rule, estimate_agreement
from auditor.score.statistics.picture_match import (
    LAYOUT_SIDE,
    SIDE,
    Thumbnails,
    compare_pictures,
    compute_layouts,
    find_structure,
)
from auditor.workers.pixel_facts import describe_pixels
from tests.support.copies import ALTERATIONS, draw_screenshot


def draw_photo(seed: int) -> Image.Image:
    """Soft shapes of random tones over noise, with detail of every size, as photos have."""
    generator = np.random.default_rng(seed)
    noise = Image.fromarray(generator.integers(0, 256, (16, 16, 3), dtype=np.uint8))
    picture = noise.resize((320, 240), Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(picture)
    for size in (120, 80, 60, 40, 40, 25, 25, 25, 15, 15):
        x, y = generator.integers(-20, 300), generator.integers(-20, 220)
        shape = draw.ellipse if generator.random() < 0.5 else draw.rectangle
        shape(
            (int(x), int(y), int(x + size), int(y + size * generator.uniform(0.5, 1.5))),
            fill=tuple(generator.integers(0, 256, 3).tolist()),
        )
    return picture.filter(ImageFilter.GaussianBlur(1))


def shrink(picture: Image.Image) -> Thumbnails:
    """The thumbnail of the middle square, as an encoder sees it after a JPEG file."""
    data = io.BytesIO()
    picture.convert("RGB").save(data, "JPEG", quality=90)
    picture, side = Image.open(data), min(picture.size)
    x, y = (picture.width - side) // 2, (picture.height - side) // 2
    fitted = picture.resize((224, 224), Image.Resampling.BICUBIC, (x, y, x + side, y + side))
    return np.frombuffer(describe_pixels(np.asarray(fitted)[None])[1], np.uint8)


PHOTOS = [draw_photo(seed) for seed in range(12)]


@pytest.mark.parametrize("name", ALTERATIONS)
def test_altered_copies_agree_in_both_directions(name: str) -> None:
    generator = np.random.default_rng(5)
    pairs = [(shrink(photo), shrink(ALTERATIONS[name](photo, generator))) for photo in PHOTOS]
    forth = [float(compare_pictures(a, b[None])[0]) for a, b in pairs]
    back = [float(compare_pictures(b, a[None])[0]) for a, b in pairs]
    assert sorted(forth)[1] >= LOWEST_AGREEMENT and sorted(back)[1] >= LOWEST_AGREEMENT  # one of 12 may be missed


def test_other_pictures_and_pages_of_one_template_do_not_agree() -> None:
    photos = np.stack([shrink(photo) for photo in PHOTOS])
    generator = np.random.default_rng(0)
    for template in range(4):
        pages = np.stack([shrink(draw_screenshot(template, generator)) for _ in range(6)])
        for number, page in enumerate(pages):
            assert compare_pictures(page, np.delete(pages, number, 0)).max() < LOWEST_AGREEMENT
            assert compare_pictures(page, pages[number : number + 1])[0] > 0.999
    for number, photo in enumerate(photos):
        assert compare_pictures(photo, np.delete(photos, number, 0)).max() < LOWEST_AGREEMENT - 0.1


def test_pixels_cannot_tell_blank_pictures_of_one_tone_or_missing_ones() -> None:
    photo = shrink(PHOTOS[0])
    tones = np.stack([np.full(1024, tone, np.uint8) for tone in (200, 203, 90, 0)])
    agreement = compare_pictures(tones[0], np.concatenate([tones, photo[None]]))
    assert np.isnan(agreement).tolist() == [True, True, False, True, False]  # all zero: no thumbnail
    assert agreement[2] == 0 and agreement[4] < 0.2
    assert np.isnan(compare_pictures(tones[3], photo[None]))[0]
    assert find_structure(np.concatenate([tones, photo[None]])).tolist() == [False] * 4 + [True]


def test_layouts_of_gray_and_tiny_copies_are_near() -> None:
    generator = np.random.default_rng(0)
    for name in ("gray", "resized", "re-encoded"):
        copies = [(shrink(photo), shrink(ALTERATIONS[name](photo, generator))) for photo in PHOTOS]
        first, second = (compute_layouts(np.stack(side)) for side in zip(*copies, strict=True))
        assert (first * second).sum(axis=1).min() > 0.98
        assert np.sort(first @ first.T, axis=1)[:, -2].max() < 0.95


def test_the_rule_follows_from_the_pictures_of_the_corpus() -> None:
    photos = np.stack([shrink(photo) for photo in PHOTOS])
    vectors = np.eye(12, dtype=np.float32)
    assert estimate_agreement(photos) == LOWEST_AGREEMENT
    alike = np.clip(photos[:1] + np.random.default_rng(0).normal(0, 22, (40, 1024)), 0, 255).astype(np.uint8)
    assert estimate_agreement(alike) > LOWEST_AGREEMENT + 0.1  # as radiographs agree: random pairs are no copies
    rule = choose_copy_rule(vectors, photos, None, None)
    assert rule.candidate < 0.8 < 0.95 < rule.cosine
    assert choose_copy_rule(vectors, photos, 0.9, 0.7).agreement == 0.7
    assert choose_copy_rule(vectors, photos, None, 0).agreement is None
    assert choose_copy_rule(vectors, np.zeros_like(photos), None, None).candidate == rule.cosine


def test_no_pictures_and_a_single_one_can_be_compared() -> None:
    """A corpus may have one picture with structure, and shards without any."""
    nothing = np.zeros((0, SIDE * SIDE), np.uint8)
    picture = np.random.default_rng(0).integers(0, 256, (1, SIDE * SIDE), np.uint8)
    assert find_structure(nothing).shape == (0,) and compute_layouts(nothing).shape == (0, LAYOUT_SIDE**2)
    assert compare_pictures(picture[0], nothing).shape == (0,)
    assert estimate_agreement(picture) == LOWEST_AGREEMENT
