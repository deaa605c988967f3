"""Training PAU on corpora: the loader, the run, validation."""
