"""The expensive pass: decode and encode a shard, write embeddings/<shard>.parquet."""
