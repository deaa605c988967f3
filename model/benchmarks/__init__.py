"""Benchmarks: reading the files people have, the protocol of each, and the paper's analyses. Imports nothing."""
