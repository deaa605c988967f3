"""Statistics of pairs against a bounded reference sample; NumPy only."""
