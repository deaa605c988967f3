"""Runs whole audits: sweep and score, on this machine or on Ray; extend; score again; verify."""
