"""What to keep of a corpus: rules and their effects, subsets, exports."""
