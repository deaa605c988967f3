"""The commands of the group 'Repair and export' of `auditor --help`."""
