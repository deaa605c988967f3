"""A learner with a tiny model, built when the module is imported: forked processes need not build it again."""

import tempfile
from pathlib import Path

from auditor.research.train.training_run import build_learner
from model.training.training_config import TrainConfig
from tests.support.training import write_model_config

with tempfile.TemporaryDirectory() as folder:
    model = write_model_config(Path(folder))
    LEARNER = build_learner(TrainConfig(corpus="none", out="none", model=model, device="cpu"))
