"""Q̄(z) of Theorem 4 against resolvents of simulated Hessians."""

from __future__ import annotations

import numpy as np
import pytest

from hesscope.errors import InputError
from hesscope.rmt import GLM
from hesscope.rng import Rng


def _model(p: int) -> GLM:
    halves = np.repeat([-1.0, 1.0], p // 2) / p**0.5
    other = np.tile([1.0, -1.0], p // 2) / p**0.5
    return GLM(loss="logistic", w=1.5 * halves, w_star=other, mean=0.8 * (halves + other), ratio=0.3)


@pytest.mark.parametrize("z", [-0.2 + 0j, 0.1 + 0.05j])
def test_bilinear_forms_and_the_trace_are_those_of_simulated_resolvents(z: complex) -> None:
    """Means over runs at p and p/2, extrapolated in 1/p, within 4 standard errors."""
    forms = {}
    for p in (60, 120):
        model = _model(p)
        vectors = np.array([model.mean, model.w_star, model.w])
        limit = model.deterministic_equivalent(z)
        exact = np.append((vectors @ limit @ vectors.T).ravel(), np.trace(limit) / p)
        rows = []
        for run in range(60):
            one = model.simulate(p, Rng(0).child(run), as_given=True)
            resolvent = np.linalg.inv(one.hessian - z * np.eye(p))
            rows.append(np.append((vectors @ resolvent @ vectors.T).ravel(), np.trace(resolvent) / p) - exact)
        forms[p] = np.array(rows)
    away = 2 * forms[120].mean(0) - forms[60].mean(0)
    spread = np.sqrt((4 * forms[120].var(0, ddof=1) + forms[60].var(0, ddof=1)) / 60)
    assert np.abs(away / spread).max() <= 4
    # Without the finite-rank part the forms are far off.
    law = _model(120).law().stieltjes(z)
    assert (
        np.abs(forms[120].mean(0)[:9] + (vectors @ limit @ vectors.T - law * vectors @ vectors.T).ravel()).max() > 0.1
    )


def test_poles_are_the_spikes() -> None:
    model = GLM(loss="logistic", w=[0.0], w_star=[0.0], mean=[1.0], ratio=0.25)
    (spike,) = model.spikes()
    near, far = (abs(model.deterministic_equivalent(spike.location + step)[0, 0]) for step in (1e-6, 1e-2))
    assert near > 1000 * far


@pytest.mark.parametrize("z", [0.2, complex("nan"), 0.1 - 0.1j])
def test_points_without_a_resolvent_are_refused(z: complex) -> None:
    model = GLM(loss="square", w=[0.0], w_star=[0.0], mean=[0.0], ratio=0.5)
    with pytest.raises(InputError, match="off the support"):
        model.deterministic_equivalent(z)
