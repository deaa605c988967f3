"""clip-retrieval's output: `clip-retrieval:FOLDER` with img_emb/, text_emb/ and metadata/, a file of each per part."""

import re

from auditor.corpus.corpus_spec import CLIP_RETRIEVAL, find_places
from auditor.corpus.file_names import natural
from auditor.corpus.shard import Corpus, CorpusError, CorpusOptions
from auditor.corpus.stored.npy_matrix import MatrixPlace
from auditor.corpus.stored.vector_shard import Roles
from auditor.corpus.stored.vector_shards import VectorFile, list_shards, sized_files

_METADATA = re.compile(r"metadata/metadata_(\w+)\.parquet$")


def open_clip_retrieval(spec: str, options: CorpusOptions) -> Corpus:
    """The parts that metadata/ names; a part without its embeddings is a failed shard."""
    place = find_places(spec.removeprefix(CLIP_RETRIEVAL))[0]
    sizes = sized_files(place.path) if place.folder else {}
    files = []
    for path in sorted(sizes, key=natural):
        if found := _METADATA.search(path):
            root = path[: found.start()]
            visual = f"{root}img_emb/img_emb_{found[1]}.npy"
            text = f"{root}text_emb/text_emb_{found[1]}.npy"
            files.append(VectorFile(path, MatrixPlace(visual), MatrixPlace(text), sizes.get(visual, 0)))
    if not files:
        raise CorpusError(
            f"{spec}: no metadata/metadata_0.parquet there, beside img_emb/ and text_emb/; "
            "clip-retrieval writes it with --enable_metadata or --enable_text"
        )
    key = options.key_column or "image_path"
    roles = Roles(options.caption_column or "caption", None, key, "image_path", "width", "height", None)
    return list_shards(spec, place.path, files, roles)
