"""The embedded default: a drawn corpus with known defects, a small model trained on it, a check of its audit."""
