"""The commands of the group 'Look closer' of `auditor --help`."""
