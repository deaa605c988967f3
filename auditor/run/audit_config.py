"""Settings of an audit, in a module that imports no torch so that `auditor audit --help` starts fast."""

from dataclasses import dataclass, field

from auditor.corpus.shard import CorpusOptions
from auditor.schema.setting import setting
from auditor.score.score_config import ScoreConfig
from auditor.sweep.sweep_config import SweepConfig


@dataclass(frozen=True)
class AuditConfig:
    """Everything that `auditor audit` needs to know."""

    corpus: str
    out: str
    model: str | None = None
    options: CorpusOptions = field(default_factory=CorpusOptions)
    sweep: SweepConfig = field(default_factory=SweepConfig)
    score: ScoreConfig = field(default_factory=ScoreConfig)
    device: str = "cpu"
    sample: bool = setting(
        False,
        "Audit random keys of random shards first; without --sample and --limit, go on from there.",
        advanced=False,
    )
    limit: int | None = setting(
        None, "About how many keys a --sample has [default: 10,000].", advanced=False, minimum=1
    )
    logit_scale: float = setting(100.0, "Logit scale of the model that made the stored embeddings.", above=0)
    max_error_rate: float = setting(0.5, "Stop if more than this share of the rows fails.", share=True)
    allow_random_weights: bool = setting(False, "Accept a model without trained weights (for tests).")
    force: bool = setting(False, "Write into a folder that contains other files.")
    quiet: bool = setting(False, "Show no progress.", advanced=False)
