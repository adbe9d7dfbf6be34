"""Block norms from random products and random gradients, with standard errors."""
