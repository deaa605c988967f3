"""Retrieval on a benchmark, from shards to the JSON that the dashboard's Benchmarks page shows.

Encode the test split and a validation split; score by the benchmark's protocol, plain and re-ranked with betas from the
validation split; then ask what the uncertainty is worth: its correlation with h, recall without the most uncertain,
recall by tenths, calibration. `evaluate` does not know where shards are encoded: here, or on Ray by jobs/evaluate.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from auditor.audit_folder.folder import split_target
from auditor.corpus.caption_text import parse_record
from auditor.corpus.file_names import split_key
from auditor.corpus.open_corpus import CorpusError, Shard
from auditor.corpus.remote_files import is_url
from auditor.corpus.tar_archive import open_tar
from auditor.corpus.tar_index import NotATarError
from auditor.research.evaluate.benchmark_encoding import Array, Encode, EncodedShard, EvaluationError, split_shards
from auditor.research.evaluate.pack import VIDEO_BENCHMARKS
from auditor.research.retrieval import analyses, eccv, paper_figures
from auditor.research.retrieval.analyses import ItemScores
from auditor.research.retrieval.protocols import PROTOCOLS, Protocol, Weights, first_captions, score
from auditor.research.retrieval.recall import EmbeddingSet
from auditor.research.retrieval.rerank import Rerank, RetrievalSplit, fit_beta
from auditor.say import as_json
from auditor.vectors import from_frames, mean_over_frames, pad
from model.backbone import Backbone
from model.prototypes import HeadConfig, PrototypeHead

FORMAT = 1
VALIDATION_MEDIA = 1000  # betas are two numbers; more data would only cost time


@dataclass(frozen=True)
class EvaluateConfig:
    benchmark: str
    data: str
    split: str | None = None  # None: the protocol's own
    validation: str | None = None  # None: val, or train where there is no other
    seed: int = 0
    max_failed: float = 0.01  # share of the media that may fail to decode


@dataclass(frozen=True)
class EncodedSplit:
    """A split ready for retrieval."""

    name: str
    keys: Array
    captions: Array
    data: EmbeddingSet
    visual_features: Array  # (n, P), of a video the mean over its frames
    text_features: Array
    failed: list[str]
    frame_features: Array | None = None  # (n, J, P) of videos, as many as data.media.mask says


def join(name: str, shards: Sequence[EncodedShard], captions: int | None, media: int | None = None) -> EncodedSplit:
    """Shards to one split with the first so many captions of each medium, and the first so many media."""
    if not any(len(shard.keys) for shard in shards):
        raise EvaluationError(f"nothing of the split {name!r} could be encoded")
    counts = np.concatenate([shard.counts for shard in shards])
    frames = np.concatenate([shard.frames for shard in shards])
    offsets = np.cumsum([0, *(len(shard.keys) for shard in shards)])
    owners = np.concatenate([shard.owners + start for shard, start in zip(shards, offsets, strict=False)])
    limit = len(counts) if media is None else media
    kept = first_captions(owners, captions) & (owners < limit)
    counts = counts[:limit]
    frames = frames[: counts.sum()]
    video = np.concatenate([shard.video for shard in shards])[:limit]
    vectors = from_frames(frames, counts, keep=bool(video.any()))
    features = np.concatenate([shard.visual_features for shard in shards])[: counts.sum()]
    return EncodedSplit(
        name=name,
        keys=np.concatenate([shard.keys for shard in shards])[:limit],
        captions=np.concatenate([shard.captions for shard in shards])[kept],
        data=EmbeddingSet(
            vectors, np.concatenate([s.text for s in shards])[kept], np.arange(len(vectors)), owners[kept]
        ),
        visual_features=mean_over_frames(features, counts),
        frame_features=pad(features, counts)[0] if video.any() else None,
        text_features=np.concatenate([shard.text_features for shard in shards])[kept],
        failed=[str(line) for shard in shards for line in shard.failed],
    )


def evaluate(config: EvaluateConfig, backbone: Backbone, head: PrototypeHead | None, encode: Encode) -> dict[str, Any]:
    """All tables and curves of one benchmark."""
    protocol = PROTOCOLS.get(config.benchmark)
    if protocol is None:
        raise EvaluationError(f"unknown benchmark {config.benchmark!r}; one of {', '.join(PROTOCOLS)}")
    name = config.split or protocol.split
    shards = split_shards(config.data, name)
    test = join(name, list(encode(shards)), protocol.captions)
    check_failed(test, config.max_failed)
    validation = encode_validation(config, name, protocol, encode)
    fitted = head is None
    head = head or fit_head(validation or test, config.seed)
    u = uncertainty(head, test.data)
    rerank = None if validation is None else fit_rerank(head, validation, protocol.collapse_texts)
    return {
        "format": FORMAT,
        "benchmark": config.benchmark,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": {
            "spec": backbone.spec,
            "fingerprint": backbone.fingerprint,
            "head": f"fitted on {(validation or test).name} without labels" if fitted else "of the checkpoint",
            "prototypes": head.config.prototypes,
        },
        "data": describe(config, test, protocol),
        "tables": tables(protocol, test, u, rerank),
        "rerank": describe_rerank(rerank, validation),
        **uncertainty_analyses(test.data, u),
        **eccv_caption(config.benchmark, test, shards),
        "paper": paper_figures.read_table_figures("retrieval").get(config.benchmark, []),
    }


def check_failed(split: EncodedSplit, allowed: float) -> None:
    total = len(split.keys) + len(split.failed)
    if len(split.failed) > allowed * total:
        raise EvaluationError(
            f"{len(split.failed)} of {total} media of {split.name} cannot be used (allowed {allowed:.1%}), such as "
            f"{split.failed[0]}; recall on the rest would not be the benchmark's (--max-failed)"
        )


def encode_validation(config: EvaluateConfig, test: str, protocol: Protocol, encode: Encode) -> EncodedSplit | None:
    """The split that betas are fitted on; never the one that is reported."""
    wanted = [config.validation] if config.validation else [s for s in ("val", "train") if s != test]
    for name in wanted:
        if name == test:
            raise EvaluationError(f"betas fitted on {test} may not be reported on {test}; choose another --validation")
        try:
            shards = split_shards(config.data, name)
        except EvaluationError:
            if config.validation:
                raise
            continue
        encoded: list[EncodedShard] = []
        for shard in encode(shards):  # lazily: no more shards than are needed
            encoded.append(shard)
            if sum(len(part.keys) for part in encoded) >= VALIDATION_MEDIA:
                break
        return join(name, encoded, protocol.captions, VALIDATION_MEDIA)
    return None


def fit_head(split: EncodedSplit, seed: int) -> PrototypeHead:
    """Prototypes for encoders that came without: fitted on embeddings alone, no pairing is looked at."""
    from model.fit_prototypes import fit_prototypes

    visual, text = torch.from_numpy(split.data.visual), torch.from_numpy(split.data.text)
    return fit_prototypes(visual, text, HeadConfig(dim=visual.shape[1]), seed=seed)


@torch.no_grad()
def uncertainty(head: PrototypeHead, data: EmbeddingSet) -> ItemScores:
    device = head.visual.device
    visual = head.uncertainty_visual(torch.from_numpy(data.visual).to(device))
    text = head.uncertainty_text(torch.from_numpy(data.text).to(device))
    return ItemScores(visual.double().cpu().numpy(), text.double().cpu().numpy())


def fit_rerank(head: PrototypeHead, validation: EncodedSplit, collapse_texts: bool = False) -> Rerank:
    """Betas for the count that is reported, which decides what a tie of equal sentences is worth (MSVD has many)."""
    data = validation.data
    u = uncertainty(head, data)
    similarity = data.scores(slice(None), slice(None))
    keys = list(validation.keys)
    return fit_beta(RetrievalSplit(keys, similarity, u.visual, u.text, data.text_groups, collapse_texts))


def weights(rerank: Rerank, test: EncodedSplit, u: ItemScores) -> Weights:
    """Factors of equation 8 for a split that took no part in fitting the betas."""
    shared = rerank.fitted_keys.intersection(test.keys)
    if shared:
        raise EvaluationError(f"{len(shared)} media are in the validation and the test split, such as {min(shared)}")
    return Weights(np.exp(-rerank.beta_visual * u.visual), np.exp(-rerank.beta_text * u.text))


def tables(protocol: Protocol, test: EncodedSplit, u: ItemScores, rerank: Rerank | None) -> list[dict[str, Any]]:
    """One row for each gallery, plain and re-ranked."""
    whole = is_complete(protocol, test)
    plain = score(protocol, test.data, split=test.name, complete=whole)
    rows = [{"gallery": g, "reranked": False, **r.to_dict()} for g, r in plain.items()]
    if rerank is not None:
        reranked = score(protocol, test.data, weights(rerank, test, u), test.name, complete=whole)
        rows += [{"gallery": g, "reranked": True, **r.to_dict()} for g, r in reranked.items()]
    return rows


def is_complete(protocol: Protocol, test: EncodedSplit) -> bool:
    """Whether this is the very split that the benchmark's figures are published for."""
    return protocol.media is None or (len(test.keys) == protocol.media and test.name == protocol.split)


def describe(config: EvaluateConfig, test: EncodedSplit, protocol: Protocol) -> dict[str, Any]:
    return {
        "source": config.data,
        "split": test.name,
        "media": len(test.keys),
        "captions": len(test.captions),
        "expected_media": protocol.media,
        "complete": is_complete(protocol, test),
        "video": config.benchmark in VIDEO_BENCHMARKS,
        "failed": test.failed,
    }


def describe_rerank(rerank: Rerank | None, validation: EncodedSplit | None) -> dict[str, Any] | None:
    if rerank is None or validation is None:
        return None
    return {
        "beta_visual": rerank.beta_visual,
        "beta_text": rerank.beta_text,
        "fitted_on": validation.name,
        "media": len(validation.keys),
    }


def uncertainty_analyses(data: EmbeddingSet, u: ItemScores) -> dict[str, Any]:
    """What the dashboard draws: each curve for u, beside the same for h."""
    h = analyses.mean_similarity(data)
    orders = {"uncertainty": u, "mean_similarity": h}
    removal, deciles, calibration = {}, {}, {}
    for direction in analyses.DIRECTIONS:
        removal[direction] = analyses.removal_curve(data, orders, direction)
        hit = analyses.ranks(data, direction).hit(1)
        side = {n: o.visual if direction == "visual_to_text" else o.text for n, o in orders.items()}
        deciles[direction] = {n: analyses.recall_by_bin(s, hit) for n, s in side.items()}
        calibration[direction] = {n: analyses.calibration(s, hit).to_dict() for n, s in side.items()}
    return {
        "pearson": analyses.correlation(u, h),
        "removal": removal,
        "deciles": deciles,
        "calibration": calibration,
    }


def eccv_caption(benchmark: str, test: EncodedSplit, shards: Sequence[Shard]) -> dict[str, Any]:
    """mAP@R and R-Precision on COCO with its missing positives filled in, or why there are none."""
    if benchmark != "coco":
        return {"eccv_caption": None, "eccv_skipped": None}
    try:
        found = eccv.evaluate(test.data, *coco_ids(test, shards, PROTOCOLS["coco"].captions))
    except eccv.EccvError as reason:
        return {"eccv_caption": None, "eccv_skipped": str(reason)}
    return {"eccv_caption": found, "eccv_skipped": None}


def coco_ids(test: EncodedSplit, shards: Sequence[Shard], count: int | None) -> tuple[list[int], list[int]]:
    """COCO's ids of the images and captions of a split, in its order."""
    stored = {key: ids[:count] for shard in shards for key, ids in stored_caption_ids(shard).items()}
    captions = np.bincount(test.data.text_groups, minlength=len(test.keys))
    for key, expected in zip(test.keys, captions, strict=True):
        if len(stored.get(key, ())) != expected:
            raise eccv.EccvError(f"image {key} has {expected} captions and {len(stored.get(key, ()))} caption ids")
    try:
        return [int(key) for key in test.keys], [int(i) for key in test.keys for i in stored[key]]
    except (ValueError, TypeError) as error:
        raise eccv.EccvError(f"the shards hold other ids than COCO's ({error}); pack them again") from None


def stored_caption_ids(shard: Shard) -> dict[str, list[Any]]:
    """Key of each image -> the caption ids that `auditor pack` put beside it."""
    path = str(getattr(shard, "path", ""))
    if is_url(path):
        raise eccv.EccvError("caption ids are read from shards on this machine, and these are remote")
    found: dict[str, list[Any]] = {}
    try:
        with open_tar(path) as tar:
            for member in tar.index().members:
                key, extension = split_key(member.name) or ("", "")
                if extension == "json":
                    ids = (parse_record(tar.read(member.offset, member.size)) or {}).get("caption_ids")
                    found[key] = ids if isinstance(ids, list) else []
    except (OSError, CorpusError, NotATarError) as error:
        raise eccv.EccvError(f"caption ids of {path} cannot be read: {error}") from None
    return found


def save_results(results: dict[str, Any], out: str | Path) -> None:
    """Whole or not at all."""
    folder, name = split_target(str(out))
    with folder.writing(name) as partial:
        partial.write_text(as_json(results) + "\n", encoding="utf-8")
