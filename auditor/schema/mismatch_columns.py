"""Scores of the pair: what speaks for and against the caption, and the probability that it does not belong."""

from functools import partial

from auditor.schema.column import Column

_score = partial(Column, group="score")

MISMATCH = (
    _score(
        "mismatch_score",
        "float32",
        "Mismatch score",
        "the statistic that p_mismatch is computed from; lower in shards full of mismatches",
        suspicious="low",
        in_memory=True,
        definition="sum of the evidence: similarity, rivals, neighbours, siblings, words (docs/method.md)",
    ),
    _score(
        "rival_margin",
        "float32",
        "Margin over rivals",
        "low where a better partner exists in the corpus, whether or not this one is right",
        suspicious="low",
        use="measurement",
        in_memory=True,
        definition="the pair's similarity less that of the rivals of both its sides",
    ),
    _score(
        "neighbour_agreement",
        "float32",
        "Captions of similar media",
        "how far the captions of the most similar media agree with this one; 0: as with any caption",
        suspicious="low",
        unit="deviations",
        definition="weighted mean similarity to them, in deviations above random re-pairings",
    ),
    _score(
        "sibling_agreement",
        "float32",
        "Other captions of the medium",
        "how far the medium's other captions agree with this one; empty where it has none",
        suspicious="low",
        unit="deviations",
        definition="similarity to them, weighed by how well they fit themselves, above random re-pairings",
    ),
    _score(
        "word_support",
        "float32",
        "Support of the weakest word",
        "how much the medium speaks for the caption's weakest word; empty where there are no words",
        suspicious="low",
        unit="deviations",
        definition="cosine of the word alone with the medium, in deviations over media",
    ),
    _score(
        "weakest_word",
        "string",
        "Weakest word",
        "the word of the caption that the medium speaks for least",
        use="detail",
    ),
    _score(
        "p_mismatch",
        "float32",
        "Probability of a mismatch",
        "that the caption does not describe the medium",
        suspicious="high",
        unit="probability",
        use="headline",
        place=1,
        in_memory=True,
        definition="local false discovery rate against random re-pairings of the corpus",
        short="mismatch",
        sentence="of pairs with such a score, {percent} do not belong together",
        rule="Keep pairs that are mismatched with at most this probability.",
        ties_by="mismatch_score",
    ),
    _score(
        "p_mismatch_without_labels",
        "float32",
        "Probability of a mismatch, without labels",
        "what p_mismatch was before `auditor certify --recalibrate` corrected it; empty where it has not",
        suspicious="high",
        unit="probability",
    ),
)
