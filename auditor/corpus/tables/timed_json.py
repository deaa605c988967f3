"""Timed captions by video: `timed:train.json::videos`, a JSON object with an entry for the id of each video.

As ActivityNet has them (`timestamps` with [start, end] and `sentences`) and as HowTo100M has them (`start`, `end` and
`text`, a list each). Files are found by their id.
"""

from typing import Any

from auditor.corpus.caption_text import safe_text
from auditor.corpus.corpus_spec import TIMED
from auditor.corpus.shard import Corpus, CorpusError, CorpusOptions
from auditor.corpus.tables.entry_shard import Entry
from auditor.corpus.tables.json_list import open_json_list
from auditor.corpus.timed_captions import cell_spans, timed_texts

FORM = '{"timestamps": [[0, 1]], "sentences": [""]} or {"start": [0], "end": [1], "text": [""]}'
TEXTS = ("sentences", "text", "captions")


def open_timed_json(spec: str, options: CorpusOptions) -> Corpus:
    return open_json_list(spec, TIMED, options, _entries)


def _entries(record: Any, path: str) -> list[Entry]:
    if not isinstance(record, dict) or not record:
        raise CorpusError(f"{path} is not an object with an entry for each video's id: {FORM}")
    return [_entry(row, safe_text(video), fields) for row, (video, fields) in enumerate(record.items())]


def _entry(row: int, video: str, fields: Any) -> Entry:
    """A video with its captions; what is not in the form is a row that says so."""
    known = fields if isinstance(fields, dict) else {}
    texts = next((known[name] for name in TEXTS if isinstance(known.get(name), list)), None)
    if texts is None:
        return Entry(row, video, (), key=video, defect=f"its entry is not {FORM}")
    start, end = (known["start"], known.get("end", "")) if "start" in known else (known.get("timestamps"), None)
    said = timed_texts(texts, cell_spans(start, end) if start is not None else ())
    return Entry(row, video, tuple(text for _, text, _ in said), key=video, spans=tuple(span for *_, span in said))
