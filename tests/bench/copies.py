"""Search altered copies of photos: recall for each alteration, precision, and pages of one template.

Photos of a Flickr8k shard, of which the first are altered in nine ways (tests/support/copies.py), and 72 screenshots of
8 templates. For each alteration, the photos, their copies and the screenshots are one corpus in random order. `val` is
the shard to report; `train-00000` was used to choose the constants.

    python -m tests.bench.copies [SHARD]
"""

import io
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from auditor.audit_folder.embeddings import build_nullable_vectors, name_embeddings_file
from auditor.audit_folder.folder import Folder
from auditor.console import print_table
from auditor.score.duplicate_search import read_duplicates, search_duplicates
from auditor.score.pair_sample import ShardCounts
from auditor.score.score_config import ScoreConfig
from auditor.vectors import Floats, Ints
from auditor.workers.pixel_facts import describe_pixels
from tests.bench.flickr8k import CACHE, backbone, read_photos
from tests.support.copies import ALTERATIONS, draw_screenshot

SHARED = Path(__file__).resolve().parents[3] / "shared"
RESULTS = Path("bench-results")
PHOTOS, ORIGINALS, TEMPLATES, PAGES = 1000, 100, 8, 9


def encode(shard: str) -> dict[str, Any]:
    """Vectors, thumbnails, kinds ("photo", an alteration, "page") and sources of all pictures; encoded once."""
    from model.pixels import decode_image, fit_image

    cached = CACHE / f"copies-{shard}.npz"
    if cached.exists():
        return dict(np.load(cached))
    model, generator = backbone(f"local-dir:{SHARED / 'models' / 'flickr8k-lite'}"), np.random.default_rng(len(shard))
    images = read_photos(SHARED / "data" / "flickr8k" / f"{shard}.tar", PHOTOS, pixels=True)[1]
    pictures = [("photo", number, decode_image(data)) for number, data in enumerate(images)]
    for number in range(ORIGINALS):
        for name, alter in ALTERATIONS.items():
            data = io.BytesIO()
            alter(pictures[number][2], generator).save(data, "PNG" if name == "re-encoded" else "JPEG", quality=90)
            pictures.append((name, number, decode_image(data.getvalue())))
    for template in range(TEMPLATES):
        pages = [draw_screenshot(1000 * len(shard) + template, generator) for _ in range(PAGES)]
        pictures += [("page", -1 - template, page) for page in pages]
    fitted = [fit_image(model.pixels, picture.convert("RGB")) for _, _, picture in pictures]
    parts = [model.encode_images(np.stack(fitted[at : at + 32])).cpu().numpy() for at in range(0, len(fitted), 32)]
    encoded = {
        "visual": np.concatenate(parts).astype(np.float32),
        "thumbnails": np.array([list(describe_pixels(frame[None])[1]) for frame in fitted], np.uint8),
        "kind": np.array([kind for kind, _, _ in pictures]),
        "source": np.array([source for _, source, _ in pictures]),
    }
    CACHE.mkdir(parents=True, exist_ok=True)
    np.savez(cached, **encoded)
    return encoded


def search(visual: Floats, thumbnails: Any, config: ScoreConfig) -> tuple[Ints, dict[str, Any]]:
    """For each picture, the one that it repeats or itself; and the rule."""
    count = len(visual)
    columns = {
        "uid": [str(number) for number in range(count)],
        "media_digest": [f"{number:032x}"[::-1] for number in range(count)],
        "status": ["ok"] * count,
        "caption_index": pa.array(np.zeros(count, np.int32)),
        "start": pa.nulls(count, pa.float64()),
        "end": pa.nulls(count, pa.float64()),
        "visual": build_nullable_vectors(visual, np.ones(count, bool)),
        "thumbnail": pa.array([row.tobytes() for row in thumbnails], pa.binary(thumbnails.shape[1])),
    }
    with tempfile.TemporaryDirectory() as place:
        folder = Folder(place)
        folder.write_table(name_embeddings_file("0"), pa.table(columns))
        rule = search_duplicates(folder, [ShardCounts("0", Counter(image=count), Counter(image=count))], config)
        repeats = read_duplicates(folder, "0")
    return np.array([int(repeats.get(str(number), number)) for number in range(count)]), rule


def measure(corpus: dict[str, Any], rows: Ints, label: str, config: ScoreConfig) -> dict[str, Any]:
    start = time.process_time()
    first, rule = search(corpus["visual"][rows], corpus["thumbnails"][rows], config)
    kind, source = corpus["kind"][rows], corpus["source"][rows]
    repeats = np.flatnonzero(first != np.arange(len(rows)))
    is_right = (source[repeats] == source[first[repeats]]) & (source[repeats] >= 0)
    is_page = source[repeats] < 0
    original = {number: row for row, number in enumerate(source) if kind[row] == "photo"}
    copies = [row for row in range(len(rows)) if kind[row] in ALTERATIONS]
    hits = sum(first[row] == first[original[source[row]]] for row in copies)
    return {
        "copies": label,
        "planted": len(copies),
        "recall": hits / max(1, len(copies)),
        "right": int(is_right.sum()),
        "wrong photos": int((~is_right & ~is_page).sum()),
        "wrong pages": int(is_page.sum()),
        "cosine": rule["candidate"],
        "agreement": rule["agreement"],
        "processor s": time.process_time() - start,
    }


def main() -> None:
    shard = sys.argv[1] if len(sys.argv) > 1 else "val-00000"
    corpus = encode(shard)
    kind, generator = corpus["kind"], np.random.default_rng(0)
    rows = []
    for settings in (ScoreConfig(copy_agreement=0), ScoreConfig()):
        for name in [*ALTERATIONS, "all nine, photos first"]:
            names = ["photo", "page", *(ALTERATIONS if name not in ALTERATIONS else [name])]
            chosen = np.flatnonzero(np.isin(kind, names))
            rows.append(
                measure(corpus, generator.permutation(chosen) if name in ALTERATIONS else chosen, name, settings)
            )
    counts = Counter(kind.tolist())
    print_table(
        rows, f"{shard}: copies among {counts['photo']} photos and {counts['page']} pages; by cosine, by pixels"
    )
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"copies-{shard}.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
