"""Edges of stability of real optimisers, measured: full-batch runs, spikes on either side, layers that bind."""
