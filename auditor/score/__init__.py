"""Scoring: corpus-wide statistics from stored embeddings, then samples/<shard>.parquet."""
