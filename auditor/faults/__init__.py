"""Faults that come in patterns: found in stored embeddings, in the order of the corpus, and repaired."""
