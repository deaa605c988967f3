"""Retrieval benchmarks: packing, encoding, measuring, and the paper's analyses."""
