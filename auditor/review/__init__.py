"""Guarantees from labels: which rows to judge, what the judgements prove, and a correction of p_mismatch."""
