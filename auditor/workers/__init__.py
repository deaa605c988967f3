"""Bytes to pixels in processes that can be killed."""
