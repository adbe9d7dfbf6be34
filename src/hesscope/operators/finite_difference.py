"""A Hessian from nothing but a gradient function: central differences, with steps from measured noise and an error bar."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import log10
from typing import Any

import torch
from torch import Tensor

from ..arguments import as_float, shown
from ..errors import refuse
from ..rng import Rng
from .base import LinearOperator
from .gradient_noise import relative_spacing, spread_on_a_line

Gradient = Callable[[Any], Any]
_NOISE = 0.95  # of a product by (8 d(h) - d(2h)) / 12h, d(h) = g(h) - g(-h): √130 / 12 standard deviations of g, over h
_SURE = 3.0  # standard deviations that an error estimate holds of the noise
# A jump J of g within h leaves -3 J of r = s(2h) - 4 s(h), s(h) = g(h) - 2 g(0) + g(-h), and is 7/12 J/h of a product: where
# kinks lie on both sides, their sums and differences are alike in length only, hence the certainty of noise again.
_KINK, _KINK_NOISE = _SURE * 7 / 36, 2 * 70**0.5
_FARTHEST = 0.1  # of the length of θ, along a random direction: beyond it, no expansion around θ can be counted on
_TRIES = 12  # halvings or doublings of a step for one direction


@dataclass(frozen=True)
class _Product:
    """H v̂ for a unit vector, the step it was found with, and its two errors: of the step (with kinks) and of the noise."""

    value: Tensor
    step: float
    bend: float
    noise: float

    @property
    def error(self) -> float:
        return self.bend + _SURE * self.noise


class FiniteDifferenceHessian(LinearOperator):
    """H v ≈ (8 [g(θ+hv) - g(θ-hv)] - [g(θ+2hv) - g(θ-2hv)]) / 12h for a gradient function g: no second derivative.

    For code that cannot be differentiated twice. Every product estimates its own error: how far it is from the plain
    central difference at the same step, or what jumps of g within the step (kinks of the loss) may amount to, if that is
    more; and three standard deviations of the noise of g, measured along a line. The step of each direction is where the
    two balance. `product_error` is the largest so far for a unit vector; results
    carry it. A product costs four gradients, and some more where a direction needs another step.
    """

    def __init__(self, gradient: Gradient, at: Tensor | Mapping[str, Tensor], *, noise: float | None = None) -> None:
        if not callable(gradient):
            refuse("gradient must be a function of the parameters", shown(gradient), "Pass fn(theta) -> gradient.")
        self._named = {name: t.detach().clone() for name, t in at.items()} if isinstance(at, Mapping) else None
        self._fn = gradient
        self._theta = _flat(at if self._named is None else list(self._named.values()))
        self.gradients = 0  # how many were evaluated
        self._worst, self._largest = 0.0, 0.0
        self._size = max(float(self._theta.double().norm()), 1e-3)
        self._here = first = self._gradient(torch.zeros_like(self._theta, dtype=torch.float64))
        self._directions = Rng(0).child("finite differences")
        line = self._unit(0)
        self.noise = self._measured(line, first) if noise is None else _given(noise)
        self._step = self._size * torch.finfo(self.dtype).eps ** 0.2
        self._height = float(line.abs().max())
        self._step = self._balanced(line).step
        self._need_symmetric()

    @property
    def shape(self) -> tuple[int, int]:
        return len(self._theta), len(self._theta)

    @property
    def dtype(self) -> torch.dtype:
        return self._theta.dtype

    @property
    def device(self) -> torch.device:
        return self._theta.device

    @property
    def product_error(self) -> float:
        """The largest estimated error of a product with a unit vector, of all products so far."""
        return self._worst

    @property
    def verified(self) -> str:
        share = self._worst / self._largest if self._largest else 0.0
        return (
            f"FINITE DIFFERENCE of a gradient function, not a derivative: products within {self._worst:.1e} "
            f"({share:.0e} of the longest); noise of the gradient {self.noise:.1e}"
        )

    @property
    def fingerprint(self) -> str:
        content = hashlib.sha256(self._theta.cpu().contiguous().numpy().tobytes()).hexdigest()
        # Another function at the same point has another gradient there; its length, in the digits that noise leaves.
        length = float(self._here.norm())
        digits = min(6, int(log10(length / self.noise)) - 1) if length > self.noise > 0 else 6 * (not self.noise)
        return (
            f"FiniteDifferenceHessian({self.shape[0]}, {content}, {f'{length:.{digits}g}' if digits > 0 else 'noise'})"
        )

    def __repr__(self) -> str:
        return f"FiniteDifferenceHessian{self.shape}, central differences of a gradient function"

    def _apply(self, block: Tensor) -> Tensor:
        columns = []
        for v in block.T.double():
            length = float(v.norm())
            if length == 0:
                columns.append(torch.zeros_like(v))
                continue
            found = self._balanced(v / length)
            columns.append(found.value * length)
        return torch.stack(columns).T.to(self.dtype) if columns else torch.zeros_like(block)

    def _balanced(self, v: Tensor) -> _Product:
        """The product at the step where its two errors balance, searched by halves and doubles."""
        # A direction of few coordinates moves each of them further; only where the search begins.
        step = self._step * self._height / float(v.abs().max())
        known: dict[float, tuple[Tensor, Tensor]] = {}
        best = self._at(v, step, known)
        halve = best.bend > best.noise
        for _ in range(_TRIES):
            # Noise alone makes a bend of 0.28 of it. Steps do not grow beyond what it explains: further out the function
            # may flatten, and two wrong differences agree.
            if not (best.bend > 2 * best.noise if halve else best.bend < best.noise / 2):
                break
            step = step / 2 if halve else step * 2
            if step * float(v.abs().max()) > _FARTHEST * self._size * self._height:
                break
            other = self._at(v, step, known)
            if not other.error < best.error:
                break
            best = other
        self._worst = max(self._worst, best.error)
        self._largest = max(self._largest, float(best.value.norm()))
        return best

    def _at(self, v: Tensor, step: float, known: dict[float, tuple[Tensor, Tensor]]) -> _Product:
        for h in (step, 2 * step):
            if h not in known:
                plus, minus = self._gradient(h * v), self._gradient(-h * v)
                known[h] = (plus - minus) / (2 * h), plus + minus - 2 * self._here
        (near, even), (far, further) = known[step], known[2 * step]
        value = near + (near - far) / 3
        rest = float((further - 4 * even).norm())
        jumps = rest if rest > _KINK_NOISE * self.noise else 0.0  # what noise does not explain counts in full
        # Where the differences are noise, so is the first of these: it is then as large as the other part, and no harm.
        bend = max(float((value - near).norm()), _KINK * jumps / step)
        return _Product(value, step, bend, _NOISE * self.noise / step)

    def _gradient(self, move: Tensor) -> Tensor:
        """g(θ + move), flat and in float64."""
        point = (self._theta.double() + move).to(self.dtype)
        given: Any = point
        if self._named is not None:
            pieces = torch.split(point, [t.numel() for t in self._named.values()])
            given = {n: p.reshape(t.shape).to(t.dtype) for p, (n, t) in zip(pieces, self._named.items(), strict=True)}
        found = self._fn(given)
        self.gradients += 1
        if isinstance(found, Mapping) and self._named is not None:
            missing = [name for name in self._named if name not in found]
            if missing:
                refuse(
                    "the gradient must have every name", f"none for {missing[0]!r}", "Return zeros where it is zero."
                )
            for name, own in self._named.items():
                if isinstance(found[name], Tensor) and found[name].shape != own.shape:
                    refuse(
                        f"the gradient of {name!r} must have the shape {tuple(own.shape)}",
                        f"{tuple(found[name].shape)}",
                        "Return each gradient in the shape of its parameter.",
                    )
            found = [found[name] for name in self._named]
        flat = _flat(found)
        if len(flat) != len(self._theta):
            refuse(
                f"the gradient must have {len(self._theta)} entries, as the parameters have",
                f"{len(flat)}",
                "Return one entry for each parameter, in their order.",
            )
        if not bool(torch.isfinite(flat).all()):
            refuse("the gradient must be finite", "nan or inf", "Look at the loss near these parameters.")
        return flat.double().to(self.device)

    def _unit(self, index: int) -> Tensor:
        drawn = torch.randn(
            len(self._theta), generator=self._directions.child(index).torch(), dtype=torch.float64, device="cpu"
        )
        unit: Tensor = drawn / drawn.norm()
        return unit.to(self.device)

    def _measured(self, line: Tensor, first: Tensor) -> float:
        spacing = self._size * relative_spacing(self.dtype)
        least = 0.1 * torch.finfo(self.dtype).eps * float(first.norm())
        return max(spread_on_a_line(lambda place: self._gradient(place * spacing * line)), least)

    def _need_symmetric(self) -> None:
        """The derivative of a gradient is symmetric; that of clipped, damped or averaged ones need not be."""
        u, v = self._unit(1), self._unit(2)
        a, b = self._balanced(v), self._balanced(u)
        gap, error = abs(float(u @ a.value) - float(v @ b.value)), a.error + b.error
        if gap > max(2 * error, 1e-3 * max(abs(float(u @ a.value)), abs(float(v @ b.value)))):
            refuse(
                "fn must be the gradient of one function, so that its derivative is symmetric",
                f"uᵀHv and vᵀHu that differ by {gap:.1e}, where errors are {error:.1e}",
                "Return the plain gradient of the loss: no clipping, no momentum, no weight decay outside the loss.",
            )


def _flat(given: Any) -> Tensor:
    parts = list(given) if isinstance(given, list | tuple) else [given]
    for part in parts:
        if not isinstance(part, Tensor) or not part.is_floating_point():
            got = f"{part.dtype}" if isinstance(part, Tensor) else type(part).__name__
            refuse("parameters and gradients must be floating-point tensors", got, "Pass a flat tensor, or a dict.")
    if not parts or not sum(part.numel() for part in parts):
        refuse("there must be parameters", "none", "Pass the point at which the Hessian is wanted.")
    flat = torch.cat([part.detach().reshape(-1) for part in parts]).clone()
    return flat if flat.dtype in (torch.float32, torch.float64) else flat.float()


def _given(noise: Any) -> float:
    value = as_float(noise)
    if value is None or not 0 <= value < float("inf"):
        refuse("noise must be a number of at least 0", shown(noise), "Leave it out: it is then measured.")
    return value
