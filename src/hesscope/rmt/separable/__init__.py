"""The law of (1/n) Σ g_i x_i x_iᵀ: populations, the fixed point, the gaps of the support, and the law itself."""
