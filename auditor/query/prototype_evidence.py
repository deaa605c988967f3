"""Which prototypes an uncertainty comes from, read from the stored head without torch.

The same formulas as model/evidence.py (equations 2 and 3) in NumPy, for one instance.
"""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from auditor.audit_folder.folder import Folder
from auditor.errors import AuditorError
from auditor.vectors import Floats


class HeadFileError(AuditorError):
    """The head of an audit cannot be read."""


@dataclass(frozen=True, slots=True)
class PrototypeBelief:
    """One prototype of the other modality and what it adds: `belief` of all prototypes sums to the uncertainty."""

    prototype: int
    cosine: float
    belief: float
    like: str | None = None  # what is nearest to it: a caption to a text prototype, the key of a medium to a visual one


@dataclass(frozen=True)
class StoredHead:
    """Prototypes (K, D) of both banks, L2-normalised, and the settings of the evidence."""

    visual: Floats
    text: Floats
    settings: dict[str, Any]

    def of_visual(self, vector: Floats) -> list[PrototypeBelief]:
        """Beliefs of a medium, which faces the text prototypes."""
        return belief_masses(self.text @ vector, self.settings, self.settings.get("center_visual", 0.0))

    def of_text(self, vector: Floats) -> list[PrototypeBelief]:
        """Beliefs of a caption, which faces the visual prototypes."""
        return belief_masses(self.visual @ vector, self.settings, self.settings.get("center_text", 0.0))


def load_head(folder: Folder) -> StoredHead | None:
    """The head that scored an audit; None where it was not kept."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        config = json.loads(folder.read_bytes("head/config.json"))
        tensors = load(folder.read_bytes("head/head.safetensors"))
        return StoredHead(unit(tensors["visual"]), unit(tensors["text"]), config["head"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise HeadFileError(f"the head of {folder.url} cannot be read: {error}") from None


def unit(vectors: Any) -> Floats:
    given = np.asarray(vectors, np.float32)
    return np.asarray(given / np.maximum(np.linalg.norm(given, axis=-1, keepdims=True), 1e-12), np.float32)


def belief_masses(cosines: Floats, settings: dict[str, Any], centre: float) -> list[PrototypeBelief]:
    """b_k = e_k / S for each prototype, the strongest first."""
    logits = float(settings.get("scale", 100.0)) * (cosines.astype(np.float64) - centre)
    kind = settings.get("evidence", "exp")
    if kind == "exp":
        scaled = logits / float(settings.get("tau", 5.0))
        top = max(float(scaled.max()), 0.0)
        weight = np.exp(scaled - top)
        belief = weight / (weight.sum() + len(weight) * np.exp(-top))
    else:
        evidence = np.maximum(logits, 0) if kind == "relu" else np.logaddexp(0, logits)
        belief = evidence / (evidence.sum() + len(evidence))
    order = np.argsort(-belief, kind="stable")
    return [PrototypeBelief(int(k), float(cosines[k]), float(belief[k])) for k in order]
