"""Measure the flags of ambiguity: vague captions, blank and blurred pictures, and clips of several scenes.

    python -m tests.bench.ambiguity

Audits Flickr8k photos with one caption each, through the whole product: `val`, which the encoder has not seen, and
`train-00002`, which it has seen; each clean, and with planted ones. All but the first three of the vague captions are
not among the examples of auditor/score/example_captions.py, and none was looked at while those were chosen. File names,
URLs, captions in other languages and short clear captions are planted too and must not be flagged. For comparison: the
recall of u and of the perplexity (`matches_*`) at the cut with 95% precision. Writes bench-results/ambiguity.json. A
quarter of an hour on one core.
"""

import io
import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import av
import numpy as np
from PIL import Image, ImageFilter

from auditor.console import print_table
from auditor.python_api import Audit
from auditor.run.audit_config import AuditConfig
from auditor.run.run_audit import run_audit
from auditor.score.statistics.ambiguity import grade_media
from auditor.workers.pixel_facts import describe_pixels
from model.pixels import PixelSpec, fit_image
from tests.bench.flickr8k import read_photos

RESULTS = Path(__file__).resolve().parents[2] / "bench-results"
PHOTOS, SPOILED, CLIPS, SCENE_CLIPS = 718, 12, 60, 20
VAGUE = tuple(
    """
This is a photo.|A scene.|Something outside.|Somebody with something.|A quick snap.|Nothing much to say.
A picture I took.|Things in a room.|An unnamed place.|Some random items.|Photo number 4
An image without a title.|What a great moment!|People somewhere.|An everyday situation.|Some object.
An undefined thing in the picture.|A generic photo.|Look at that.|This is something I saw.
A very nice image.|The usual.|It is a picture of stuff.|Another photograph.|A place with things.
Some action going on.|Unknown object.|One more shot.|Here you can see something.|A typical scene.
General image.
""".strip()
    .replace("\n", "|")
    .split("|")
)
CLEAR = tuple(
    """
A black dog.|A red car.|Snowboarder.|A girl on a swing.|Dogs in snow.|A surfer.|Football players.
A bicycle race.|A horse.|Motorcycle jump.|A baby laughing.|Kids in a pool.|IMG_20190412_1734.jpg
DSC00342.JPG|www.photosite.org/view?id=55|https://example.com/images/2931.html
Ein Hund läuft durch den Schnee.|Un homme joue de la guitare.|p2389_final_v2.png
Dos niños juegan en la playa.|Een meisje springt in het water.|Мальчик играет в футбол.|犬が草の上を走っている
""".strip()
    .replace("\n", "|")
    .split("|")
)


@dataclass
class Corpus:
    """A folder of media with captions, and the planted defect of each key."""

    path: Path
    defects: dict[str, str] = field(default_factory=dict)

    def add(self, key: str, caption: str, data: bytes, extension: str = "jpg", defect: str = "") -> None:
        (self.path / f"{key}.{extension}").write_bytes(data)
        (self.path / f"{key}.txt").write_text(caption)
        self.defects[key] = defect


def encode_picture(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def encode_clip(scenes: list[Image.Image]) -> bytes:
    """Three seconds that pan over each scene in turn."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream = container.add_stream("h264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 224, 224, "yuv420p"
        for number in range(30):
            picture = scenes[number * len(scenes) // 30].resize((256, 256))
            frame = av.VideoFrame.from_image(picture.crop((number, number, number + 224, number + 224)))
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return buffer.getvalue()


def spoil_picture(picture: Image.Image, number: int) -> tuple[str, Image.Image]:
    """A blank picture, one that is almost blank, or one blurred beyond recognition."""
    if number % 3 == 0:
        return "blank", Image.new("RGB", picture.size, (20 * number, 20 * number, 20 * number))
    if number % 3 == 1:
        return "blank", Image.blend(Image.new("RGB", picture.size, (245, 245, 245)), picture, 0.02)
    return "blurred", picture.filter(ImageFilter.GaussianBlur(picture.width / (6 + number % 14)))


def write_corpus(path: Path, tar: Path, *, planted: bool) -> Corpus:
    path.mkdir()
    corpus, generator = Corpus(path), np.random.default_rng(0)
    need = PHOTOS + CLIPS + 3 * SCENE_CLIPS
    _, images, captions, media = read_photos(tar, need, pixels=True)
    texts: list[list[str]] = [[] for _ in images]
    for caption, medium in zip(captions, media, strict=True):
        texts[medium].append(caption)
    chosen = [str(generator.choice(group)) for group in texts]
    pictures = [Image.open(io.BytesIO(data)).convert("RGB") for data in images]
    odd = [(caption, "vague") for caption in VAGUE] + [(caption, "") for caption in CLEAR]
    for number in range(PHOTOS):
        caption, data, defect = chosen[number], images[number], ""
        if planted and number < len(odd):
            caption, defect = odd[number]
        elif planted and number < len(odd) + 3 * SPOILED:
            defect, picture = spoil_picture(pictures[number], number - len(odd))
            data = encode_picture(picture)
        corpus.add(f"photo-{number:04}", caption, data, defect=defect)
    for number in range(PHOTOS, PHOTOS + CLIPS):
        corpus.add(f"clip-{number:04}", chosen[number], encode_clip([pictures[number]]), "mp4")
    for number in range(PHOTOS + CLIPS, need if planted else 0, 3):
        corpus.add(f"clip-{number:04}", chosen[number], encode_clip(pictures[number : number + 3]), "mp4", "scenes")
    return corpus


def find_recall(values: Any, is_defect: Any, precision: float = 0.95) -> float:
    """Recall of the lowest cut that has this precision."""
    order = np.argsort(-values, kind="stable")
    hits = np.cumsum(is_defect[order])
    enough = hits / np.arange(1, len(order) + 1) >= precision
    return float(hits[enough].max() / is_defect.sum()) if enough.any() else 0.0


def measure_corpus(name: str, corpus: Corpus, model: str, out: Path) -> list[dict[str, Any]]:
    run_audit(AuditConfig(str(corpus.path), str(out), model, quiet=True))
    columns = [f"{measure}_{side}" for measure in ("uncertainty", "matches") for side in ("text", "visual")]
    with Audit(out) as audit:
        table = audit.sql(f"SELECT key, ambiguous_text, ambiguous_visual, {', '.join(columns)} FROM samples")
    defect = np.array([corpus.defects[key] for key in table["key"].to_pylist()])
    rows = []
    for side, kinds in (("text", ("vague",)), ("visual", ("blank", "blurred", "scenes"))):
        is_flagged = table[f"ambiguous_{side}"].to_numpy()
        is_defect = np.isin(defect, kinds)
        row: dict[str, Any] = {"corpus": name, "side": side, "rows": len(defect), "planted": int(is_defect.sum())}
        row |= {"flagged": int(is_flagged.sum()), "wrongly": int((is_flagged & ~is_defect).sum())}
        if is_defect.any():
            row["recall"] = {kind: round(float(is_flagged[defect == kind].mean()), 3) for kind in kinds}
            row["precision"] = round(float(is_defect[is_flagged].mean()), 3)
            for measure in ("uncertainty", "matches"):
                values = table[f"{measure}_{side}"].to_numpy()
                row[f"recall of {measure}"] = round(find_recall(values, is_defect), 3)
        rows.append(row)
        keys = np.array(table["key"].to_pylist())
        print(name, side, "missed", keys[is_defect & ~is_flagged], "wrong", keys[is_flagged & ~is_defect])
    return rows


def measure_blurred(tar: Path, size: int, photos: int = 110) -> dict[str, Any]:
    """Flags of blurred photos and of other photos, by their pixels alone, for an encoder with pictures of this size."""
    images = read_photos(tar, 2 * photos, pixels=True)[1]
    pictures, generator = [Image.open(io.BytesIO(data)).convert("RGB") for data in images], np.random.default_rng(0)
    blurred = [p.filter(ImageFilter.GaussianBlur(p.width / generator.uniform(5, 20))) for p in pictures[:photos]]
    blurred = [Image.open(io.BytesIO(encode_picture(picture))) for picture in blurred]
    shares = []
    for group in (blurred, pictures[photos:]):
        facts = [describe_pixels(np.asarray(fit_image(PixelSpec((size, size)), picture))[None])[0] for picture in group]
        contrast, sharpness = (np.array([getattr(f, n) for f in facts], np.float32) for n in ("contrast", "sharpness"))
        matches, readable = np.ones(len(group), np.float32), np.ones(len(group), bool)
        evidence = grade_media(matches, 1000, contrast, sharpness, size, None, readable)
        shares.append(float((np.max(evidence, axis=0) >= 0.5).mean()))
    return {"encoder's size": size, "blurred flagged": shares[0], "others flagged": shares[1]}


def main() -> None:
    from tests.conftest import SHARED

    print_table([measure_blurred(SHARED / "data/flickr8k/train-00001.tar", size) for size in (224, 336)])
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for tar in ("val-00000", "train-00002"):
            for planted in (False, True):
                name = f"{tar}, {'planted' if planted else 'clean'}"
                place = Path(folder) / f"{tar}-{planted}"
                corpus = write_corpus(place, SHARED / "data" / "flickr8k" / f"{tar}.tar", planted=planted)
                model = f"local-dir:{SHARED / 'models' / 'flickr8k-lite'}"
                rows += measure_corpus(name, corpus, model, Path(folder) / f"{place.name}-audit")
    print_table(rows)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "ambiguity.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
