"""Hessians of generalised linear models: the law of their weights, spikes, phase transitions, simulations."""
