"""The contribution of each prototype to an uncertainty, computed from the stored head without torch.

The same formulas as model/evidence.py (equations 2 and 3) in NumPy, for one instance.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from auditor.audit_folder.folder import Folder
from auditor.audit_folder.json_validation import NUMBER, SCORE_AGAIN, CompleteShape, read_valid_json
from auditor.errors import AuditorError
from auditor.vectors import Floats, MediaVectors, normalize_rows


class HeadFileError(AuditorError):
    """The head of an audit cannot be read."""


@dataclass(frozen=True, slots=True)
class PrototypeBelief:
    """One prototype of the other modality; the `belief` of all prototypes sums to the uncertainty."""

    prototype: int
    cosine: float
    belief: float
    like: str | None = None  # nearest neighbor: a caption for a text prototype, the key of a medium for a visual one


@dataclass(frozen=True)
class StoredHead:
    """Prototypes (K, D) of both banks, L2-normalized, and the settings of the evidence."""

    visual: Floats
    text: Floats
    settings: dict[str, Any]

    def of_visual(self, medium: MediaVectors) -> list[PrototypeBelief]:
        """Return the beliefs of a single medium, which come from the text prototypes.

        The cosine of a clip is twice that of its best frame less the mean of its frames, as in
        `model.prototypes.gather_frame_logits`; that of a head fitted on mean vectors is the clip's.
        """
        cosines = self.text @ medium.visual[0]
        frames = None if medium.frames is None or medium.mask is None else medium.frames[0][medium.mask[0]]
        if frames is not None and len(frames) and self.settings.get("clip_evidence") == "frames":
            by_frame = frames @ self.text.T  # (J, K)
            cosines = 2 * by_frame.max(axis=0) - by_frame.mean(axis=0)
        return compute_belief_masses(cosines, self.settings, self.settings.get("center_visual", 0.0))

    def of_text(self, vector: Floats) -> list[PrototypeBelief]:
        """Return the beliefs of a caption, which come from the visual prototypes."""
        return compute_belief_masses(self.visual @ vector, self.settings, self.settings.get("center_text", 0.0))


SETTINGS = dict.fromkeys(("scale", "tau", "center_visual", "center_text"), NUMBER)
HEAD_SHAPE = CompleteShape(head={**SETTINGS, "evidence": str, "clip_evidence": str})


def load_stored_head(folder: Folder) -> StoredHead | None:
    """Load the head that scored an audit; None if it was not stored."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        config = read_valid_json(folder, "head/config.json", HEAD_SHAPE, SCORE_AGAIN)
        tensors = load(folder.read_bytes("head/head.safetensors"))
        visual, text = (normalize_rows(tensors[bank]) for bank in ("visual", "text"))
        if visual.ndim != 2 or visual.shape != text.shape:
            raise ValueError(f"prototypes of the shapes {visual.shape} and {text.shape}")
        return StoredHead(visual, text, config["head"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise HeadFileError(f"the head of {folder.url} cannot be read: {error}") from None


def compute_belief_masses(cosines: Floats, settings: dict[str, Any], center: float) -> list[PrototypeBelief]:
    """Compute b_k = e_k / S for each prototype, the largest first."""
    logits = float(settings.get("scale", 100.0)) * (cosines.astype(np.float64) - center)
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
