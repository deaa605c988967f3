"""The map of a corpus: a bounded sample of its media and of its captions, laid out once and kept in map.parquet.

Every row is placed among the sample (columns map_x, map_y, map_text_x, map_text_y). A layout that is kept is used again
for the same sample, so that shards that are added later, on whatever machine, stand on the same map.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from auditor.audit_folder.folder import Folder
from auditor.score.pair_sample import Pairs
from auditor.score.statistics.map_layout import Layout, fit_layout
from auditor.vectors import Floats, Ints

FILE = "map.parquet"
SAMPLE = 2048  # media, and as many captions


@dataclass(frozen=True)
class CorpusMap:
    """Where things lie on the two maps."""

    media: Layout
    captions: Layout

    def place(self, pairs: Pairs) -> dict[str, Floats]:
        """The map columns of pairs; a medium with several captions is placed once."""
        _, first, which = np.unique(pairs.group, return_index=True, return_inverse=True)
        media = self.media.place(pairs.visual[first])[which]
        captions = self.captions.place(pairs.text)
        return {
            "map_x": media[:, 0],
            "map_y": media[:, 1],
            "map_text_x": captions[:, 0],
            "map_text_y": captions[:, 1],
        }

    @property
    def fingerprint(self) -> str:
        return mark_of(self.media.position, self.captions.position)


def lay_out(folder: Folder, pairs: Sequence[Pairs], seed: int, *, keep: bool) -> CorpusMap:
    """The map of these pairs of all kinds: the one that is kept, or a new one."""
    visual = np.concatenate([one.visual[np.sort(np.unique(one.group, return_index=True)[1])] for one in pairs])
    visual = visual[spread(len(visual))]
    text = np.concatenate([one.text for one in pairs])
    text = text[spread(len(text))]
    mark = mark_of(visual, text)
    if folder.table_metadata(FILE).get("mark") == mark:
        kept = folder.read_table(FILE)
        position = np.stack([kept["x"].to_numpy(), kept["y"].to_numpy()], axis=1)
        return CorpusMap(Layout(visual, position[: len(visual)]), Layout(text, position[len(visual) :]))
    made = CorpusMap(fit_layout(visual, seed), fit_layout(text, seed))
    if keep:
        x, y = np.concatenate([made.media.position, made.captions.position]).T
        folder.write_table(FILE, pa.table({"x": x, "y": y}), {"mark": mark})
    return made


def spread(rows: int) -> Ints:
    """At most SAMPLE places, evenly among so many."""
    return np.unique(np.linspace(0, rows - 1, min(rows, SAMPLE)).astype(np.int64))


def mark_of(*arrays: Floats) -> str:
    mark = hashlib.blake2b(digest_size=16)
    for array in arrays:
        mark.update(np.ascontiguousarray(array).tobytes())
    return mark.hexdigest()
