"""Blocks of a network's Hessian at random initialisation: how large they are (limits) and their spectra."""
