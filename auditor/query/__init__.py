"""Queries on an audit, run by DuckDB in a sandbox; no torch, no Ray."""
