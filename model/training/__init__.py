"""The tensors of training: objective, schedule, what learns, and its state on disk."""
