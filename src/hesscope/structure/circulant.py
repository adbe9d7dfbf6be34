"""Finding 2 of Dong et al.: the stripes of the cross-layer Hessian, measured."""

from __future__ import annotations

import numpy as np
import torch

from ..curvature import Problem
from ..curvature.given_problem import need_one_process
from ..curvature.gradient_mode import differentiable
from ..errors import refuse
from ..results.blocks import CirculantScore
from .exact.activations import Activations
from .exact.stack import Structure
from .exact.tiles import cross_gram
from .norms import block_norms


@differentiable()
def circulant_score(problem: Problem) -> CirculantScore:
    """Share of ‖H_wv‖² in the columns of block (i, j) that multiply neuron i itself, of the last two linear layers.

    The term δ_j σ'_i x e_iᵀ fills exactly these columns: equal stripes in every block, a block-circulant pattern. It
    leads while the loss's slopes are large and N is small against d C, and fades as the slopes vanish in training.
    """
    structure = Structure.of(need_one_process(problem, "a score of stripes"))
    layers = structure.layers
    if len(layers) < 2 or layers[-1].inputs != layers[-2].outputs or not (layers[-1].weight and layers[-2].weight):
        refuse(
            "stripes need two selected linear layers, the second fed by the neurons of the first",
            f"{[layer.name for layer in layers]}",
            "Select both weights; layers that run once per token do not count.",
        )
    problem = problem.only([name for layer in layers[-2:] for name in (layer.weight, layer.bias) if name])
    seen = Activations(Structure.of(problem), "hessian")
    layer = seen.structure.layers[1]
    stripes = total = 0.0
    for rows in seen.rows(0):
        for k in range(rows.count):
            block = cross_gram(
                seen.inputs[0].T, rows.curvature[1][:, k], seen.inputs[1], seen.output_gradients[1], rows.moved[1][:, k]
            )
            square = block.view(-1, layer.outputs, layer.width).square_().sum((0, 1), dtype=torch.float64)
            total += float(square.sum())
            stripes += float(square[rows.first + k])
    found = block_norms(problem, "layer")
    share, (hidden, output) = stripes / total if total > 0 else 0.0, map(float, np.diagonal(found.norms))
    cross = total**0.5 * problem.scale
    return CirculantScore(share, 1 / layer.width, cross, hidden, output, found.check, found.method)
