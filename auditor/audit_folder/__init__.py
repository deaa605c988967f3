"""The files of an audit: atomic writes, the manifest, the lock, checksums and embeddings."""
