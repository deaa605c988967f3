"""The demo from nothing to a checked audit: draw a corpus, train on its clean part, audit the other, compare.

Each step leaves its result in the folder and is skipped, or continued, when the demo is run again.
"""

import os
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from auditor.console import Progress
from auditor.demo.demo_corpus import CorpusConfig, write_corpus
from auditor.say import say

FULL, QUICK = 1500, 400  # samples to audit
COPIES = 0.9999  # cosine: the drawn scenes are of one world, and many are nearly alike to so small a model


@dataclass(frozen=True, slots=True)
class DemoConfig:
    """Samples to audit, samples to train on (by default in proportion), and how long to train."""

    out: Path
    size: int = FULL
    train: int | None = None
    epochs: int = 10
    seed: int = 0
    quiet: bool = False

    def corpus(self) -> CorpusConfig:
        return CorpusConfig(size=self.size, seed=self.seed, train=self.train)


def quick_config(out: Path, size: int | None, seed: int, quiet: bool) -> DemoConfig:
    """Everything on a corpus so small, and with a model so briefly trained, that the figures are rough."""
    size = size or QUICK
    return DemoConfig(out, size, train=2 * size, epochs=10, seed=seed, quiet=quiet)


def run_demo(config: DemoConfig) -> Path:
    """Generate, train and audit; returns the folder of the audit."""
    tell(config, "1. drawing a corpus of scenes and clips, and hiding defects in it")
    corpus = generate(config)
    tell(config, f"2. training a small open_clip model on the sound part ({config.epochs} epochs, from scratch)")
    model = learn(config, corpus)
    tell(config, "3. auditing the part with the defects")
    return audit(config, corpus, model)


def tell(config: DemoConfig, words: str) -> None:
    if not config.quiet:
        say(words, err=True)


def generate(config: DemoConfig) -> Path:
    wanted = config.corpus()
    with Progress("draw", sum(wanted.counts().values()), "samples", quiet=config.quiet) as progress:
        return write_corpus(config.out, wanted, workers(), progress.advance)


def learn(config: DemoConfig, corpus: Path) -> Path:
    """Train, or go on with training; returns the checkpoint."""
    from auditor.demo.demo_model import train_small
    from auditor.research.train.training_progress import TrainProgress

    with closing(TrainProgress(config.quiet)) as progress:
        return train_small(corpus, config.out / "model", epochs=config.epochs, seed=config.seed, progress=progress).best


def audit(config: DemoConfig, corpus: Path, model: Path) -> Path:
    from auditor.run.run_audit import AuditConfig, run_audit
    from auditor.score.corpus_statistics import ScoreConfig
    from auditor.sweep.sweep import SweepConfig

    out = config.out / "audit"
    run_audit(
        AuditConfig(
            corpus=str(corpus / "audit"),
            out=str(out),
            model=str(model),
            sweep=SweepConfig(decoders=workers(), motion=True),
            score=ScoreConfig(near_duplicate=COPIES),
            quiet=config.quiet,
        )
    )
    return out


def workers() -> int:
    return len(os.sched_getaffinity(0))
