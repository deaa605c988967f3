"""Choose what to train on: similarity to a target set, prompts, balance."""
