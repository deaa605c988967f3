"""Tokenize captions with open_clip's own tokenizer, but each word only once.

open_clip repairs, cleans and splits every caption in Python: 25 to 50 microseconds for a short one. No rule of it looks
beyond a blank, and the repairs leave printable ASCII without HTML entities as it is. The tokens of the words of such
captions are kept, and all others go to open_clip.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from model.clip_import import open_clip

MOST_WORDS = 1 << 17  # kept; then the words are collected anew
LONGEST_WORD = 32  # kept: longer ones are URLs and the like, which do not come again
CLEANERS = ("_clean_lower", "_clean_whitespace")  # of open_clip: those that change nothing but case and blanks


class WordTokenizer:
    """The tokens of an open_clip tokenizer. Thread-safe."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.words: dict[str, list[int]] = {}
        self.keeps_words = (
            type(tokenizer) is open_clip.tokenizer.SimpleTokenizer
            and tokenizer.reduction_fn is None
            and tokenizer.clean_fn.__name__ in CLEANERS
        )

    def tokenize(self, captions: Sequence[str]) -> Tensor:
        """Tokens (B, L) at full width."""
        if not self.keeps_words:
            return self.tokenizer(list(captions))  # type: ignore[no-any-return]
        first, last, width = self.tokenizer.sot_token_id, self.tokenizer.eot_token_id, self.tokenizer.context_length
        tokens = np.zeros((len(captions), width), np.int64)
        for row, caption in zip(tokens, captions, strict=True):
            ids = [first, *self.encode(caption)][: width - 1]
            row[: len(ids)] = ids
            row[len(ids)] = last
        return torch.from_numpy(tokens)

    def encode(self, caption: str) -> list[int]:
        """The tokens of a caption without start and end, in a tokenizer that keeps words."""
        if not caption.isascii() or not caption.isprintable() or "&" in caption:
            return self.tokenizer.encode(caption)  # type: ignore[no-any-return]
        ids: list[int] = []
        for word in caption.split():
            if (part := self.words.get(word)) is None:
                part = self.tokenizer.encode(word)
                if len(self.words) >= MOST_WORDS:
                    self.words.clear()
                if len(word) <= LONGEST_WORD:
                    self.words[word] = part
            ids += part
        return ids
