"""Pairs of vectors as no honest encoder writes them: all equal, opposite, orthogonal, one-hot, with copies."""

from collections.abc import Callable

import numpy as np

from tests.support.stored import Floats, make_pairs

Change = Callable[[Floats, Floats], tuple[Floats, Floats]]


def split_space(visual: Floats, text: Floats) -> tuple[Floats, Floats]:
    """Every medium is orthogonal to every caption."""
    zeros = np.zeros_like(visual)
    return np.hstack([visual, zeros]), np.hstack([zeros, text])


def write_one_hot(visual: Floats, text: Floats) -> tuple[Floats, Floats]:
    vectors = np.eye(len(visual), dtype=np.float32)
    return vectors, vectors


def repeat_first(rows: int) -> Change:
    """Only the first pairs, over and over."""

    def change(visual: Floats, text: Floats) -> tuple[Floats, Floats]:
        order = np.arange(len(visual)) % rows
        return visual[order], text[order]

    return change


def add_rounding(visual: Floats, text: Floats) -> tuple[Floats, Floats]:
    """One pair that other batches have rounded differently."""
    noise = np.random.default_rng(1).normal(0, 1e-7, visual.shape).astype(np.float32)
    return visual[:1] + noise, text[:1] - noise


def repeat_row(vectors: Floats) -> Floats:
    return np.repeat(vectors[:1], len(vectors), axis=0)


SHAPES: dict[str, Change] = {
    "equal": lambda visual, text: (repeat_row(visual), repeat_row(visual)),
    "constant": lambda visual, text: (repeat_row(visual), repeat_row(text)),
    "rounded": add_rounding,
    "all_opposite": lambda visual, text: (repeat_row(visual), -repeat_row(visual)),
    "opposite": lambda visual, text: (visual, -visual),
    "identical": lambda visual, text: (visual, visual),
    "orthogonal": split_space,
    "one_hot": write_one_hot,
    "one_dimension": lambda visual, text: (np.sign(visual[:, :1]), np.sign(text[:, :1])),
    "one_caption": lambda visual, text: (visual, repeat_row(text)),
    "two_captions": lambda visual, text: (visual, repeat_first(2)(visual, text)[1]),
    "one_medium": lambda visual, text: (repeat_row(visual), text),
    "copies": repeat_first(7),
    "half_zero": lambda visual, text: (visual * (np.arange(len(visual)) % 2)[:, None].astype(np.float32), text),
    "not_finite": lambda visual, text: (
        np.where(np.arange(len(visual))[:, None] % 3, visual, np.float32(np.nan)),
        text,
    ),
}


def make_degenerate_pairs(shape: str, count: int, dim: int = 16) -> tuple[Floats, Floats]:
    visual, text = SHAPES[shape](*make_pairs(count, dim))
    return np.ascontiguousarray(visual), np.ascontiguousarray(text)
