"""The stochastic network: outputs under random weights, with one draw per batch or one per example.

In the basis W = U A Vᵀ the outputs of a linear layer are U a, where a = A (Vᵀ x) is Gaussian with independent entries
given x. So every example can have its own draw of all weights at the price of two products: the local
reparametrisation is exact in a rotated basis too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...curvature import Problem
from ...curvature.data import examples_in
from ...curvature.losses.softmax import SoftmaxLoss
from .bases import kronecker_layers
from .gaussian import Named, Posterior

Noise = Literal["none", "batch", "example"]
_TINY = 1e-20


class StochasticNetwork:
    """Runs a problem's model under a posterior; `local` says whether every example can have its own weights."""

    def __init__(self, problem: Problem, posterior: Posterior, batch: Any) -> None:
        self.problem, self.posterior = problem, posterior
        linear = [layer for layer in kronecker_layers(problem) if isinstance(layer.module, nn.Linear)]
        self.calls: list[tuple[str, int, int]] = []
        with torch.no_grad(), _replaced([(one.module, self._watcher(one.name, one.module)) for one in linear]):
            problem.evaluate(batch, problem.parameters)
        times = [name for name, _, _ in self.calls]
        self.layers = [layer for layer in linear if times.count(layer.name) == 1]
        replaced = {name for layer in self.layers for name in (layer.weight, layer.bias)}
        self.others = [name for name in posterior.mean if name not in replaced]
        # Not a number, so that a model which uses such a weight elsewhere cannot pass unnoticed.
        self.unused: Named = {
            name: torch.full_like(problem.parameters[name], torch.nan) for name in posterior.mean if name in replaced
        }
        size = examples_in(batch)
        rowwise = all(ndim == 2 and rows == size for _, ndim, rows in self.calls)
        self.local = not self.others and rowwise
        self.last = self._last_layer(batch)

    def logits(self, batch: Any, noise: Noise, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Outputs and labels; `noise` is drawn once per batch or once per example."""
        maps = [(layer.module, self._affine(layer.weight, layer.bias, noise, generator)) for layer in self.layers]
        return self._evaluate(batch, maps, noise, generator)

    def last_gaussian(self, batch: Any, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """Means and variances of the last layer's coordinates, its U, and labels; noise per example before it."""
        seen: list[tuple[Tensor, Tensor]] = []
        maps: list[tuple[nn.Module, Callable[[Tensor], Tensor]]] = []
        for layer in self.layers:
            if layer.name == self.last:
                maps.append((layer.module, self._moments(layer.weight, layer.bias, seen)))
            else:
                maps.append((layer.module, self._affine(layer.weight, layer.bias, "example", generator)))
        _, labels = self._evaluate(batch, maps, "none", None)
        ((mean, variance),) = seen
        weight = next(layer.weight for layer in self.layers if layer.name == self.last)
        return mean, variance, self.posterior.bases[weight].rows, labels

    def _evaluate(
        self,
        batch: Any,
        maps: list[tuple[nn.Module, Callable[[Tensor], Tensor]]],
        noise: Noise,
        generator: torch.Generator | None,
    ) -> tuple[Tensor, Tensor]:
        with _replaced(maps):
            rows = self.problem.evaluate(batch, {**self.unused, **self._drawn(noise, generator)})
        assert isinstance(rows, SoftmaxLoss)
        assert rows.labels is not None
        return rows.f, rows.labels

    def _drawn(self, noise: Noise, generator: torch.Generator | None) -> Named:
        posterior, drawn = self.posterior, {}
        for name in self.others:
            value = posterior.mean[name]
            if noise != "none":
                value = value + posterior.log_deviation(name).exp() * _normal(value, generator)
            drawn[name] = posterior.bases[name].back(value, posterior.shapes[name])
        return drawn

    def _affine(
        self, weight: str, bias: str, noise: Noise, generator: torch.Generator | None
    ) -> Callable[[Tensor], Tensor]:
        mean, log_deviation = self.posterior.mean, self.posterior.log_deviation
        basis = self.posterior.bases[weight]
        own_bias = bias in mean

        def forward(x: Tensor) -> Tensor:
            x = x if basis.columns is None else x @ basis.columns
            a, b = mean[weight], mean[bias] if own_bias else None
            if noise == "batch":
                a = a + log_deviation(weight).exp() * _normal(a, generator)
                b = None if b is None else b + log_deviation(bias).exp() * _normal(b, generator)
            z = F.linear(x, a, b)
            if noise == "example":
                z = z + (self._variance(x, weight, bias) + _TINY).sqrt() * _normal(z, generator)
            return self._turned(z, weight, bias)

        return forward

    def _moments(self, weight: str, bias: str, seen: list[tuple[Tensor, Tensor]]) -> Callable[[Tensor], Tensor]:
        mean, basis = self.posterior.mean, self.posterior.bases[weight]

        def forward(x: Tensor) -> Tensor:
            x = x if basis.columns is None else x @ basis.columns
            z = F.linear(x, mean[weight], mean.get(bias))
            seen.append((z, self._variance(x, weight, bias)))
            return self._turned(z, weight, bias)

        return forward

    def _variance(self, x: Tensor, weight: str, bias: str) -> Tensor:
        log_deviation = self.posterior.log_deviation
        own = (2 * log_deviation(bias)).exp() if bias in self.posterior.mean else None
        return F.linear(x.square(), (2 * log_deviation(weight)).exp(), own)

    def _turned(self, z: Tensor, weight: str, bias: str) -> Tensor:
        rows = self.posterior.bases[weight].rows
        z = z if rows is None else z @ rows.T
        fixed = self.problem._fixed.get(bias)
        return z if fixed is None else z + fixed

    def _watcher(self, name: str, module: nn.Module) -> Callable[[Tensor], Tensor]:
        def forward(x: Tensor) -> Tensor:
            self.calls.append((name, x.ndim, len(x)))
            return F.linear(x, module.weight, module.bias)  # type: ignore[arg-type]

        return forward

    def _last_layer(self, batch: Any) -> str | None:
        """The layer whose outputs are the logits, if there is one and its noise can be integrated out."""
        if not self.local:
            return None
        name = self.calls[-1][0]
        layer = next(layer for layer in self.layers if layer.name == name)
        if layer.bias in self.problem._fixed:
            return None
        seen: list[tuple[Tensor, Tensor]] = []
        maps = [(one.module, self._affine(one.weight, one.bias, "none", None)) for one in self.layers if one != layer]
        with torch.no_grad():
            f, _ = self._evaluate(
                batch, [*maps, (layer.module, self._moments(layer.weight, layer.bias, seen))], "none", None
            )
            same = f.shape == seen[0][0].shape and torch.equal(f, self._turned(seen[0][0], layer.weight, layer.bias))
        return name if same else None


def _normal(like: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.randn(like.shape, generator=generator, dtype=like.dtype).to(like.device)


@contextmanager
def _replaced(maps: list[tuple[nn.Module, Callable[[Tensor], Tensor]]]) -> Iterator[None]:
    """Modules that compute something else for a while."""
    for module, forward in maps:
        module.forward = forward
    try:
        yield
    finally:
        for module, _ in maps:
            del module.forward
