"""The model behind the vectors of an audit, as the rest of the auditor sees it: a Backbone or a StoredModel."""

import json
from typing import Any, Protocol

from auditor.corpus.corpus_files import digest
from auditor.sweep.caption_parts import PART_RULES
from auditor.sweep.sweep_config import SweepConfig


class CorpusModel(Protocol):
    """A model that encodes media, or the record of a model whose stored vectors are audited."""

    @property
    def fingerprint(self) -> str: ...

    @property
    def dim(self) -> int: ...

    @property
    def encodes_media(self) -> bool: ...  # False for stored vectors: there is nothing to decode or encode

    def describe(self) -> dict[str, Any]:
        """The model's entries in the manifest; they replace sweep settings of the same name."""


def fingerprint_sweep(model: CorpusModel, config: SweepConfig) -> str:
    """A fingerprint of everything that determines a shard's embeddings, apart from the shard itself."""
    settings = config.measured_settings() if model.encodes_media else {}
    meaning = {"model": model.fingerprint, "pixels": model.describe()["pixels"], "part_rules": PART_RULES, **settings}
    return digest(json.dumps(meaning, sort_keys=True).encode())
