"""Verifying an audit: a random sample of its rows is read from the corpus again, encoded, scored and compared.

What comes out must be what is stored, up to the rounding of float16 embeddings and of other batches.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from auditor.audit_folder import arrow_schema
from auditor.audit_folder.audit_files import swept_shards
from auditor.audit_folder.embeddings import identities, read_embeddings
from auditor.audit_folder.folder import Folder
from auditor.audit_folder.manifest import Manifest
from auditor.corpus.read_medium import read_media
from auditor.corpus.sample import span_of
from auditor.errors import AuditorError
from auditor.run.rescore import stored_head
from auditor.score.corpus_statistics import Context, ScoreConfig, prepare
from auditor.score.pair_sample import KINDS, Pairs, count_pairs, groups, pairs_of_kind
from auditor.score.score import samples_name, score_pairs
from auditor.score.statistics.siblings import Siblings
from auditor.sweep.sample_rows import digest
from auditor.sweep.sweep import SweepConfig
from auditor.vectors import from_frames
from auditor.workers.decoder_pool import Decoded, DecoderPool, Stream
from model.backbone import Backbone
from model.checkpoint import load_model

# How far a number may be from the stored one: float16 storage and other batch shapes, nothing more.
TOLERANCES = {"similarity": 5e-3, "uncertainty_visual": 2e-2, "uncertainty_text": 2e-2, "p_mismatch": 0.1}


@dataclass(frozen=True, slots=True)
class Check:
    """One row of the sample: what differs, or nothing."""

    shard: str
    key: str
    caption_index: int
    differs: str  # empty when all is as stored


def verify(out: str, count: int, *, model: str | None = None, corpus: str | None = None, seed: int = 0) -> list[Check]:
    """Check `count` random encoded rows of an audit against the corpus."""
    folder = Folder(out)
    manifest = Manifest.load(folder)
    if manifest.state != "complete":
        raise AuditorError(f"{out} is not complete ({manifest.state}): finish it first")
    if not manifest.model["spec"]:
        raise AuditorError(f"{out} was made from stored embeddings: there is no model to encode its media again with")
    backbone = load_model(model or manifest.model["spec"]).backbone
    if backbone.fingerprint != manifest.model["fingerprint"]:
        raise AuditorError(f"{backbone.spec} is not the model that made {out}; pass it with --model")
    shards = swept_shards(folder)
    config = ScoreConfig.of(manifest.settings.get("score") or {})
    context = prepare(
        folder,
        shards if manifest.fitted_on is None else manifest.fitted_on,  # of an extended audit the old ones
        stored_head(folder),
        manifest.model["logit_scale"],
        config,
        model=manifest.model["fingerprint"],
        keep=False,
    )
    context = replace(context, priors=manifest.shard_priors)
    sweep = SweepConfig(manifest.model["frames"], manifest.model.get("exact_pixels", True))
    checks: list[Check] = []
    with sweep.decoder_pool(backbone.pixels, workers=1) as decoders:
        for shard, kind, chosen in choose(folder, shards, count, seed):
            checker = Checker(folder, backbone, decoders, context, corpus, manifest.corpus.get("root"))
            checks += checker.check(shard, kind, chosen)
    return checks


def choose(folder: Folder, shards: Sequence[str], count: int, seed: int) -> list[tuple[str, str, list[int]]]:
    """Random encoded rows by shard and kind."""
    counts = count_pairs(folder, shards)
    places = [(c.shard, kind, i) for c in counts for kind in KINDS for i in range(c.pairs.get(kind, 0))]
    picked = np.random.default_rng(seed).choice(len(places), min(count, len(places)), replace=False)
    found: dict[tuple[str, str], list[int]] = {}
    for index in sorted(picked.tolist()):
        shard, kind, position = places[index]
        found.setdefault((shard, kind), []).append(position)
    return [(shard, kind, positions) for (shard, kind), positions in found.items()]


@dataclass(frozen=True)
class Checker:
    """Reads, encodes and scores some rows of one shard again."""

    folder: Folder
    backbone: Backbone
    decoders: DecoderPool
    context: Context
    corpus: str | None  # where it is now, if it has moved
    old_root: str | None

    def check(self, shard: str, kind: str, chosen: list[int]) -> list[Check]:
        pairs = pairs_of_kind(read_embeddings(self.folder, shard), kind)
        stored = self.folder.read_table(samples_name(shard))
        checks = []
        for position in chosen:
            row = stored.slice(int(pairs.rows[position]), 1).to_pylist()[0]
            siblings = None if pairs.siblings is None else pairs.siblings.take(np.array([position]), len(pairs))
            differs = self._compare(row, kind, siblings)
            checks.append(Check(shard, row["key"], row["caption_index"], differs))
        return checks

    def _compare(self, row: dict[str, Any], kind: str, siblings: Siblings | None) -> str:
        try:
            place = row["media_path"], row["media_offset"], row["media_size"]
            data = read_media(*place, root=self.corpus, old_root=self.old_root)
        except (AuditorError, OSError) as error:
            return f"medium cannot be read: {error}"
        if digest(data) != row["media_digest"]:
            return "the medium's bytes have changed"
        span = span_of(row)
        task = Stream(data, [span]) if span else data
        _, found = next(iter(self.decoders.map([(None, task, row["kind"])])))
        result = found.collected() if isinstance(found, Stream) else found
        if not isinstance(result, Decoded):
            return f"does not decode any more: {result.message}"
        shift = self.context.priors.get(row["shard"], 0.0)
        fresh = score_pairs(self._pair(row, result, siblings), self.context.kinds[kind], self.context, shift)
        wrong = [
            f"{name} {row[name]:.4f} is now {float(fresh[name][0]):.4f}"
            for name, tolerance in TOLERANCES.items()
            if row[name] is not None and not abs(float(fresh[name][0]) - row[name]) <= tolerance
        ]
        return "; ".join(wrong)

    def _pair(self, row: dict[str, Any], result: Decoded, siblings: Siblings | None) -> Pairs:
        frames = self.backbone.encode_images(result.pixels).float().cpu().numpy()
        text = self.backbone.encode_texts([row["caption"]]).float().cpu().numpy()
        return Pairs(
            facts=_one_row(row),
            rows=np.zeros(1, dtype=np.int64),
            media=from_frames(frames, np.array([len(frames)]), keep=result.times is not None),
            text=text,
            group=groups(identities(_one_row(row))),
            siblings=siblings,
            times=(tuple(result.times),) if result.times is not None else (),
        )


def _one_row(row: dict[str, Any]) -> Any:
    return pa.Table.from_pylist([{name: row.get(name) for name in arrow_schema.FACTS.names}], schema=arrow_schema.FACTS)


def as_rows(checks: Sequence[Check]) -> list[dict[str, Any]]:
    return [asdict(check) for check in checks]
