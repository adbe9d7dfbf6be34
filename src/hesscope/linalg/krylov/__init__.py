"""Krylov spaces: one growing basis, when to restart and stop, and what might have been missed."""
