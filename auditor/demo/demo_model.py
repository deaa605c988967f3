"""The small model of the demo: an open_clip configuration for two CPU cores, and its training from scratch.

A ResNet of four blocks at 64 pixels and a text tower of two layers (small.json): 6.3 million parameters, most of them
the table of CLIP's 49,408 tokens. It learns the drawn scenes, and nothing else, in about a minute.
"""

from collections.abc import Callable
from pathlib import Path

from auditor.research.train.train import StepReport, TrainResult, train
from model.training.training_config import TrainConfig

ARCHITECTURE = Path(__file__).with_name("small.json")
TOKENS = 52  # the context of small.json; the longest captions of the grammar fit


def small_config(corpus: Path, out: Path, *, epochs: int = 10, seed: int = 0) -> TrainConfig:
    """Settings of the run. Everything is drawn and clean, so the learning rate can be high and the schedule short."""
    val = corpus / "val"
    return TrainConfig(
        corpus=str(corpus / "train"),
        val=str(val) if val.exists() else None,
        out=str(out),
        model=str(ARCHITECTURE),
        device="cpu",
        lr_encoders=7e-4,  # at 2e-3 recall is a third lower, in 90 steps (--quick) as in 370
        lr_other=1e-2,
        weight_decay=0.1,
        max_logit_scale=20.0,  # wide angles between scenes: a small model would crowd them otherwise
        warmup=0.05,
        epochs=epochs,
        batch_size=64,
        tokens=TOKENS,
        captions="one",
        cache=True,
        seed=seed,
    )


def train_small(
    corpus: Path,
    out: Path,
    *,
    epochs: int = 10,
    seed: int = 0,
    progress: Callable[[StepReport], None] | None = None,
) -> TrainResult:
    """Train on the `train` split of a generated corpus, or go on with it; `best` of the result is the checkpoint."""
    return train(small_config(corpus, out, epochs=epochs, seed=seed), progress)
