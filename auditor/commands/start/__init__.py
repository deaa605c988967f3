"""The commands of the group 'Start' of `auditor --help`."""
