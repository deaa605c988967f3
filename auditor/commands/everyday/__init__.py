"""The commands of the group 'Everyday' of `auditor --help`."""
