"""The commands of the group 'Score and verify' of `auditor --help`."""
