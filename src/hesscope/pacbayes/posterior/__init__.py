"""The Gaussian posterior of a network: bases, draws, optimisation and certificate (needs torch)."""
