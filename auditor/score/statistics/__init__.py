"""Statistics of pairs relative to a bounded reference sample; NumPy and SciPy only."""
