"""Real photos for the benchmarks and tests of mismatch and ambiguity: Flickr8k through the product's own decoder and
model; tests/bench/noise.py spoils their captions.

Nouns are found without a tagger: a noun often stands right behind "a", "an" or "the" and right before a preposition, a
copula, a participle or the end of the sentence. Of the words seen so at least 5 times and in a fifth of their uses,
nearly all are nouns.
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
    """Media and captions of the validation photos, encoded."""

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


def load_photos(shared: Path, limit: int = 1000) -> Photos:
    """The first photos of the validation shard with all their captions; encoded once, then cached."""
    model = backbone(f"local-dir:{shared / 'models' / 'flickr8k-lite'}")
    keys, images, captions, media = [], [], [], []
    cached = CACHE / f"flickr8k-val-{limit}-{model.fingerprint[:16]}.npz"
    from model.pixels import decode_image, fit_to

    with tarfile.open(shared / "data" / "flickr8k" / "val-00000.tar") as tar:
        for member in tar:
            key, extension = member.name.rsplit(".", 1)
            data = tar.extractfile(member)
            if data is None or extension == "json" or (key not in keys and len(keys) == limit):
                continue
            if key not in keys:
                keys.append(key)
            if extension == "txt":
                lines = [line.strip() for line in data.read().decode().splitlines() if line.strip()]
                captions += lines
                media += [keys.index(key)] * len(lines)
            elif not cached.exists():
                images.append(fit_to(model.pixels, decode_image(data.read())))
    if cached.exists():
        with np.load(cached) as stored:
            visual, text = stored["visual"], stored["text"]
    else:
        batches = [model.encode_images(np.stack(images[at : at + 32])).cpu() for at in range(0, len(images), 32)]
        visual = np.concatenate([batch.numpy() for batch in batches])
        text = encoder(shared)(captions)
        CACHE.mkdir(parents=True, exist_ok=True)
        np.savez(cached, visual=visual, text=text)
    return Photos(keys, captions, visual, text, np.asarray(media, np.int64), model.logit_scale)


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
    """The caption with one of its nouns replaced by another of the corpus; None where it has none."""
    places = [found for found in re.finditer(r"[A-Za-z]+", caption) if found.group().lower() in set(known)]
    if not places:
        return None
    place = places[generator.integers(len(places))]
    others = [noun for noun in known if noun not in words(caption)]
    return caption[: place.start()] + others[generator.integers(len(others))] + caption[place.end() :]


def first_noun_phrase(caption: str, known: Sequence[str]) -> str | None:
    """'A man ...' of 'A man in a red shirt climbs'; None where that leaves nothing out."""
    for found in re.finditer(r"[A-Za-z]+", caption):
        if found.group().lower() in set(known):
            short = caption[: found.end()]
            return short if len(words(short)) < len(words(caption)) else None
    return None
