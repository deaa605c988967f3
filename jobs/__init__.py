"""The jobs for a Ray cluster: audit.py, apply.py, evaluate.py, train.py."""
