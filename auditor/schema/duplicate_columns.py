"""Scores of the row among all others: its copies, how often its caption occurs, its topic, its place on the map."""

from functools import partial

from auditor.schema.column import Column

_score = partial(Column, group="score")

COPIES = (
    _score(
        "duplicate_of",
        "string",
        "Duplicate of",
        "uid of the one that stays of its group of duplicates; empty for that one",
        definition="the medium is a copy, exact or near, of another one; or the caption repeats one of its own medium",
        unique=True,
        hexadecimal=True,
    ),
    _score(
        "caption_count",
        "int32",
        "Times the caption occurs",
        "usable rows of the corpus with the same caption, but for case, punctuation and digits",
        suspicious="high",
        unit="rows",
        in_memory=True,
        rule="Keep captions that occur at most this often.",
        logarithmic=True,
    ),
    _score("topic", "int16", "Topic", "cluster of the medium's embedding", in_memory=True),
    _score(
        "map_x",
        "float32",
        "Map of media, across",
        "place of the medium on the map, -1 to 1",
        in_memory=True,
        definition="a sample laid out by its neighbours as UMAP does, the rest placed among it",
    ),
    _score("map_y", "float32", "Map of media, up", "place of the medium on the map, -1 to 1", in_memory=True),
    _score("map_text_x", "float32", "Map of captions, across", "the same for the caption", in_memory=True),
    _score("map_text_y", "float32", "Map of captions, up", "the same for the caption", in_memory=True),
)
