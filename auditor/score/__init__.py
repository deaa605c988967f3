"""The cheap pass: corpus-wide statistics from embeddings, then samples/<shard>.parquet."""
