"""Experiments of "Cracking the Hessian: closed-form Hessian spectra for fundamental neural networks"."""

PAPER = "Cracking the Hessian"
