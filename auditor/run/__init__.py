"""A whole audit: sweep and score, here or on Ray; score again; verify."""
