"""Captions that describe nothing ("a photo of something"), recognized by examples in the space of the encoder.

Such captions fit no medium better than another, but a similarity does not show it: an encoder treats "a scene" as a
clear statement. Linear discriminants separate examples of them from each kind of other captions: the corpus's own,
examples of short clear ones, of other languages, and of texts that are no captions. The smallest of the discriminants
counts, so that a file name or a foreign sentence, which is unlike the corpus too, is not taken for a vague caption.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from auditor.vectors import Floats

RIDGE = 0.03  # share of the mean variance that is added to each direction
ROUNDS = 3  # of leaving out the corpus's own vague captions
LINE = 0.4  # vagueness from which a caption is vague; 0 is the mean of the corpus, 1 that of the examples
SHORT_CAPTION = 8  # words; the vagueness of a caption with twice as many is halved
FOLDS = 4
LEAST_ACCURACY = 0.8  # of telling vague examples from clear ones; below it, the encoder does not know the words


@dataclass(frozen=True, slots=True)
class VagueCaptions:
    """One discriminant per kind of other captions: 0 for the mean of that kind, 1 for that of the vague examples."""

    weights: Floats  # (D, C)
    offsets: Floats  # (C,)

    def measure(self, text: Floats, words: Floats | None = None) -> Floats:
        """Vagueness (N,) of captions (N, D) with these numbers of words, of which many cannot say nothing."""
        vagueness = (text @ self.weights - self.offsets).min(axis=1)
        if words is not None:
            vagueness = vagueness * np.minimum(1, SHORT_CAPTION / np.maximum(words, 1))
        return np.asarray(vagueness, np.float32)


def fit_vague_captions(text: Floats, vague: Floats, examples: Mapping[str, Floats]) -> VagueCaptions | None:
    """Fit to the captions (N, D) of a corpus; None if this encoder cannot tell vague examples from clear ones.

    `examples` are those of other captions by kind, among them "clear".
    """
    if estimate_accuracy(vague, examples) < LEAST_ACCURACY:
        return None
    text, kinds = np.unique(text, axis=0), list(examples.values())
    model = fit_discriminants(vague, kinds)
    for _ in range(ROUNDS):
        model = fit_discriminants(vague, kinds, text[model.measure(text) < LINE])
    return model


def estimate_accuracy(vague: Floats, examples: Mapping[str, Floats]) -> float:
    """Cross-validated probability (AUROC) that a vague example has a higher vagueness than a clear one."""
    of_vague, of_clear = np.zeros(len(vague)), np.zeros(len(examples["clear"]))
    for fold in range(FOLDS):
        train = [rows[np.arange(len(rows)) % FOLDS != fold] for rows in (vague, *examples.values())]
        model = fit_discriminants(train[0], train[1:])
        of_vague[fold::FOLDS] = model.measure(vague[fold::FOLDS])
        of_clear[fold::FOLDS] = model.measure(examples["clear"][fold::FOLDS])
    return float((of_vague[:, None] > of_clear).mean())


def fit_discriminants(vague: Floats, examples: Sequence[Floats], corpus: Floats | None = None) -> VagueCaptions:
    """Fisher's discriminants with one covariance within kinds; captions of the corpus have half the weight."""
    kinds = [np.asarray(rows, np.float64) for rows in (vague, *examples)]
    covariance = np.mean([np.cov(rows.T, bias=True) for rows in kinds], axis=0)
    if corpus is not None and len(corpus) > 1:
        covariance = (covariance + np.cov(corpus.T.astype(np.float64), bias=True)) / 2
        kinds.append(np.asarray(corpus, np.float64))
    covariance += (RIDGE * np.trace(covariance) / len(covariance) + 1e-9) * np.eye(len(covariance))
    means = np.stack([rows.mean(axis=0) for rows in kinds])
    weights = np.linalg.solve(covariance, (means[:1] - means[1:]).T)  # (D, C)
    start, end = np.einsum("cd,dc->c", means[1:], weights), means[0] @ weights
    gap = np.maximum(end - start, 1e-9)
    return VagueCaptions(np.asarray(weights / gap, np.float32), np.asarray(start / gap, np.float32))
