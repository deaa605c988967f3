"""An audit as one HTML file, and the drawings in it."""
