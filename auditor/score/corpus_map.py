"""The map of a corpus: a bounded sample of its media and captions, laid out once and stored in map.parquet.

Every row is placed among the sample (columns map_x, map_y, map_text_x, map_text_y). The stored layout is reused for the
same sample, so that shards that are added later, on any machine, are placed on the same map.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from auditor.audit_folder.folder import Folder, StorageError
from auditor.corpus.corpus_files import digest
from auditor.score.pair_sample import EncodedPairs
from auditor.score.statistics.map_layout import Layout, fit_layout
from auditor.vectors import Floats, Ints

FILE = "map.parquet"
SCHEMA = pa.schema([("x", pa.float32()), ("y", pa.float32())])
SAMPLE = 2048  # upper limit for media and for captions


@dataclass(frozen=True)
class CorpusMap:
    """The maps of media and of captions."""

    media: Layout
    captions: Layout

    def place(self, pairs: EncodedPairs) -> dict[str, Floats]:
        """The map columns of pairs. A medium with several captions is placed once."""
        _, first, medium = np.unique(pairs.group, return_index=True, return_inverse=True)
        media = self.media.place(pairs.visual[first])[medium]
        captions = self.captions.place(pairs.text)
        return {"map_x": media[:, 0], "map_y": media[:, 1], "map_text_x": captions[:, 0], "map_text_y": captions[:, 1]}

    @property
    def fingerprint(self) -> str:
        return digest(self.media.position.tobytes() + self.captions.position.tobytes())


def fit_map(folder: Folder, pairs: Sequence[EncodedPairs], seed: int, *, keep: bool) -> CorpusMap:
    """The map of these pairs of all kinds: the stored one if the sample is the same, or a new one."""
    visual = np.concatenate([part.visual[np.sort(np.unique(part.group, return_index=True)[1])] for part in pairs])
    visual = visual[space_evenly(len(visual))]
    text = np.concatenate([part.text for part in pairs])
    text = text[space_evenly(len(text))]
    mark = digest(visual.tobytes() + text.tobytes())
    position = _read_positions(folder, mark)
    if position is not None and len(position) == len(visual) + len(text):
        return CorpusMap(Layout(visual, position[: len(visual)]), Layout(text, position[len(visual) :]))
    corpus_map = CorpusMap(fit_layout(visual, seed), fit_layout(text, seed))
    if keep:
        x, y = np.concatenate([corpus_map.media.position, corpus_map.captions.position]).T
        folder.write_table(FILE, pa.table({"x": x, "y": y}), {"mark": mark})
    return corpus_map


def _read_positions(folder: Folder, mark: str) -> Floats | None:
    """Return the stored positions of the same sample; None if there are none, or damaged ones."""
    if folder.table_metadata(FILE).get("mark") != mark:
        return None
    with suppress(StorageError):
        table = folder.read_table(FILE, schema=SCHEMA)
        position: Floats = np.nan_to_num(np.stack([table["x"].to_numpy(), table["y"].to_numpy()], axis=1))
        return position
    return None


def space_evenly(count: int) -> Ints:
    """At most SAMPLE rows, evenly spaced among `count`."""
    return np.unique(np.linspace(0, count - 1, min(count, SAMPLE)).astype(np.int64))
