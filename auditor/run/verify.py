"""Verifies an audit: reads a random sample of its rows from the corpus again, encodes, scores and compares them.

The results must equal the stored values, up to the rounding of float16 embeddings and of other batch sizes.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from auditor.audit_folder import arrow_schema
from auditor.audit_folder.audit_files import find_swept_shards
from auditor.audit_folder.confirmed_places import choose_audit_model
from auditor.audit_folder.embeddings import compute_media_identities, read_embeddings
from auditor.audit_folder.folder import Folder
from auditor.audit_folder.manifest import Manifest
from auditor.corpus.corpus_files import digest
from auditor.corpus.read_medium import MediaPlaces, find_media_places
from auditor.corpus.sample import get_row_span
from auditor.errors import AuditorError
from auditor.run.scoring import load_context
from auditor.score.corpus_statistics import ScoreContext
from auditor.score.pair_sample import KINDS, EncodedPairs, count_encoded, number_digests, select_pairs
from auditor.score.score import samples_file, score_pairs
from auditor.score.statistics.siblings import Siblings
from auditor.sweep.caption_tokens import encode_captions, tokenize_captions
from auditor.sweep.shard_encoder import pool_media
from auditor.sweep.sweep_config import SweepConfig
from auditor.workers.decoder_pool import Decoded, DecoderPool
from model.backbone import Backbone
from model.checkpoint import load_model

# Allowed differences from the stored values, for float16 storage and other batch sizes only.
TOLERANCES = {"similarity": 5e-3, "uncertainty_visual": 2e-2, "uncertainty_text": 2e-2, "p_mismatch": 0.1}


@dataclass(frozen=True, slots=True)
class RowCheck:
    """The result of checking one row."""

    shard: str
    key: str
    caption_index: int
    differs: str  # what differs; empty if everything is as stored


def verify_audit(
    out: str, count: int, *, model: str | None = None, corpus: str | None = None, seed: int = 0
) -> list[RowCheck]:
    """Check `count` random encoded rows of an audit against the corpus."""
    folder = Folder(out)
    manifest = Manifest.load(folder)
    if manifest.state != "complete":
        raise AuditorError(f"{out} is not complete ({manifest.state}): finish it first")
    if not manifest.model["spec"]:
        raise AuditorError(f"{out} was made from stored embeddings: there is no model to encode its media again with")
    backbone = load_model(choose_audit_model(asdict(manifest), model)).backbone
    if backbone.fingerprint != manifest.model["fingerprint"]:
        raise AuditorError(f"{backbone.spec} is not the model that made {out}; pass it with --model")
    shards = find_swept_shards(folder)
    fitted = shards if manifest.fitted_on is None else manifest.fitted_on  # an extended audit: on its old shards
    context = replace(load_context(folder, manifest, fitted), priors=manifest.shard_priors)
    sweep = SweepConfig(manifest.model["frames"], manifest.model["exact_pixels"])
    with sweep.open_decoder_pool(backbone.pixels, workers=1) as decoders:
        checker = RowChecker(folder, backbone, decoders, context, find_media_places(asdict(manifest), corpus))
        chosen = choose_rows(folder, shards, count, seed)
        return [check for (shard, kind), rows in chosen.items() for check in checker.check(shard, kind, rows)]


def choose_rows(folder: Folder, shards: Sequence[str], count: int, seed: int) -> dict[tuple[str, str], list[int]]:
    """Choose random encoded rows; return their positions by shard and kind."""
    counts = count_encoded(folder, shards)
    pairs = [(c.shard, kind, i) for c in counts for kind in KINDS for i in range(c.pairs.get(kind, 0))]
    sample = np.random.default_rng(seed).choice(len(pairs), min(count, len(pairs)), replace=False)
    chosen: dict[tuple[str, str], list[int]] = {}
    for index in sorted(sample.tolist()):
        shard, kind, position = pairs[index]
        chosen.setdefault((shard, kind), []).append(position)
    return chosen


@dataclass(frozen=True)
class RowChecker:
    """Reads, encodes and scores rows again."""

    folder: Folder
    backbone: Backbone
    decoders: DecoderPool
    context: ScoreContext
    places: MediaPlaces

    def check(self, shard: str, kind: str, chosen: list[int]) -> list[RowCheck]:
        pairs = select_pairs(read_embeddings(self.folder, shard), kind)
        stored = self.folder.read_table(samples_file(shard))
        checks = []
        for position in chosen:
            row = stored.slice(int(pairs.rows[position]), 1).to_pylist()
            if not row:
                checks.append(RowCheck(shard, "", 0, f"row {pairs.rows[position]} is not in its samples"))
                continue
            [row] = row
            siblings = None if pairs.siblings is None else pairs.siblings.take(np.array([position]))
            differs = self._compare(row, kind, siblings)
            checks.append(RowCheck(shard, row["key"], row["caption_index"], differs))
        return checks

    def _compare(self, row: dict[str, Any], kind: str, siblings: Siblings | None) -> str:
        try:
            location = row["media_path"], row["media_offset"], row["media_size"]
            data = self.places.read(*location)
        except (AuditorError, OSError) as error:
            return f"medium cannot be read: {error}"
        if digest(data) != row["media_digest"]:
            return "the medium's bytes have changed"
        result = self.decoders.decode(data, row["kind"], get_row_span(row))
        if not isinstance(result, Decoded):
            return f"does not decode any more: {result.message}"
        shift = self.context.priors.get(row["shard"], 0.0)
        fresh = score_pairs(self._encode_pair(row, result, siblings), self.context.kinds[kind], self.context, shift)
        stored = [name for name in TOLERANCES if row[name] is not None]
        values = {name: float(fresh[name][0]) if name in fresh else np.nan for name in stored}
        return "; ".join(
            f"{name} {row[name]:.4f} is now {value:.4f}"
            for name, value in values.items()
            if not abs(value - row[name]) <= TOLERANCES[name]  # true also for NaN
        )

    def _encode_pair(self, row: dict[str, Any], result: Decoded, siblings: Siblings | None) -> EncodedPairs:
        frames = self.backbone.encode_frames(result.pixels).float().cpu().numpy()
        video = result.times is not None
        captions = encode_captions(self.backbone, [tokenize_captions(self.backbone, [row["caption"]])])
        facts = {name: row.get(name) for name in arrow_schema.FACTS.names}
        table = pa.Table.from_pylist([facts], schema=arrow_schema.FACTS)
        return EncodedPairs(
            pool_media(self.backbone, frames, np.array([len(frames)]), np.array([video]), keep=video),
            captions.text,
            number_digests(compute_media_identities(table)),
            [row["caption"]],
            siblings,
            facts=table,
            rows=np.zeros(1, dtype=np.int64),
            times=(tuple(result.times),) if result.times is not None else (),
            parts=captions.parts if captions.parts.counts.any() else None,
        )


def list_checks(checks: Sequence[RowCheck]) -> list[dict[str, Any]]:
    return [asdict(check) for check in checks]
