"""Video without torch: detect formats, choose frames, decode them, and measure motion."""
