"""Questions to an audit, answered by DuckDB in a sandbox; no torch, no Ray."""
