"""The truth about a case in float64: double backward where differences agree with it, else the differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from fuzz.cases import Case

STEPS = (1e-4, 1e-5, 1e-3, 1e-6)
AGREE = 1e-5  # of the norm: what differences and double backward may differ by


class Undecided(Exception):
    """Differences at no two steps agree: this case has no truth to compare with."""


@dataclass(frozen=True)
class Known:
    """A matrix, and how far it can be relied on, relative to its norm."""

    matrix: Tensor
    error: float


class Truth:
    """Loss, gradient and matrices in the parameters `names`, laid end to end in this order."""

    def __init__(self, case: Case, names: Sequence[str]) -> None:
        self.case, self.names = case, tuple(names)
        parameters = dict(case.model.named_parameters())
        self.parameters = [parameters[name] for name in self.names]
        self.start = [p.detach().clone() for p in self.parameters]
        # The forward pass may write to parameters that are not asked for and to buffers.
        self.rest = [(t, t.detach().clone()) for t in (*case.model.parameters(), *case.model.buffers())]
        self.size = sum(p.numel() for p in self.parameters)
        self.moving = self._moving()

    def _moving(self) -> Tensor:
        """One for every entry that is trained; the padding row of an embedding stays, by torch's definition."""
        still = {}
        for module in self.case.model.modules():
            if isinstance(module, nn.Embedding) and module.padding_idx is not None:
                still[id(module.weight)] = module.padding_idx
        masks = [torch.ones_like(p, dtype=torch.float64) for p in self.parameters]
        for p, mask in zip(self.parameters, masks, strict=True):
            if id(p) in still:
                mask[still[id(p)]] = 0.0
        return torch.cat([mask.reshape(-1) for mask in masks])

    def _axes(self) -> Tensor:
        return torch.eye(self.size, dtype=torch.float64) * self.moving

    def outputs(self) -> Tensor:
        """The outputs on all batches, each run as the user runs it."""
        with sdpa_kernel(SDPBackend.MATH):  # the fused kernels have no second derivative
            return torch.cat([self.case.model(x) for x, _ in self.case.batches])

    def loss(self) -> Tensor:
        """What the user trains, over all data."""
        self._reset_rest()
        by_batch = self.case.loss.by_batch
        if by_batch is not None:
            with sdpa_kernel(SDPBackend.MATH):
                terms = [by_batch(self.case.model, batch) for batch in self.case.batches]
            return sum(total for total, _ in terms) / sum(float(count) for _, count in terms)  # type: ignore[return-value]
        return self.case.loss.value(self.outputs(), torch.cat([y for _, y in self.case.batches]))

    def _reset_rest(self) -> None:
        own = {id(p) for p in self.parameters}
        with torch.no_grad():
            for tensor, value in self.rest:
                if id(tensor) not in own:
                    tensor.copy_(value)

    def _move(self, flat: Tensor | None) -> None:
        with torch.no_grad():
            place = 0
            for p, start in zip(self.parameters, self.start, strict=True):
                shift = 0 if flat is None else flat[place : place + p.numel()].view_as(p)
                p.copy_(start + shift)
                place += p.numel()

    def _gradient(self, at: Tensor | None = None, create_graph: bool = False) -> Tensor:
        self._move(at)
        with torch.enable_grad():
            parts = torch.autograd.grad(
                self.loss(), self.parameters, create_graph=create_graph, allow_unused=True, materialize_grads=True
            )
        return torch.cat([g.reshape(-1) for g in parts])

    def _value(self, at: Tensor | None = None) -> float:
        self._move(at)
        with torch.no_grad():
            return float(self.loss())

    @cached_property
    def value(self) -> float:
        return self._value()

    @cached_property
    def gradient(self) -> Tensor:
        """By differences of the loss where autograd's is not its derivative."""
        return self._differenced_gradient if self.gradient_lies else self._gradient().detach()

    @property
    def plain_gradient(self) -> Tensor:
        """What one backward pass of torch gives, in the network's own types."""
        return self._gradient().detach()

    @cached_property
    def _differenced_gradient(self) -> Tensor:
        return torch.tensor([self._slope(e, 1e-5) for e in self._axes()])

    def _slope(self, v: Tensor, h: float, at: Tensor | float = 0.0) -> float:
        return (self._value(at + h * v) - self._value(at - h * v)) / (2 * h)

    def _directions(self) -> Tensor:
        generator = torch.Generator().manual_seed(self.case.seed)
        return torch.randn(3, self.size, generator=generator, dtype=torch.float64) * self.moving

    @cached_property
    def gradient_lies(self) -> bool:
        """Whether autograd's gradient is not the derivative of the loss (gradients scaled by frequency, say)."""
        exact = self._gradient().detach()
        for v in self._directions():
            wanted = float(exact @ v)
            scale = float(exact.norm() * v.norm()) + 1e-8 * (1 + abs(self.value))
            if not any(abs(self._slope(v, h) - wanted) <= 1e-5 * scale for h in (1e-5, 1e-6, 1e-4)):
                return True
        return False

    @cached_property
    def known(self) -> Known:
        """The Hessian, and how well it is known."""
        if self.gradient_lies:
            return self._by_loss()
        try:
            exact = self._double_backward()
        except RuntimeError:  # some of torch's functions have no second derivative
            return self._by_gradients()
        scale = float(exact.norm()) + 1e-6 * (1 + float(self.gradient.norm()))
        for v in self._directions():
            wanted = exact @ v
            errors = [float((self._difference(v, h) - wanted).norm()) for h in STEPS]
            if not min(errors) <= AGREE * scale * float(v.norm()):
                return self._by_gradients()
        return Known(exact, 1e-9)

    @property
    def hessian(self) -> Tensor:
        return self.known.matrix

    def _double_backward(self) -> Tensor:
        gradient = self._gradient(create_graph=True)
        if not gradient.requires_grad:
            return torch.zeros(self.size, self.size, dtype=torch.float64)
        rows = []
        for entry in gradient:
            parts = torch.autograd.grad(
                entry, self.parameters, retain_graph=True, allow_unused=True, materialize_grads=True
            )
            rows.append(torch.cat([g.reshape(-1) for g in parts]))
        return torch.stack(rows).detach()

    def _difference(self, v: Tensor, h: float) -> Tensor:
        return ((self._gradient(h * v) - self._gradient(-h * v)) / (2 * h)).detach()

    def _by_gradients(self) -> Known:
        """Central differences of the gradient, extrapolated, where two steps agree."""
        eye = self._axes()

        def matrix(h: float) -> Tensor:
            columns = torch.stack([(4 * self._difference(e, h) - self._difference(e, 2 * h)) / 3 for e in eye])
            return (columns + columns.t()) / 2

        return self._settled(matrix, (1e-4, 1e-3, 1e-5))

    def _by_loss(self) -> Known:
        """Second differences of the loss itself."""
        if self.size > 45:
            raise Undecided("too many parameters for second differences of the loss")
        eye = self._axes()

        def matrix(h: float) -> Tensor:
            found = torch.zeros(self.size, self.size, dtype=torch.float64)
            for i in range(self.size):
                for j in range(i + 1):
                    ahead, behind = self._slope(eye[i], h, h * eye[j]), self._slope(eye[i], h, -h * eye[j])
                    found[i, j] = found[j, i] = (ahead - behind) / (2 * h)
            return found

        return self._settled(matrix, (1e-3, 2e-3))

    @staticmethod
    def _settled(matrix: Callable[[float], Tensor], steps: tuple[float, ...]) -> Known:
        found = [matrix(steps[0])]
        for h in steps[1:]:
            found.append(matrix(h))
            for other in found[:-1]:
                error = float((found[-1] - other).norm() / found[-1].norm().clamp_min(1e-12))
                if error < 1e-4:
                    return Known(other, max(error, 1e-7))
        raise Undecided(f"differences at steps {steps} disagree")

    @property
    def splits(self) -> bool:
        """Whether outputs and loss come apart, so that Gauss-Newton is defined, and derivatives are to be trusted."""
        return self.case.loss.by_batch is None and not self.gradient_lies and self.known.error < 1e-8

    @cached_property
    def _outputs_jacobian(self) -> tuple[Tensor, Tensor]:
        self._move(None)
        self._reset_rest()
        with torch.enable_grad():
            f = self.outputs()
            rows = []
            for entry in f.reshape(-1):
                parts = torch.autograd.grad(
                    entry, self.parameters, retain_graph=True, allow_unused=True, materialize_grads=True
                )
                rows.append(torch.cat([g.reshape(-1) for g in parts]))
        return f.detach(), torch.stack(rows)

    def _loss_slope(self, f: Tensor) -> Tensor:
        # The loss may write to its argument, which must not be a leaf.
        total = self.case.loss.value(f * 1.0, torch.cat([y for _, y in self.case.batches]))
        return torch.autograd.grad(total, f, create_graph=True, materialize_grads=True)[0]

    @cached_property
    def gauss_newton(self) -> Tensor:
        """Jᵀ (∂²ℓ/∂f²) J."""
        f, jacobian = self._outputs_jacobian
        with torch.enable_grad():
            f.requires_grad_(True)
            slope = self._loss_slope(f).reshape(-1)
            if not slope.requires_grad:
                return torch.zeros(self.size, self.size, dtype=torch.float64)
            curvature = torch.stack(
                [
                    torch.autograd.grad(s, f, retain_graph=True, allow_unused=True, materialize_grads=True)[0].reshape(
                        -1
                    )
                    for s in slope
                ]
            )
        return jacobian.t() @ curvature @ jacobian

    @cached_property
    def empirical_fisher(self) -> Tensor:
        """Σ_r s_r s_rᵀ of cross-entropy's rows, each by its own targets; divided by their number for a mean."""
        f, jacobian = self._outputs_jacobian
        y = torch.cat([y for _, y in self.case.batches])
        slope = torch.softmax(f.detach(), 1) - torch.nn.functional.one_hot(y, f.shape[1]).movedim(-1, 1)
        rows = slope.movedim(1, -1).reshape(-1, f.shape[1])
        by_row = jacobian.reshape(*f.shape, -1).movedim(1, -2).reshape(len(rows), f.shape[1], -1)
        gradients = torch.einsum("rc,rcp->rp", rows, by_row)
        mean = getattr(self.case.loss.value, "reduction", "mean") == "mean"
        return gradients.t() @ gradients / (len(rows) if mean else 1)

    @torch.enable_grad()
    def factors(self, layer: nn.Linear) -> tuple[Tensor, Tensor] | None:
        """Σ_n ∂²L/∂z_n² and the mean of x xᵀ of a linear layer that ran once, on (B, d); else nothing."""
        calls: list[tuple[Tensor, Tensor]] = []

        def keep(module: nn.Module, args: tuple[Tensor, ...], z: Tensor) -> Tensor:
            calls.append((args[0].detach().clone(), z))
            return z.clone()  # what follows may be in place

        self._move(None)
        handle = layer.register_forward_hook(keep)
        try:
            with torch.enable_grad():
                total = self.loss()
        finally:
            handle.remove()
        if len(calls) != len(self.case.batches) or any(x.dim() != 2 or not z.requires_grad for x, z in calls):
            return None
        curvature = torch.zeros(layer.out_features, layer.out_features, dtype=torch.float64)
        for _, z in calls:
            (slope,) = torch.autograd.grad(total, z, create_graph=True, allow_unused=True, materialize_grads=True)
            if not slope.requires_grad:
                continue
            for n in range(len(z)):
                for i in range(layer.out_features):
                    (row,) = torch.autograd.grad(
                        slope[n, i], z, retain_graph=True, allow_unused=True, materialize_grads=True
                    )
                    curvature[i] += row[n].detach()
        x = torch.cat([x for x, _ in calls])
        return curvature, x.t() @ x / len(x)
