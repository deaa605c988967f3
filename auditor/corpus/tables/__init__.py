"""Corpora in tables: CSV, TSV, JSON lines, Parquet and JSON files of captions."""
