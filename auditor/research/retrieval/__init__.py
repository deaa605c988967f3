"""Retrieval metrics over stored embeddings: ranks, recall, re-ranking, the protocols of the benchmarks; NumPy only."""
