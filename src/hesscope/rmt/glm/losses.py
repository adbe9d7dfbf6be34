"""Losses seen through their curvature g = ∂²ℓ/∂h²(y, h), and responses y ~ f(· | t); both accept complex arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arguments import real_array, shown
from ...errors import HesscopeError, refuse
from ...rng import Rng

Values = NDArray[Any]


@dataclass(frozen=True)
class Loss:
    """g(y, h), whether y matters, the interval that holds g, and how to push h below g's real axis (None: do not)."""

    name: str
    curvature: Callable[[Values, Values], Values]
    uses_response: bool
    range: tuple[float, float]
    contour: str | None


@dataclass(frozen=True)
class Response:
    """How y follows t: `outcomes(t)` lists (y, probability) pairs, or `draw(rng, t)` samples it."""

    name: str
    outcomes: Callable[[Values], list[tuple[Values, Values]]] | None
    draw: Callable[[np.random.Generator, Values], Values]


def _sigmoid(x: Values) -> Values:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * x)))


def _logistic_curvature(y: Values, h: Values) -> Values:
    """1/(4 cosh²(h/2)), by the exponential that decays: cosh itself overflows from |h| = 1420 on."""
    small = np.exp(-np.where(np.real(h) < 0, -h, h))
    return np.asarray(small / (1.0 + small) ** 2)


LOSSES = {
    "logistic": Loss("logistic", _logistic_curvature, False, (0.0, 0.25), "tanh"),
    "exponential": Loss("exponential", lambda y, h: np.exp(-y * h), True, (0.0, np.inf), "shift"),
    "square": Loss("square", lambda y, h: np.ones_like(h), False, (1.0, 1.0), None),
    "phase_retrieval": Loss("phase_retrieval", lambda y, h: 3.0 * h**2 - y, True, (-np.inf, np.inf), "rotate"),
}

RESPONSES = {
    "logistic": Response(
        "logistic",
        lambda t: [(np.ones_like(t), _sigmoid(t)), (-np.ones_like(t), _sigmoid(-t))],
        lambda rng, t: np.where(rng.random(t.shape) < _sigmoid(t), 1.0, -1.0),
    ),
    "phase_retrieval": Response("phase_retrieval", lambda t: [(t**2, np.ones_like(t))], lambda rng, t: t**2),
}


def as_loss(loss: str | Callable[[Values, Values], Values]) -> Loss:
    """A named loss, or one from the callable ℓ''(y, h) (on arrays; it may be evaluated anywhere on the line)."""
    if isinstance(loss, str):
        if loss not in LOSSES:
            refuse("a loss must be a known name or a callable l''(y, h)", f"{loss!r}", f"Names: {', '.join(LOSSES)}.")
        return LOSSES[loss]
    if not callable(loss):
        refuse("a loss must be a known name or a callable l''(y, h)", shown(loss), f"Names: {', '.join(LOSSES)}.")
    h = np.linspace(-3.0, 3.0, 7)
    for y in (np.ones(7), -np.ones(7), h**2):
        value = _tried("l''(y, h)", loss, y, h)
        if value.shape != h.shape or not np.all(np.isfinite(value)):
            refuse(
                "l''(y, h) must return one finite number per pair",
                f"shape {value.shape}, values {value}",
                "Use a loss that is twice differentiable, on arrays.",
            )
    return Loss("callable", loss, True, (-np.inf, np.inf), None)


def as_response(response: str | Callable[[np.random.Generator, Values], Values]) -> Response:
    """A named response, or a sampler draw(rng, t); one that ignores its rng is recognised as y = f(t) and integrated."""
    if isinstance(response, str):
        if response not in RESPONSES:
            refuse(
                "a response must be a known name or a callable draw(rng, t)",
                f"{response!r}",
                f"Names: {', '.join(RESPONSES)}.",
            )
        return RESPONSES[response]
    if not callable(response):
        refuse(
            "a response must be a known name or a callable draw(rng, t)",
            shown(response),
            f"Names: {', '.join(RESPONSES)}.",
        )
    t = np.linspace(-3.0, 3.0, 61)
    first, second = (_tried("draw(rng, t)", response, Rng(0).child("response", i).numpy(), t) for i in range(2))
    if first.shape != t.shape or not np.all(np.isfinite(first)):
        refuse("a response must return one finite y per t", f"shape {first.shape}", "Return an array shaped like t.")
    if np.array_equal(first, second):
        fixed = Rng(0).numpy()
        return Response("callable", lambda t: [(np.asarray(response(fixed, t)), np.ones(t.shape))], response)
    return Response("callable", None, response)


def _tried(what: str, function: Callable[..., Any], *arguments: Any) -> NDArray[np.float64]:
    """What a function of the user's own gives, as numbers."""
    try:
        return real_array(what, function(*arguments), "Return an array.")
    except HesscopeError:
        raise
    except Exception as error:
        refuse(f"{what} must run on arrays", f"{type(error).__name__}: {error}", "Try it on numpy.ones(7).")
