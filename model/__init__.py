"""Tensors: PAU and its losses, decoding media, training, retrieval metrics. Importing the package imports no torch."""
