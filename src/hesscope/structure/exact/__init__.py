"""Exact blocks: what every layer was given and how the loss curves behind it, tile by tile."""
