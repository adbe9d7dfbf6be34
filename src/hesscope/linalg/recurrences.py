"""The short recurrences behind `solve`: conjugate gradients and MINRES, one product per step, resumable."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import refuse
from ..operators import Counted
from .remembered import Remembered
from .resuming.checkpoint import Arrays
from .resuming.resumable import Resumable
from .validation import innermost, multiply


class Recurrence(Resumable):
    """(A + damping · I) x = b for a unit b: a few vectors and a few numbers that every step replaces.

    Every new vector has a name of its own, so that the state on disk shares what a step only hands on.
    """

    def __init__(self, op: Counted, damping: float, b: Tensor) -> None:
        self.op, self.damping, self.layout = op, damping, op.layout
        self.ended = False
        self.numbers: dict[str, float] = {}
        self._named: dict[str, tuple[int, Tensor]] = {}
        self._next_name, self._steps = 0, 0
        self._checked: float | None = None
        self._earlier = -op.count
        self._start(b)

    @abstractmethod
    def _start(self, b: Tensor) -> None: ...

    @abstractmethod
    def _step(self, goal: float) -> None:
        """One product; sets `ended` once the residual is at most `goal`."""

    @property
    def x(self) -> Tensor:
        return self["x"]

    @property
    def products(self) -> int:
        """Products spent, including those of a run that was killed."""
        return self._earlier + self.op.count

    def __getitem__(self, name: str) -> Tensor:
        return self._named[name][1]

    def __setitem__(self, name: str, vector: Tensor) -> None:
        self._named[name] = (self._next_name, vector)
        self._next_name += 1

    def hand_on(self, source: str, target: str) -> None:
        """The vector called `source` takes the place of `target`, under its own name on disk."""
        self._named[target] = self._named[source]

    def times(self, x: Tensor) -> Tensor:
        """(A + damping · I) x."""
        out = multiply(self.op, x)
        return out.add(x, alpha=self.damping) if self.damping else out

    def until(self, goal: float, limit: int, enough: Callable[[], bool] = lambda: False) -> None:
        """Go on until the residual of the recurrence is at most `goal`, or after `limit` steps, or when `enough`."""
        while not self.ended and self._steps < limit and not enough():
            self._step(goal)
            self._steps += 1
            self._checked = None
            self._save()

    def residual(self, compute: Callable[[], float]) -> float:
        """The true residual of x, computed once."""
        if self._checked is None:
            self._checked = compute()
            self._save()
        return self._checked

    def _restore(self, state: Arrays, vectors: dict[int, Tensor]) -> None:
        if isinstance(self.op, Remembered):
            self.op.restore(vectors)
        slots = [str(slot) for slot in state["slots"]]
        names = [int(name) for name in state["slot_names"]]
        self._named = {
            slot: (name, vectors[name][:, None].to(self.op.device)) for slot, name in zip(slots, names, strict=True)
        }
        self.numbers = dict(zip([str(key) for key in state["keys"]], state["values"].tolist(), strict=True))
        self.ended, self._steps = bool(state["ended"]), int(state["steps"])
        self._next_name, self._earlier = int(state["next_name"]), self._earlier + int(state["products"])
        checked = float(state["checked"])
        self._checked = None if math.isnan(checked) else checked

    def _save(self) -> None:
        if self._store is None:
            return
        state: dict[str, Any] = {
            "slots": list(self._named),
            "slot_names": [name for name, _ in self._named.values()],
            "keys": list(self.numbers),
            "values": list(self.numbers.values()),
            "ended": self.ended,
            "steps": self._steps,
            "next_name": self._next_name,
            "products": self.products,
            "checked": math.nan if self._checked is None else self._checked,
        }
        vectors = {name: vector[:, 0] for name, vector in self._named.values()}
        if isinstance(self.op, Remembered):
            vectors |= self.op.state()
        self._store.save(state, list(vectors), vectors.values())


class ConjugateGradients(Recurrence):
    """Needs A + damping · I positive definite, and refuses negative curvature."""

    def _start(self, b: Tensor) -> None:
        self["x"], self["r"], self["p"] = torch.zeros_like(b), b, b
        self.numbers["rho"] = float(self.layout.inner(b, b))

    def _step(self, goal: float) -> None:
        p, rho = self["p"], self.numbers["rho"]
        image = self.times(p)
        curvature = float(self.layout.inner(p, image))
        if not curvature > 0:
            refuse(
                "conjugate gradients need positive curvature",
                f"{curvature:.1e} along a direction of {innermost(self.op)!r} + {self.damping:g} I",
                'Use method="minres", or raise damping.',
            )
        self["x"] = self["x"].add(p, alpha=rho / curvature)
        self["r"] = self["r"].sub(image, alpha=rho / curvature)
        following = float(self.layout.inner(self["r"], self["r"]))
        self.numbers["rho"] = following
        self.ended = following <= goal**2
        self["p"] = self["r"].add(p, alpha=following / rho)


class Minres(Recurrence):
    """Lanczos with the QR factorisation of its tridiagonal matrix updated by one Givens rotation per step."""

    def _start(self, b: Tensor) -> None:
        length = float(self.layout.norms(b))
        self["newest"] = b / length
        for name in ("x", "older", "step_older", "step_old"):
            self[name] = torch.zeros_like(b)
        self.numbers = {"beta": 0.0, "rest": length, "c_old": 1.0, "s_old": 0.0, "c": 1.0, "s": 0.0}

    def _step(self, goal: float) -> None:
        at, newest = self.numbers, self["newest"]
        image = self.times(newest)
        alpha = float(self.layout.inner(newest, image))
        image = image.sub(newest, alpha=alpha).sub(self["older"], alpha=at["beta"])
        following = float(self.layout.norms(image))
        far, turned = at["s_old"] * at["beta"], at["c_old"] * at["beta"]
        near, corner = at["c"] * turned + at["s"] * alpha, -at["s"] * turned + at["c"] * alpha
        length = math.hypot(corner, following)
        if length == 0.0:
            self.ended = True
            return
        direction = newest.sub(self["step_old"], alpha=near).sub(self["step_older"], alpha=far) / length
        at["c_old"], at["s_old"], at["c"], at["s"] = at["c"], at["s"], corner / length, following / length
        self["x"] = self["x"].add(direction, alpha=at["c"] * at["rest"])
        at["rest"] *= -at["s"]
        self.ended = abs(at["rest"]) <= goal or following == 0.0
        if self.ended:
            return
        self.hand_on("step_old", "step_older")
        self["step_old"] = direction
        self.hand_on("newest", "older")
        self["newest"], at["beta"] = image / following, following
