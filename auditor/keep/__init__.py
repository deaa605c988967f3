"""The part of a corpus to keep: rules and their effects, thresholds, subsets, weights and exports."""
