"""DataComp's metadata: `datacomp:FOLDER`, in which NAME.parquet has the rows and NAME.npz the CLIP features of each."""

from auditor.corpus.corpus_spec import DATACOMP, find_places
from auditor.corpus.file_names import natural
from auditor.corpus.shard import Corpus, CorpusError, CorpusOptions
from auditor.corpus.stored.npy_matrix import MatrixPlace
from auditor.corpus.stored.vector_shard import Roles
from auditor.corpus.stored.vector_shards import VectorFile, list_shards, sized_files

ROLES = Roles("text", "uid", "uid", "url", "original_width", "original_height", "sha256")
FEATURES = "l14"  # of b32 and l14, the better


def open_datacomp(spec: str, options: CorpusOptions) -> Corpus:
    """Every Parquet file under the folder with the .npz beside it; one that is missing is a failed shard."""
    place = find_places(spec.removeprefix(DATACOMP))[0]
    if not place.folder:
        raise CorpusError(f"{spec}: name the folder with the .parquet and .npz files")
    sizes = sized_files(place.path)
    tables = sorted((path for path in sizes if path.endswith(".parquet")), key=natural)
    if not tables:
        raise CorpusError(f"{spec}: no .parquet file there")
    features = options.features or FEATURES
    files = []
    for path in tables:
        npz = path.removesuffix(".parquet") + ".npz"
        sides = MatrixPlace(npz, f"{features}_img"), MatrixPlace(npz, f"{features}_txt")
        files.append(VectorFile(path, *sides, sizes.get(npz, 0)))
    return list_shards(spec, place.path, files, ROLES)
