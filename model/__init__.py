"""Tensors: PAU and its losses, encoders, pixels, video frames and training. Importing the package imports no torch."""
