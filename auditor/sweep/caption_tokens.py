"""Tokenize captions, those of several sentences or of too many tokens in parts, and turn their texts into vectors.

A caption that fits into the context of the text encoder has the vector that the encoder gives it. That of a longer one
is the normalized mean of the vectors of its parts. The parts of either are kept, to be judged one by one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from auditor.sweep.caption_parts import (
    CHARACTERS_PER_TOKEN,
    MOST_PARTS,
    CaptionParts,
    may_have_sentences,
    split_caption,
)
from auditor.vectors import Bools, Floats, PartVectors, build_media_vectors
from model.backbone import Backbone
from model.encoding.device_calls import download

CUT_OFF = f"the caption has more than {MOST_PARTS} parts; the rest was not encoded"


class CaptionTexts(NamedTuple):
    """What the text encoder reads of a caption; the first four are named like their columns."""

    tokens: int  # of all texts
    truncated_caption: bool
    parts: int
    part_ends: str | None
    fits: bool  # whether the caption as a whole is one of the texts

    @property
    def rows(self) -> int:
        return self.fits + (self.parts if self.parts > 1 else 0)


@dataclass(frozen=True, slots=True)
class CaptionTokens:
    """The texts of captions, one after another: of each the whole, if it fits, then its parts, if there are several."""

    tokens: Tensor  # (T, L)
    captions: tuple[CaptionTexts, ...]

    def select(self, rows: Bools) -> "CaptionTokens":
        chosen = np.repeat(rows, [texts.rows for texts in self.captions])
        captions = (texts for texts, row in zip(self.captions, rows, strict=True) if row)
        return CaptionTokens(self.tokens[torch.from_numpy(chosen)], tuple(captions))


class CaptionVectors(NamedTuple):
    text: Floats  # (C, D)
    parts: PartVectors  # of the captions (C)


def tokenize_captions(backbone: Backbone, captions: Sequence[str]) -> CaptionTokens:
    """Tokenize captions. A caption of one sentence that fits is tokenized once."""
    longest = backbone.context_length * CHARACTERS_PER_TOKEN
    heads = [caption[:longest] for caption in captions]
    tokens = backbone.tokens(heads)
    counts = backbone.token_counts(tokens, heads)
    fits = [len(caption) <= longest and not cut for caption, (_, cut) in zip(captions, counts, strict=True)]
    split = [
        split_caption(caption, (lambda _: 0) if fit else backbone.count_tokens, backbone.context_length)
        if not fit or may_have_sentences(caption)
        else None
        for caption, fit in zip(captions, fits, strict=True)
    ]
    if all(parts is None or len(parts.ends) == 1 for parts in split):
        return CaptionTokens(tokens, tuple(CaptionTexts(*count, 1, None, True) for count in counts))
    rows = zip(captions, split, torch.split(tokens, 1), counts, fits, strict=True)
    described = [_tokenize_parts(backbone, *row) for row in rows]
    return CaptionTokens(torch.cat([part for part, _ in described]), tuple(texts for _, texts in described))


def tokenize_samples(backbone: Backbone, samples: Sequence[Sequence[str]]) -> list[CaptionTokens]:
    """Tokenize the captions of several samples together: much of the cost is that of a call."""
    if not samples:
        return []
    together = tokenize_captions(backbone, [caption for captions in samples for caption in captions])
    result, row, caption = [], 0, 0
    for captions in samples:
        texts = together.captions[caption : caption + len(captions)]
        rows = sum(text.rows for text in texts)
        result.append(CaptionTokens(together.tokens[row : row + rows], texts))
        row, caption = row + rows, caption + len(captions)
    return result


def _tokenize_parts(
    backbone: Backbone, caption: str, parts: CaptionParts | None, tokens: Tensor, count: tuple[int, bool], fits: bool
) -> tuple[Tensor, CaptionTexts]:
    if parts is None or len(parts.ends) == 1:
        return tokens, CaptionTexts(*count, 1, None, True)
    texts = parts.texts(caption)
    part_tokens = backbone.tokens(texts)
    ends = " ".join(map(str, parts.ends))
    if fits:
        return torch.cat([tokens, part_tokens]), CaptionTexts(count[0], False, len(texts), ends, True)
    total = sum(size for size, _ in backbone.token_counts(part_tokens, texts))
    return part_tokens, CaptionTexts(total, not parts.whole, len(texts), ends, False)


def encode_captions(backbone: Backbone, captions: Iterable[CaptionTokens]) -> CaptionVectors:
    """Vectors of captions and of their parts."""
    groups = list(captions)
    vectors = download(encode_texts(backbone, groups), backbone.dim)
    return arrange_vectors(vectors, [texts for group in groups for texts in group.captions])


def encode_texts(backbone: Backbone, groups: Sequence[CaptionTokens]) -> list[Tensor]:
    """Vectors of all texts on the device, without waiting for them: one tensor, or none if there are no texts."""
    return [backbone.encode_tokens(torch.cat([group.tokens for group in groups]))] if groups else []


def arrange_vectors(vectors: Floats, captions: Sequence[CaptionTexts]) -> CaptionVectors:
    """The vectors (T, D) of texts as those of captions and of parts."""
    fits = np.array([texts.fits for texts in captions], bool)
    sizes = np.array([texts.rows for texts in captions], np.int64)
    counts = sizes - fits
    if not counts.any():
        return CaptionVectors(vectors, PartVectors(vectors[:0].astype(np.float16), counts))
    first = np.cumsum(sizes) - sizes
    text, is_part = vectors[first], np.ones(len(vectors), bool)
    is_part[first[fits]] = False
    parts = vectors[is_part]
    text[~fits] = build_media_vectors(parts[np.repeat(~fits, counts)], counts[~fits], keep=False).visual
    return CaptionVectors(text, PartVectors(parts.astype(np.float16), counts))
