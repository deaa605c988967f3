"""Columns that are not ours: joined from files, computed by functions; beside an audit's rows, never in them."""
