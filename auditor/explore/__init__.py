"""Exploring an audit: its parts compared, its map, queues of rows to review, and how well reviewers agree."""
