"""The stage that walks away from the parameters: how far the Hessian tells the truth."""

from __future__ import annotations

from dataclasses import replace

import torch

from ..landscapes import landscape
from ..operators.tensors import tensor_of
from ..results.landscape import Landscape
from ..results.spectra import Eigenpairs
from .context import Context
from .spectra import largest_inputs

POINTS = 31
LINES = 2  # along eigenvectors


def landscape_around(run: Context, top: Eigenpairs) -> Landscape | None:
    """The loss along the largest eigenvectors and down the gradient, beside its quadratic model."""
    if run.problem.distributed:
        run.notes.append("No landscape: it is taken in one process.")
        return None

    def compute() -> Landscape:
        vectors = tensor_of(top.vectors)[:, :LINES]
        pairs = replace(top, values=top.values[:LINES], vectors=vectors)
        downhill = ["gradient"] if float(torch.linalg.vector_norm(run.problem.gradient())) > 0 else []
        return landscape(run.problem, [pairs, *downhill], points=POINTS, rng=run.rng, watch=run.watch)

    return run.stages.run(Landscape, "landscape", compute, largest_inputs(run))
