"""Flickr8k photos, decoded and encoded by the product, for benchmarks and tests of mismatch and ambiguity.

tests/bench/noise.py spoils their captions. Nouns are found without a tagger: a noun often comes right after "a", "an"
or "the" and right before a preposition, a copula, a participle or the end of the sentence. Words in this position at
least 5 times and in a fifth of their uses are almost always nouns.
"""

import re
import tarfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from auditor.vectors import Floats, Ints

CACHE = Path(__file__).resolve().parents[2] / "bench-results" / "cache"
ARTICLES = frozenset({"a", "an", "the"})
CLOSERS = frozenset(
    re.findall(
        r"\w+",
        "in on at with of is are and while as by near through over from to into under behind wearing standing sitting "
        "playing running holding next during that who for up down along across around against looking walking jumping",
    )
)
Encode = Callable[[Sequence[str]], Floats]


@dataclass(frozen=True)
class Photos:
    """Encoded media and captions of the validation photos."""

    keys: list[str]
    captions: list[str]
    visual: Floats  # (M, D)
    text: Floats  # (P, D)
    media: Ints  # (P,) medium of each caption
    scale: float


@lru_cache(maxsize=1)
def backbone(spec: str) -> Any:
    from model.backbone import load_backbone

    return load_backbone(spec)


def encoder(shared: Path) -> Encode:
    model = backbone(f"local-dir:{shared / 'models' / 'flickr8k-lite'}")

    def encode(captions: Sequence[str]) -> Floats:
        parts = [model.encode_texts(captions[at : at + 256]).cpu().numpy() for at in range(0, len(captions), 256)]
        return np.concatenate(parts).astype(np.float32)

    return encode


def load_photos(shared: Path, limit: int = 1000, tar: str = "flickr8k/val-00000.tar") -> Photos:
    """The first photos of a shard with all their captions, encoded once and then cached."""
    model = backbone(f"local-dir:{shared / 'models' / 'flickr8k-lite'}")
    cached = CACHE / f"{Path(tar).parent.name}-{Path(tar).stem}-{limit}-{model.fingerprint[:16]}.npz"
    keys, images, captions, media = read_photos(shared / "data" / tar, limit, pixels=not cached.exists())
    if cached.exists():
        with np.load(cached) as stored:
            visual, text = stored["visual"], stored["text"]
    else:
        visual = encode_photos(model, images)
        text = encoder(shared)(captions)
        CACHE.mkdir(parents=True, exist_ok=True)
        np.savez(cached, visual=visual, text=text)
    return Photos(keys, captions, visual, text, np.asarray(media, np.int64), model.logit_scale)


def read_photos(tar: Path, limit: int, *, pixels: bool) -> tuple[list[str], list[bytes], list[str], list[int]]:
    """Keys, bytes (on request), captions and the photo of each caption."""
    place: dict[str, int] = {}
    images: list[bytes] = []
    captions: list[str] = []
    media: list[int] = []
    with tarfile.open(tar) as opened:
        for member in opened:
            key, extension = member.name.rsplit(".", 1)
            data = opened.extractfile(member)
            if data is None or extension == "json" or (key not in place and len(place) == limit):
                continue
            number = place.setdefault(key, len(place))
            if extension == "txt":
                lines = [line.strip() for line in data.read().decode().splitlines() if line.strip()]
                captions += lines
                media += [number] * len(lines)
            elif pixels:
                images.append(data.read())
    return list(place), images, captions, media


def encode_photos(model: Any, images: Sequence[bytes], batch: int = 32) -> Floats:
    from model.pixels import decode_image, fit_image

    parts = []
    for at in range(0, len(images), batch):
        some = np.stack([fit_image(model.pixels, decode_image(data)) for data in images[at : at + batch]])
        parts.append(model.encode_images(some).cpu().numpy())
    return np.concatenate(parts).astype(np.float32)


def words(caption: str) -> list[str]:
    return re.findall(r"[a-z]+", caption.lower())


def nouns(captions: Sequence[str]) -> list[str]:
    """The nouns of a corpus, most frequent first."""
    seen: Counter[str] = Counter()
    as_noun: Counter[str] = Counter()
    for caption in captions:
        found = [*words(caption), "."]
        seen.update(found)
        for before, word, after in zip(found, found[1:], found[2:], strict=False):
            if before in ARTICLES and (after in CLOSERS or after == ".") and word not in ARTICLES | CLOSERS:
                as_noun[word] += 1
    return [word for word, count in as_noun.most_common() if count >= 5 and count >= seen[word] / 5]


def swap_noun(caption: str, known: Sequence[str], generator: np.random.Generator) -> str | None:
    """The caption with one of its nouns replaced by another of the corpus; None if it has none."""
    places = [found for found in re.finditer(r"[A-Za-z]+", caption) if found.group().lower() in set(known)]
    if not places:
        return None
    place = places[generator.integers(len(places))]
    others = [noun for noun in known if noun not in words(caption)]
    return caption[: place.start()] + others[generator.integers(len(others))] + caption[place.end() :]
