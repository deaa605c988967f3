"""Facts of captions and pixels that need no model: cheap, and the same in every corpus."""
