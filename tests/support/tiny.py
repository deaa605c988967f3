"""A small generated corpus, a model trained on it and their audit, made once per session and shared by tests.

    from tests.support.tiny import tiny
    tiny().corpus, tiny().model, tiny().audit, tiny().truth

The corpus takes a few seconds, the model less than half a minute on two cores. Each is made on first use.
"""

import atexit
import shutil
import tempfile
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from auditor.demo.demo_corpus import read_truth
from auditor.demo.run_demo import (
    DemoConfig,
    audit_demo_corpus,
    generate_demo_corpus,
    train_demo_model,
)

SIZE, SEED = 300, 7


@dataclass
class Tiny:
    """Paths of the shared artifacts. Treat them as read-only."""

    config: DemoConfig

    @cached_property
    def shards(self) -> Path:
        """The folder with train/, val/ and audit/."""
        return generate_demo_corpus(self.config)

    @property
    def corpus(self) -> Path:
        """The shards with the planted defects."""
        return self.shards / "audit"

    @cached_property
    def truth(self) -> list[dict[str, Any]]:
        """One record for every row of an audit of `corpus`."""
        assert self.shards
        return read_truth(self.config.out)

    @cached_property
    def model(self) -> Path:
        """The checkpoint folder of a PAU trained end to end on train/."""
        return train_demo_model(self.config, self.shards)

    @cached_property
    def audit(self) -> Path:
        """The finished audit of `corpus` with `model`."""
        return audit_demo_corpus(self.config, self.shards, self.model)


@cache
def tiny() -> Tiny:
    folder = Path(tempfile.mkdtemp(prefix="tiny-demo-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Tiny(DemoConfig(folder / "demo", SIZE, 2 * SIZE, SEED, quiet=True))
