"""What a Ray cluster runs: audit.py, train.py, evaluate.py."""
