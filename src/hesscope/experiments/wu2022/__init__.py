"""Wu et al. (2022), Dissecting Hessian: layer-wise Hessians as Kronecker products."""
