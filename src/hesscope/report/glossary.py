"""The words of a report, each in a sentence or two: part of the page, and a page of the documentation."""

from __future__ import annotations

GLOSSARY = {
    "Hessian H": "The matrix of second derivatives of the loss in the parameters: how the gradient changes along every direction.",
    "eigenvalue λ": "The curvature along one direction (its eigenvector). λ_max is the steepest, λ_min the most negative.",
    "sharpness": "λ_max. Gradient descent with a step above 2 / λ_max grows along that direction.",
    "trace": "The sum of all eigenvalues: the total curvature, and n times their mean.",
    "spectrum, density": "How the eigenvalues are spread. A density is estimated from random vectors and carries an error.",
    "bulk": "The many eigenvalues close to zero: directions along which the loss is flat.",
    "outliers": "The few large eigenvalues that stand apart from the bulk; for classifiers often one fewer than classes.",
    "negative mass": "The share of eigenvalues below zero by more than rounding: directions in which the loss curves down.",
    "Gauss-Newton G": "The part of H that the curvature of the loss gives through a linearised network; never negative for usual losses.",
    "functional Hessian R": "H − G: the curvature of the network itself, weighted by the residuals.",
    "Fisher matrix": "The covariance of gradients when labels are drawn from the model; equals G for log-likelihoods.",
    "block": "The part of H between two groups of parameters: layers, neurons, classes or heads.",
    "Frobenius norm ‖H‖_F": "The root of the sum of all squared entries, which is that of all squared eigenvalues.",
    "stable rank": "‖H‖_F² / λ_max²: how many directions share the curvature; 1 if a single one carries it.",
    "Kronecker product E[M] ⊗ E[xxᵀ]": "Two small matrices, of a layer's outputs and inputs, that stand for its Hessian in K-FAC and Shampoo.",
    "overlap": "How much two spaces have in common: 1 if they are the same, 0 if they are perpendicular.",
    "residual": "‖Hv − λv‖ of an eigenpair: an eigenvalue of H lies that close to λ.",
    "standard error ±": "What a repetition with other random vectors would change, in the root mean square; 0 or “exact” where nothing was drawn.",
    "product": "One multiplication H v, which costs about two gradients over all data; what every method here is made of.",
    "W₁": "The Wasserstein distance: how far eigenvalues must be moved, on average, to turn one spectrum into another.",
    "self-check": "Products compared with differences of gradients in float64, on your model and data.",
}
