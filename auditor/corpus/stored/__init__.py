"""Corpora that are embeddings already: DataComp's metadata, clip-retrieval's output, Parquet with vectors."""
