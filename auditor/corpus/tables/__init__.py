"""Corpora that are tables: CSV, TSV, JSONL, Parquet, COCO's JSON."""
