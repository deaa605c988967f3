"""Processes that can be killed: decoders, process pools, the encoder process."""
