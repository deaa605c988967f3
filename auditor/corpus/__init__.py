"""Read corpora: list their samples and find the bytes of each one."""
