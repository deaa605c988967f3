"""The commands of the group 'Train and evaluate' of `auditor --help`."""
