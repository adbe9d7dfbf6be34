"""Curvature along a run of training, in any loop: what is read, how often, and where it is written."""
