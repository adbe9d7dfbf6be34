"""Block norms of an output layer with any number of classes, a vocabulary included, without a C x C array."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..arguments import is_count, need_count
from ..curvature import Hessian, Problem
from ..curvature.given_problem import need_one_process
from ..curvature.gradient_mode import differentiable
from ..errors import refuse
from ..results.blocks import OutputNorms
from ..rng import Rng
from .exact.activations import Activations
from .exact.gram import PairNorms
from .exact.output_curvature import DiagonalCurvature, SoftmaxCurvature
from .exact.stack import Structure, output_layer

_COLUMNS = 2048


@differentiable()
def output_block_norms(
    problem: Problem,
    layer: str | None = None,
    *,
    pairs: Sequence[tuple[int, int]] | None = None,
    sampled: int = 0,
    rng: Rng | int | None = None,
) -> OutputNorms:
    """‖Σ_n A_n,ij x_n x_nᵀ‖_F of the output layer: all i = j, the `pairs` asked for and `sampled` random ones.

    Exact for cross-entropy and for losses that treat outputs apart, at N²(2C + pairs) multiplications and N C + N²
    numbers: minutes for a vocabulary of 50,257 and thousands of tokens. `layer` names the Linear (by default the last
    one); a matrix that is tied to an embedding is treated in its role as output layer.
    """
    need_one_process(problem, "block norms of an output layer").need_outputs("the curvature of an output layer")
    chosen = output_layer(problem, layer)
    structure = Structure(problem, (chosen,), True)
    if chosen.outputs < 2:
        refuse("an output layer must have at least 2 classes", f"{chosen.outputs}", "One class has no other block.")
    wanted = _pairs(pairs, sampled, chosen.outputs, Rng.of(rng))
    seen = Activations(structure, "gauss_newton")
    x, curvature, scale = seen.inputs[0], seen.output, problem.scale
    norms = PairNorms(x)
    if isinstance(curvature, SoftmaxCurvature):
        diagonal, off = _softmax(curvature, norms)
        chosen_squares = _chunks(norms, len(wanted), lambda a, b: _pair_weights(curvature, wanted[a:b]))
    elif isinstance(curvature, DiagonalCurvature):
        second = curvature.second
        diagonal = _chunks(norms, chosen.outputs, lambda a, b: second[:, a:b])
        off = torch.zeros_like(diagonal)
        chosen_squares = torch.where(wanted[:, 0] == wanted[:, 1], diagonal[wanted[:, 0]], 0.0)
    else:
        refuse("the loss must be cross-entropy or treat outputs apart", "another loss", "Use block_norms.")
    return OutputNorms(
        (diagonal.sqrt() * scale).numpy(),
        (off.clamp_min(0) / (chosen.outputs - 1)).sqrt().mul_(scale).numpy(),
        wanted.numpy(),
        (chosen_squares.sqrt() * scale).numpy(),
        len(x),
        f"the outputs of {chosen.name!r} are those that the loss is given, in every batch; {Hessian(problem).verified}",
        "layer structure: inputs of the layer and the loss's own curvature",
    )


def _softmax(curvature: SoftmaxCurvature, norms: PairNorms) -> tuple[Tensor, Tensor]:
    """‖H_cc‖² and Σ_{j≠c} ‖H_cj‖² = p_cᵀ (G ∘ PPᵀ) p_c - (p_c²)ᵀ G p_c², G = K ∘ K."""
    p = curvature.p
    diagonal = _chunks(norms, curvature.outputs, curvature.diagonal)
    own = _chunks(norms, curvature.outputs, lambda a, b: p[:, a:b].square())
    rest = PairNorms(norms.x, overlap=p)
    return diagonal, _chunks(rest, curvature.outputs, lambda a, b: p[:, a:b]) - own


def _pair_weights(curvature: SoftmaxCurvature, pairs: Tensor) -> Tensor:
    weights = curvature.p[:, pairs[:, 0]] * curvature.p[:, pairs[:, 1]]
    same = torch.nonzero(pairs[:, 0] == pairs[:, 1]).squeeze(1)
    for k in same.tolist():
        c = int(pairs[k, 0])
        weights[:, k] = curvature.diagonal(c, c + 1)[:, 0]
    return weights


def _chunks(norms: PairNorms, count: int, weights: Callable[[int, int], Tensor]) -> Tensor:
    parts = [norms.squares(weights(a, min(count, a + _COLUMNS))).cpu() for a in range(0, count, _COLUMNS)]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64, device="cpu")


def _pairs(pairs: Sequence[tuple[int, int]] | None, sampled: int, classes: int, rng: Rng) -> Tensor:
    need_count("sampled", sampled, 0)
    for pair in pairs or ():
        if not (
            isinstance(pair, tuple | list) and len(pair) == 2 and all(is_count(c, 0) and c < classes for c in pair)
        ):
            refuse(f"a pair must be two classes in [0, {classes})", f"{pair!r}", "Pass pairs=[(0, 1)].")
    asked = torch.tensor([list(pair) for pair in pairs or ()], dtype=torch.int64, device="cpu").reshape(-1, 2)
    generator = rng.child("pairs").torch()
    first = torch.randint(0, classes, (sampled,), generator=generator, device="cpu")
    second = (first + torch.randint(1, classes, (sampled,), generator=generator, device="cpu")) % classes
    return torch.cat([asked, torch.stack([first, second], 1)])
