"""E[X] and E[x xᵀ] of what layers are given, from forward passes alone: no Hessian, so that wide networks take seconds."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

KINDS: dict[str, type[nn.Linear | nn.Conv2d]] = {"fc": nn.Linear, "conv": nn.Conv2d}


def input_moments(
    model: nn.Module, x: Tensor, batch: int = 50, kinds: tuple[str, ...] = ("conv",)
) -> dict[str, tuple[Tensor, Tensor]]:
    """E[X] (inputs by positions) and E[x xᵀ] over examples and positions, of every convolution's patches, or of what
    fully connected layers are given (one position)."""
    sums: dict[str, list[Tensor]] = {}

    def look(name: str, layer: Any) -> Any:
        def hook(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            patches = _patches(layer, inputs[0])
            rows = patches.mT.reshape(-1, patches.shape[1])
            count = torch.tensor(float(len(patches)))
            parts = [count, patches.double().sum(0), (rows.T @ rows).double() / patches.shape[2]]
            sums[name] = [a + b for a, b in zip(sums[name], parts, strict=True)] if name in sums else parts

        return layer.register_forward_pre_hook(hook)

    wanted = tuple(KINDS[kind] for kind in kinds)
    hooks = [look(name, layer) for name, layer in model.named_modules() if isinstance(layer, wanted)]
    try:
        with torch.no_grad():
            for part in torch.split(x, batch):
                model.eval()(part)
    finally:
        for hook in hooks:
            hook.remove()
    return {name: (mean / count, second / count) for name, (count, mean, second) in sums.items()}


def _patches(layer: Any, given: Tensor) -> Tensor:
    if isinstance(layer, nn.Linear):
        return given.flatten(1)[:, :, None]
    return F.unfold(given, layer.kernel_size, layer.dilation, layer.padding, layer.stride)


def closeness(mean: Tensor, second: Tensor) -> tuple[float, float]:
    """(v₁ᵀÊ[x])², Ê[x] the first left singular vector of E[X], and λ₁/λ₂."""
    values, vectors = torch.linalg.eigh(second)
    direction = torch.linalg.svd(mean, full_matrices=False)[0][:, 0]
    return float((vectors[:, -1] @ direction) ** 2), float(values[-1] / values[-2])


def mean_bound(mean: Tensor, second: Tensor) -> float:
    """|μ|²/‖Σ‖; nan for several positions, where it says nothing."""
    if mean.shape[1] > 1:
        return float("nan")
    mu = mean[:, 0]
    return float(mu @ mu / torch.linalg.matrix_norm(second - torch.outer(mu, mu), 2))
