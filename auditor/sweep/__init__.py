"""The expensive pass: decodes and encodes a shard and writes embeddings/<shard>.parquet."""
