"""Measures on a sample of swept pairs whether their encoder can judge the corpus, and warns early if it cannot."""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Any

import numpy as np
import pyarrow as pa

from auditor.audit_folder.embeddings import parse_embeddings, read_random_row_groups
from auditor.audit_folder.folder import Folder
from auditor.errors import AuditorError
from auditor.score.pair_sample import KINDS, concatenate_pairs, select_pairs
from auditor.score.statistics.competence import Competence, Estimate, measure_competence
from auditor.score.statistics.rivals import ReferenceSample
from auditor.sweep.sweep_events import ShardReport
from auditor.terminal import print_line
from auditor.workers.blas_threads import use_one_blas_thread

EARLY_PAIRS = 1000
BLIND = "warning: this model hardly tells these captions from random ones"
MOST = 0.5  # share of the pairs that an encoder must be able to judge


@dataclass(frozen=True, slots=True)
class SampleCompetence:
    """Competence on a sample of pairs by kind of medium, and the share of each kind that the encoder can judge."""

    kinds: Mapping[str, tuple[Competence, float]]

    @property
    def pairs(self) -> int:
        return sum(competence.pairs for competence, _ in self.kinds.values())

    @property
    def judged_share(self) -> float:
        return sum(competence.pairs * share for competence, share in self.kinds.values()) / self.pairs

    @property
    def blind(self) -> bool:
        return self.judged_share < MOST

    def average(self, measure: str) -> Estimate:
        """The mean of `relatedness` or `separation` over the kinds, by their pairs."""
        parts = [(part.pairs / self.pairs, getattr(part, measure)) for part, _ in self.kinds.values()]
        value = sum(weight * part.value for weight, part in parts)
        return Estimate(value, sqrt(sum((weight * part.error) ** 2 for weight, part in parts)))

    def to_dict(self) -> dict[str, Any]:
        measures = {name: self.average(name).to_dict() for name in ("relatedness", "separation")}
        kinds = {kind: {**part.to_dict(), "judged": round(share, 4)} for kind, (part, share) in self.kinds.items()}
        return {
            "pairs": self.pairs,
            "judged": round(self.judged_share, 4),
            "blind": self.blind,
            **measures,
            "kinds": kinds,
        }


@use_one_blas_thread()
def measure_shards(folder: Folder, shards: Mapping[str, int], count: int, seed: int = 0) -> SampleCompetence | None:
    """Competence on about `count` random pairs of swept shards, given the pairs of each; None if there are too few."""
    generator = np.random.default_rng(seed)
    total = sum(shards.values())
    quotas = {shard: ceil(count * pairs / total) for shard, pairs in shards.items() if pairs}
    parts = [
        (parse_embeddings(read_random_row_groups(folder, shard, quota, generator)), quota)
        for shard, quota in quotas.items()
    ]
    kinds = {}
    for kind in KINDS:
        samples = [(select_pairs(embeddings, kind), quota) for embeddings, quota in parts]
        pair_samples = [
            pairs.take(np.sort(generator.permutation(len(pairs))[:quota])) for pairs, quota in samples if len(pairs)
        ]
        if not pair_samples:
            continue
        pairs = concatenate_pairs(pair_samples)
        columns = {"language": pairs.facts["language"].to_pylist()}
        reference = ReferenceSample(pairs.media, pairs.text, pairs.group, pairs.captions, scale=1.0)
        competence = measure_competence(reference, seed, columns)
        if competence.corpus is not None:
            kinds[kind] = competence.corpus, float(competence.find_judged(reference, columns).mean())
    return SampleCompetence(kinds) if kinds else None


def warn_if_blind(reports: Iterable[ShardReport], folder: Folder, corpus: str | None) -> Iterator[ShardReport]:
    """Pass reports on. Once EARLY_PAIRS pairs are encoded, print a warning if the encoder cannot judge most of them.

    `corpus` is None if another encoder cannot be tried, because the embeddings are stored ones.
    """
    shards: dict[str, int] = {}
    checked = False
    for report in reports:
        yield report
        if checked:
            continue
        shards[report.shard] = report.status.get("ok", 0)
        if sum(shards.values()) < EARLY_PAIRS:
            continue
        checked = True
        with suppress(AuditorError, OSError, pa.ArrowException):  # whatever is wrong, the audit itself reports it
            competence = measure_shards(folder, shards, EARLY_PAIRS)
            if competence and competence.blind:
                command = f"auditor encoders {shlex.quote(corpus or '')} --try MODEL"
                hint = f"try another with `{command}`" if corpus else "use embeddings of another one"
                print_line(f"{BLIND} (first {EARLY_PAIRS:,} pairs): {hint}", err=True)
