"""hs.landscape: the loss along directions, the quadratic model beside it, and where that model breaks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..arguments import as_float, need_call, need_count, need_flag, shown
from ..curvature import Hessian, Problem
from ..curvature.given_problem import need_problem
from ..errors import refuse
from ..operators import Counted
from ..operators.autocast import own_types
from ..operators.counted import Watch
from ..results.landscape import BreakingDistance, Landscape, LossLine, LossPlane
from ..rng import Rng
from .breaking import FARTHEST, SPACING, Quadratic, breaking_distance, rounding_noise
from .directions import Direction, Wanted, directions_of
from .losses_at import LossAt

LINE_POINTS, PLANE_POINTS = 41, 21
SEEN = 2.0  # how far a line is drawn, in breaking distances
ROUNDINGS = 32.0  # of a product, in units of its type: what a sum of many terms loses
PARALLEL = 1 - 1e-6  # the cosine above which two directions span no plane


@own_types()
def landscape(
    problem: Problem,
    along: Any = "eigenvectors",
    *,
    plane: bool = False,
    count: int = 2,
    reach: float | None = None,
    points: int | None = None,
    share: float = 0.1,
    rng: Rng | int | None = None,
    watch: Watch | None = None,
) -> Landscape:
    """L(θ + t d) along one or several directions, with gᵀd and dᵀHd from exact products, and where the two part.

    `along`: "eigenvectors" (of the `count` largest eigenvalues), "gradient" (steepest descent), "random" (`count`
    filter-normalised directions; biases and norms stay), a `torch.optim` optimiser or its state dict (its next step on this
    data, computed on copies), `hs.Eigenpairs`, another Problem or a state dict (t = 1 is
    there), a dict of Problems, a flat vector; or a list of these. `plane`: also the plane of the first two.
    `reach`: draw t within ±reach. The model breaks at the smallest |t| where |L − model| exceeds `share` of the model's
    own terms. Losses are those of all the data, in float64 where the model runs in it; nothing of yours is touched.
    """
    if need_problem(problem).distributed:
        refuse(
            "a landscape is taken in one process", "a problem of several", "Use distributed=False on some of the data."
        )
    need_flag("plane", plane)
    need_count("count", count)
    distance = _positive("reach", reach)
    portion = _positive("share", share)
    amount = None if points is None else need_count("points", points, 3)
    need_call("watch", watch, "It is called with each stage and its expected passes.")
    hessian = Counted(Hessian(problem), on_product=watch("curvature", 0) if watch else None)
    notes: list[str] = []
    wanted = Wanted(problem, hessian, count, Rng.of(rng).child("landscape"), notes)
    entries = list(along) if isinstance(along, Sequence) and not isinstance(along, str) else [along]
    directions = [direction for entry in entries for direction in directions_of(entry, wanted)]
    if not directions:
        refuse("a landscape needs a direction", "none", "For example along='eigenvectors'.")
    if plane:
        _need_plane(directions)
    survey = _Survey(problem, hessian, directions, portion or 0.1, distance, notes, watch)
    lines = tuple(survey.line(index, amount or LINE_POINTS) for index in range(len(directions)))
    surface = survey.plane(lines, amount or PLANE_POINTS) if plane else None
    return Landscape(
        lines,
        surface,
        survey.at.loss,
        survey.share,
        str(survey.at.problem.dtype).removeprefix("torch."),
        survey.at.passes,
        hessian.count,
        tuple(notes),
        survey.verified,
    )


class _Survey:
    """Slopes and curvatures of all directions at once, then one line or plane after the other."""

    def __init__(
        self,
        problem: Problem,
        hessian: Counted,
        directions: list[Direction],
        share: float,
        reach: float | None,
        notes: list[str],
        watch: Watch | None,
    ) -> None:
        self.directions, self.share, self.reach, self.notes = directions, share, reach, notes
        self._watch = watch
        self._tell: Callable[[int, float], None] = lambda count, seconds: None
        self.at = LossAt(problem, self._passed)
        vectors = torch.stack([direction.vector for direction in directions], dim=1)
        # The model in the type of the losses, so that what parts from it is the network and not rounding.
        exact = hessian if self.at.problem is problem else Counted(Hessian(self.at.problem))
        image = exact.apply(vectors.to(exact.dtype)).double()
        hessian.count += 0 if exact is hessian else exact.count
        self.verified = exact.verified
        gradient = self.at.problem.gradient().double()
        self.slopes, self.curvatures = (gradient @ vectors).cpu().numpy(), (vectors.T @ image).cpu().numpy()
        self.curvatures = (self.curvatures + self.curvatures.T) / 2
        eps = ROUNDINGS * torch.finfo(exact.dtype).eps
        lengths = torch.linalg.vector_norm(vectors, dim=0)
        self.lengths = lengths.cpu().numpy()
        self.slope_errors = (eps * torch.linalg.vector_norm(gradient) * lengths).cpu().numpy()
        self.curvature_errors = (eps * torch.linalg.vector_norm(image, dim=0) * lengths).cpu().numpy()

    def line(self, index: int, points: int) -> LossLine:
        """One line: its rounding noise, both breaking distances, then the losses to draw."""
        direction = self.directions[index]
        self._stage(direction.name, 60 + points)
        loss = self._along(direction.vector)
        model = Quadratic(
            self.at.loss,
            float(self.slopes[index]),
            float(self.curvatures[index, index]),
            float(self.slope_errors[index]),
            float(self.curvature_errors[index]),
        )
        length = float(self.lengths[index])
        scale = self.reach or (1.0 if direction.window else self._natural(model, length))
        finest = 8 * self.at.resolution * float(torch.linalg.vector_norm(self.at.origin)) / length
        noise = rounding_noise(loss, max(SPACING * scale, finest))
        backward, forward = (breaking_distance(loss, model, sign, self.share, noise, scale) for sign in (-1, 1))
        low, high = self._window(direction, scale, backward, forward)
        places = np.unique(np.append(np.linspace(low, high, points), 0.0))
        return LossLine(
            direction.name,
            direction.kind,
            length,
            places,
            np.array([loss(float(t)) for t in places]),
            model.loss,
            model.slope,
            model.curvature,
            model.slope_error,
            model.curvature_error,
            noise,
            self.share,
            backward,
            forward,
        )

    def plane(self, lines: Sequence[LossLine], points: int) -> LossPlane:
        """The plane of the first two directions, as far as their lines were drawn."""
        one, two = self.directions[:2]
        self._stage("plane", points * points)
        x, y = (np.linspace(line.places[0], line.places[-1], points) for line in lines[:2])
        losses = np.array([[self.at(a * one.vector + b * two.vector) for a in x] for b in y])
        cosine = float(one.vector @ two.vector) / float(self.lengths[0] * self.lengths[1])
        return LossPlane(
            (one.name, two.name),
            (float(self.lengths[0]), float(self.lengths[1])),
            cosine,
            x,
            y,
            losses,
            self.at.loss,
            self.slopes[:2].copy(),
            self.curvatures[:2, :2].copy(),
        )

    def _along(self, vector: Tensor) -> Callable[[float], float]:
        known: dict[float, float] = {0.0: self.at.loss}

        def loss(t: float) -> float:
            if t not in known:
                known[t] = self.at(t * vector)
            return known[t]

        return loss

    def _natural(self, model: Quadratic, length: float) -> float:
        """How far to look first: where the curvature alone would change the loss by its own size."""
        size = float(torch.linalg.vector_norm(self.at.origin)) or 1.0
        if model.curvature and model.loss:
            return min(math.sqrt(2 * abs(model.loss / model.curvature)), size / length)
        return 0.1 * size / length

    def _window(
        self, direction: Direction, scale: float, backward: BreakingDistance, forward: BreakingDistance
    ) -> tuple[float, float]:
        if self.reach is not None:
            return -self.reach, self.reach
        if direction.window is not None:
            return direction.window
        nearer = min(backward.high, forward.high)
        far = SEEN * nearer if math.isfinite(nearer) else scale
        far = min(far, scale * 2.0**FARTHEST)
        return -far, far

    def _stage(self, name: str, expected: int) -> None:
        if self._watch is not None:
            tell, done = self._watch(f"landscape: {name}", expected), self.at.passes
            self._tell = lambda count, seconds: tell(count - done, seconds)

    def _passed(self) -> None:
        if hasattr(self, "at"):  # the first pass is made before anyone can be told
            self._tell(self.at.passes, 0.0)


def _positive(name: str, value: Any) -> float | None:
    if value is None and name == "reach":
        return None
    number = as_float(value)
    if number is None or not 0 < number < math.inf:
        refuse(f"{name} must be a positive number", shown(value), "For example 0.1.")
    return number


def _need_plane(directions: list[Direction]) -> None:
    if len(directions) != 2:
        refuse("a plane needs two directions", f"{len(directions)}", "Pass a list of two, or count=2 of one kind.")
    one, two = (direction.vector / torch.linalg.vector_norm(direction.vector) for direction in directions)
    if abs(float(one @ two)) > PARALLEL:
        refuse("the directions of a plane must not be parallel", "two that are", "Leave one out, or draw a line.")
