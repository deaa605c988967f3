"""Videos without torch: which bytes are one, which frames to take, their pixels, and what moves in them."""
