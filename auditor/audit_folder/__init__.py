"""The audit folder: files written whole, the manifest, the lock, embeddings, and which files there are."""
