"""The stochastic network: outputs under random weights, with one draw per batch or one per example.

In the basis W = U A Vᵀ the outputs of a linear layer are U a, where a = A (Vᵀ x) is Gaussian with independent entries
given x. So every example can have its own draw of all weights at the price of two products: the local
reparametrisation is exact in a rotated basis too.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ...curvature import Problem
from ...curvature.losses.softmax import SoftmaxLoss
from ...errors import refuse
from ...layers import LayerFacts, LinearMap, SubstitutedLinears, facts_of
from ...layers.kinds.linear import InputMajorLinear, Linear
from .bases import kronecker_layers
from .gaussian import Named, Posterior

Noise = Literal["none", "batch", "example"]


class StochasticNetwork:
    """Runs a problem's model under a posterior; `local` says whether every example can have its own weights."""

    def __init__(self, problem: Problem, posterior: Posterior, batch: Any) -> None:
        self.problem, self.posterior = problem, posterior
        own = {layer.name for layer in kronecker_layers(problem)}
        run = [layer for layer in facts_of(problem).exact if layer.name in own]  # in the order they run
        self.layers = [
            one for one in run if isinstance(one.kind, Linear) and not isinstance(one.kind, InputMajorLinear)
        ]
        replaced = {name for layer in self.layers for name in layer.parameters}
        self.others = [name for name in posterior.mean if name not in replaced]
        # Not a number, so that a model which uses such a weight elsewhere cannot pass unnoticed.
        self.unused: Named = {
            name: torch.full_like(problem.parameters[name], torch.nan) for name in posterior.mean if name in replaced
        }
        self.local = not self.others and all(layer.positions == 1 for layer in self.layers)
        self.last = self._last_layer(batch)

    def logits(self, batch: Any, noise: Noise, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Outputs and labels; `noise` is drawn once per batch or once per example."""
        maps = {_weight(layer): self._affine(layer, noise, generator) for layer in self.layers}
        return self._evaluate(batch, maps, noise, generator)

    def last_gaussian(
        self, batch: Any, noise: Noise, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """Means and variances of the last layer's coordinates, its U, and labels; `noise` before it."""
        seen: list[tuple[Tensor, Tensor]] = []
        *before, last = self.layers
        maps = {_weight(layer): self._affine(layer, noise, generator) for layer in before}
        _, labels = self._evaluate(batch, {**maps, _weight(last): self._moments(last, seen)}, "none", None)
        ((mean, variance),) = seen
        return mean, variance, self.posterior.bases[_weight(last)].rows, labels

    def _evaluate(
        self, batch: Any, maps: dict[str, LinearMap], noise: Noise, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        values = {**self.unused, **self._drawn(noise, generator)}
        with SubstitutedLinears(maps, values):
            rows = self.problem.evaluate(batch, values)
        assert isinstance(rows, SoftmaxLoss)
        assert rows.labels is not None
        if self.unused and bool(rows.f.isnan().any()):
            refuse(
                "outputs must be numbers, and a layer's weight must act through this layer only",
                "outputs that are not: a weight is used elsewhere on some batches, or the optimisation diverged",
                "Lower the rates, or call the layer in the same way for all batches.",
            )
        return rows.f, rows.labels

    def _drawn(self, noise: Noise, generator: torch.Generator | None) -> Named:
        posterior, drawn = self.posterior, {}
        for name in self.others:
            value = posterior.mean[name]
            if noise != "none":
                value = value + posterior.log_deviation(name).exp() * _normal(value, generator)
            drawn[name] = posterior.bases[name].back(value, posterior.shapes[name])
        return drawn

    def _affine(self, layer: LayerFacts, noise: Noise, generator: torch.Generator | None) -> LinearMap:
        mean, log_deviation = self.posterior.mean, self.posterior.log_deviation
        weight, bias = _weight(layer), layer.bias if layer.bias in self.posterior.mean else None
        basis = self.posterior.bases[weight]

        def forward(x: Tensor) -> Tensor:
            x = x if basis.columns is None else x @ basis.columns
            a, b = mean[weight], None if bias is None else mean[bias]
            if noise == "batch":
                a = a + log_deviation(weight).exp() * _normal(a, generator)
                b = None if b is None or bias is None else b + log_deviation(bias).exp() * _normal(b, generator)
            z = F.linear(x, a, b)
            if noise == "example":
                z = z + _root(self._variance(x, weight, bias)) * _normal(z, generator)
            return self._turned(z, layer)

        return forward

    def _moments(self, layer: LayerFacts, seen: list[tuple[Tensor, Tensor]]) -> LinearMap:
        mean, basis = self.posterior.mean, self.posterior.bases[_weight(layer)]
        bias = layer.bias if layer.bias in mean else None

        def forward(x: Tensor) -> Tensor:
            x = x if basis.columns is None else x @ basis.columns
            z = F.linear(x, mean[_weight(layer)], None if bias is None else mean[bias])
            seen.append((z, self._variance(x, _weight(layer), bias)))
            return self._turned(z, layer)

        return forward

    def _variance(self, x: Tensor, weight: str, bias: str | None) -> Tensor:
        log_deviation = self.posterior.log_deviation
        own = None if bias is None else (2 * log_deviation(bias)).exp()
        return F.linear(x.square(), (2 * log_deviation(weight)).exp(), own)

    def _turned(self, z: Tensor, layer: LayerFacts) -> Tensor:
        rows = self.posterior.bases[_weight(layer)].rows
        z = z if rows is None else z @ rows.T
        fixed = self.problem._fixed.get(layer.bias or "")
        return z if fixed is None else z + fixed

    def _last_layer(self, batch: Any) -> str | None:
        """The layer whose outputs are the logits, if there is one and its noise can be integrated out."""
        if not self.local or self.layers[-1].bias in self.problem._fixed:
            return None
        seen: list[tuple[Tensor, Tensor]] = []
        *before, last = self.layers
        maps = {_weight(layer): self._affine(layer, "none", None) for layer in before}
        with torch.no_grad():
            f, _ = self._evaluate(batch, {**maps, _weight(last): self._moments(last, seen)}, "none", None)
            same = f.shape == seen[0][0].shape and torch.equal(f, self._turned(seen[0][0], last))
        return last.name if same else None


def _weight(layer: LayerFacts) -> str:
    assert layer.weight is not None
    return layer.weight


def _root(variance: Tensor) -> Tensor:
    """√v, without a slope at zero: what is certain stays so to the bit, and ties stay ties."""
    some = variance > 0
    return torch.where(some, torch.where(some, variance, torch.ones_like(variance)).sqrt(), torch.zeros_like(variance))


def _normal(like: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.randn(like.shape, generator=generator, dtype=like.dtype, device="cpu").to(like.device)
