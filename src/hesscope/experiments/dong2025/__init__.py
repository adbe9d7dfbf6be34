"""Dong, Zhang, Yao & Sun (2025): Towards Quantifying the Hessian Structure of Neural Networks."""

SOURCE = "Dong et al. 2025"
