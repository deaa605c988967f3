"""Captions as texts of the encoder, and their vectors, against encoding every text by itself."""

import numpy as np
import pytest

from auditor.sweep.caption_tokens import encode_captions, tokenize_captions
from model.backbone import Backbone
from model.checkpoint import load_model

LONG = " ".join(["A dog runs on a wide and sandy beach."] * 3 + ["A man in a red hat watches it from the pier."] * 2)
CAPTIONS = ("a dog", "A dog runs. A man watches.", LONG, "", "word " * 100)


@pytest.fixture(scope="module")
def backbone(random_model: str) -> Backbone:
    return load_model(random_model).backbone


def test_only_several_sentences_or_too_many_tokens_make_parts(backbone: Backbone) -> None:
    texts = tokenize_captions(backbone, CAPTIONS).captions
    assert [(text.parts, text.fits, text.truncated_caption) for text in texts] == [
        (1, True, False),
        (2, True, False),
        (5, False, False),
        (1, True, False),
        (6, False, False),
    ]
    assert [text.part_ends is None for text in texts] == [True, False, False, True, False]
    assert texts[0].tokens == 4 and texts[1].tokens == 10
    assert texts[4].tokens == 100 + 2 * 6


def test_captions_of_one_part_are_tokenized_as_before(backbone: Backbone) -> None:
    captions = ("a dog", "a cat on a mat.")
    made = tokenize_captions(backbone, captions)
    np.testing.assert_array_equal(made.tokens.numpy(), backbone.tokens(captions).numpy())
    vectors = encode_captions(backbone, [made])
    np.testing.assert_allclose(vectors.text, backbone.encode_texts(captions).numpy(), atol=1e-6)
    assert not vectors.parts.counts.any() and len(vectors.parts.vectors) == 0


def test_vectors_are_those_of_the_texts_and_their_means(backbone: Backbone) -> None:
    vectors = encode_captions(
        backbone, [tokenize_captions(backbone, CAPTIONS[:2]), tokenize_captions(backbone, CAPTIONS[2:])]
    )
    assert vectors.parts.counts.tolist() == [0, 2, 5, 0, 6]
    whole = backbone.encode_texts([CAPTIONS[row] for row in (0, 1, 3)]).numpy()
    np.testing.assert_allclose(vectors.text[[0, 1, 3]], whole, atol=1e-5)
    sentences = backbone.encode_texts(["A dog runs.", "A man watches."]).numpy()
    np.testing.assert_allclose(vectors.parts.take([1]).vectors, sentences, atol=1e-3)
    mean = backbone.encode_texts([f"{text}." for text in LONG[:-1].split(". ")]).numpy().sum(axis=0)
    np.testing.assert_allclose(vectors.text[2], mean / np.linalg.norm(mean), atol=1e-5)


def test_selected_captions_keep_their_texts(backbone: Backbone) -> None:
    made = tokenize_captions(backbone, CAPTIONS)
    rows = np.array([False, True, False, False, True])
    part = made.select(rows)
    assert part.captions == (made.captions[1], made.captions[4])
    one, all_rows = encode_captions(backbone, [part]), encode_captions(backbone, [made])
    np.testing.assert_allclose(one.text, all_rows.text[rows], atol=1e-5)
    np.testing.assert_array_equal(one.parts.counts, all_rows.parts.counts[rows])


def test_nothing_to_encode_gives_no_vectors(backbone: Backbone) -> None:
    vectors = encode_captions(backbone, [])
    assert vectors.text.shape == (0, backbone.dim) == vectors.parts.vectors.shape


def test_a_tokenizer_that_counts_no_tokens_still_splits(backbone: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokenizers of Hugging Face models have no `encode`: only what fills the context is known to be too long."""

    class Padded:
        def __call__(self, texts: list[str]) -> object:
            return tokenizer(texts)

    tokenizer = backbone.tokenizer
    monkeypatch.setattr(backbone, "tokenizer", Padded())
    made = tokenize_captions(backbone, CAPTIONS)
    assert [text.parts for text in made.captions[:4]] == [1, 2, 5, 1] and made.captions[4].parts >= 5
    assert (made.tokens[-made.captions[4].parts :, -1] == 0).all()  # none fills the context
