"""Liao & Mahoney (2021), Hessian eigenspectra of more realistic nonlinear models: Figures 1-5, Remark 1, footnote 4."""

PAPER = "Liao & Mahoney"
