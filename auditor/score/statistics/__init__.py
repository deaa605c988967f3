"""Statistics of pairs relative to a bounded reference sample; NumPy only."""
