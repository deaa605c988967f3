"""Corpora of stored embeddings: DataComp's metadata, clip-retrieval's output, Parquet with vectors."""
