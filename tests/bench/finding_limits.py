"""How near good photos and their captions come to the limits of the findings.

    python -m tests.bench.finding_limits ../shared

Prints the value of each limited column that comes nearest to its limit, over photos at the size of the encoder (224).
"""

import io
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from auditor.report.finding_rules import MEDIA_RULES, TEXT_RULES
from auditor.schema import HIGH_IS_SUSPICIOUS
from auditor.sweep.caption_facts import describe_captions
from auditor.workers.pixel_facts import describe_pixels
from tests.bench.flickr8k import read_photos


def main(shared: Path) -> None:
    facts: dict[str, list[float]] = {}
    for tar in ("flickr8k/train-00000.tar", "human/photos-00000.tar"):
        _, images, captions, _ = read_photos(shared / "data" / tar, 600, pixels=True)
        for data in images:
            pixels = np.asarray(Image.open(io.BytesIO(data)).convert("RGB").resize((224, 224)))
            measured = describe_pixels(pixels[None])[0]
            for name in measured.__slots__:
                facts.setdefault(name, []).append(getattr(measured, name))
        for name, values in describe_captions(captions).items():
            facts.setdefault(name, []).extend(values)
    print(f"{len(facts['contrast']):,} photos, {len(facts['language']):,} captions, languages {set(facts['language'])}")
    print(f"captions that look like something else: {sum(value is not None for value in facts['looks_like'])}")
    print(f"captions of a single word: {sum(value < 2 for value in facts['words'])}")
    for rule in (*TEXT_RULES, *MEDIA_RULES):
        for column, limit in rule.limits.items():
            if column in facts:
                worst = (max if column in HIGH_IS_SUSPICIOUS else min)(facts[column])
                print(f"{rule.name:<12} {column:<15} limit {limit:<6g} nearest {worst:.3f}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "../shared"))
