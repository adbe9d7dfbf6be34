"""Passes over the data in chunks: what a layer was given, its output Hessians, and sums of both."""
