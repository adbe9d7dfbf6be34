"""Runs that stop and go on: what is kept of them, and whose it is."""
