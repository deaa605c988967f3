"""The demo: a drawn corpus with known defects, a small model trained on it, and a check of its audit."""
