"""Hessians of generalised linear models H = (1/n) Σ ℓ''(y_i, wᵀx_i) x_i x_iᵀ, x ~ N(mean, C): law, spikes, samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...arguments import real_array, shown
from ...errors import refuse
from ...rng import Rng
from ..separable.law import GeneralisedMarchenkoPastur, check_ratio
from .frame import Frame
from .geometry import Geometry
from .joint_law import Expectation, expectation
from .losses import Loss, Response, as_loss, as_response
from .phase_transitions import Transition, transitions
from .simulation import Simulation, simulate
from .spikes import Spike, SpikeEquation, find_spikes

Curvature = Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]
Draw = Callable[[np.random.Generator, NDArray[Any]], NDArray[Any]]


@dataclass(frozen=True, eq=False)
class GLM:
    """The Hessian at w of a generalised linear model with truth w_star, as p, n → ∞ with p/n → ratio.

    w, w_star, mean: vectors of one length (any length: only their geometry and the spectrum of C enter the limit).
    covariance: None for the identity, else diagonal entries or a matrix. loss: a name or ℓ''(y, h) on arrays;
    response: a name or draw(rng, t). Integrals are by quadrature (`accuracy` holds an error estimate); a response
    known only by its sampler falls back on draws. Reference: Liao & Mahoney (2021), Theorems 1-3.

    >>> model = GLM(loss="logistic", w=[0.0], w_star=[0.0], mean=[1.0], ratio=0.25)
    >>> [(round(s.location, 6), s.side, round(s.alignment.mean, 6)) for s in model.spikes()]
    [(0.625, 'right', 0.6)]
    """

    loss: str | Curvature
    w: ArrayLike
    w_star: ArrayLike
    mean: ArrayLike
    ratio: float
    response: str | Draw = "logistic"
    covariance: ArrayLike | None = None
    rng: Rng = field(default_factory=Rng)

    def __post_init__(self) -> None:
        check_ratio(self.ratio)
        object.__setattr__(self, "rng", Rng.of(self.rng))
        # Refuse bad input here, not at first use.
        _ = self._loss, self._response, self.geometry

    @cached_property
    def _loss(self) -> Loss:
        return as_loss(self.loss)

    @cached_property
    def _response(self) -> Response:
        return as_response(self.response)

    @cached_property
    def geometry(self) -> Geometry:
        """The Gram matrices of (mean, w_star, w) in the eigenspaces of the covariance: all the limit depends on."""
        return Geometry.of(self.mean, self.w_star, self.w, self.covariance)

    @cached_property
    def _frame(self) -> Frame:
        return Frame.of(self.geometry, self._loss.uses_response)

    @cached_property
    def _expectation(self) -> Expectation:
        return expectation(self._loss, self._response, self._frame, self.ratio, self.rng.child("glm"))

    @property
    def accuracy(self) -> tuple[str, float]:
        """("quadrature", error estimate) or ("sampling", standard error), both of E[g/(1 + gδ)]."""
        return self._expectation.kind, self._expectation.error

    @cached_property
    def _law(self) -> GeneralisedMarchenkoPastur:
        return GeneralisedMarchenkoPastur(self._expectation.population, self.geometry.population, self.ratio)

    def law(self) -> GeneralisedMarchenkoPastur:
        """The limiting spectrum (Theorem 1)."""
        return self._law

    @cached_property
    def spike_equation(self) -> SpikeEquation:
        """G(x) on the real points outside the bulk, for those who want to plot or track it."""
        return SpikeEquation(self._law, self._expectation, self._frame, self.geometry)

    def spikes(self) -> list[Spike]:
        """Isolated eigenvalues, ascending, with the squared cosines of their eigenvectors (Theorems 2, 3)."""
        return find_spikes(self.spike_equation)

    def deterministic_equivalent(self, z: complex) -> NDArray[np.complex128]:
        """Q̄(z) of Theorem 4 in the coordinates of w: aᵀ(H - z)⁻¹b tends to aᵀ Q̄(z) b, traces too; Im z > 0 or z off the support.

        Q̄⁻¹ = e(z) C - z + V Λ(z) Vᵀ with V = [mean, C^½ B], B a basis of C^½ w_star and C^½ w.

        >>> model = GLM(loss="square", w=[0.0], w_star=[0.0], mean=[0.0], ratio=0.5)
        >>> bool(abs(model.deterministic_equivalent(-1.0)[0, 0] - model.law().stieltjes(-1.0)) < 1e-12)
        True
        """
        point = complex(z)
        inside = point.imag == 0 and any(low <= point.real <= high for low, high in self._law.support)
        if inside or not np.isfinite(point) or point.imag < 0:
            refuse(
                "z must be off the support of the law, on or above the real axis",
                shown(z),
                "Add a small imaginary part, as in z + 0.01j.",
            )
        delta, e = (complex(value[0]) for value in self._law.fixed_point(np.array([point])))
        nodes, moments = self._expectation.nodes, self._expectation.moments
        # Nodes may lie on one side of the axis: their mirror images, with the conjugate of δ, are the other half.
        sides = [np.tensordot(nodes / (1.0 + nodes * d), moments, axes=([-1], [0])) for d in (delta, delta.conjugate())]
        inner = 0.5 * (sides[0] + sides[1].conj())
        mean, w_star, w = (np.atleast_1d(np.asarray(v, np.float64)) for v in (self.mean, self.w_star, self.w))
        covariance = np.eye(w.size)
        if self.covariance is not None:
            given = np.asarray(self.covariance, np.float64)
            covariance = np.diag(given) if given.ndim == 1 else given
        columns = np.stack([mean, covariance @ w_star, covariance @ w], axis=1) @ self.spike_equation.mix
        inverse = e * covariance - point * np.eye(w.size) + columns @ inner @ columns.T
        return np.asarray(np.linalg.inv(inverse))

    def rescaled(self, mean: float = 1.0, w_star: float = 1.0, w: float = 1.0) -> GLM:
        """The same model with its vectors multiplied by these factors."""
        return replace(
            self,
            mean=mean * np.asarray(self.mean, np.float64),
            w_star=w_star * np.asarray(self.w_star, np.float64),
            w=w * np.asarray(self.w, np.float64),
        )

    def transitions(self, vary: str, norms: ArrayLike) -> list[Transition]:
        """The norms of "mean", "w_star" or "w" at which spikes leave or re-enter the bulk, bracketed by `norms`.

        The vector keeps its direction; `norms` must be ascending and positive, and fine enough to separate crossings.
        """
        grid = real_array("norms", norms)
        ascending = grid.ndim == 1 and grid.size > 0 and bool((np.diff(grid) > 0).all()) and bool(grid[0] > 0)
        if vary not in ("mean", "w_star", "w") or not ascending:
            refuse(
                'transitions need one of "mean", "w_star", "w" and ascending positive norms',
                f"{vary!r} and {grid.size} norms",
                'Try transitions("w", numpy.linspace(0.1, 10, 50)).',
            )
        length = float(np.linalg.norm(np.asarray(getattr(self, vary), np.float64)))
        if not length > 0:
            refuse(f"{vary} must not be zero to be rescaled", "a zero vector", "Pass its direction.")
        return transitions(lambda norm: self.rescaled(**{vary: norm / length}), grid)

    def simulate(self, p: int, rng: Rng, features: str = "gaussian", as_given: bool = False) -> Simulation:
        """One Hessian of size p x p with n = p/ratio samples; `features` replaces the Gaussian entries of C^(-1/2)(x - mean).

        The model's vectors are placed at random in R^p, with the same geometry; `as_given` keeps their own coordinates,
        which needs p to be their length and C the identity.
        """
        vectors = None
        if as_given:
            vectors = np.array([np.atleast_1d(np.asarray(v, np.float64)) for v in (self.mean, self.w_star, self.w)])
            if self.covariance is not None or vectors.shape[1] != p:
                refuse(
                    "vectors kept as given need p to be their length and the identity as covariance",
                    f"p = {shown(p)}, vectors of length {vectors.shape[1]}"
                    + ("" if self.covariance is None else " and a covariance"),
                    "Leave out as_given, or pass that p without a covariance.",
                )
        return simulate(self.geometry, self._loss, self._response, self.ratio, p, rng, features, vectors)
