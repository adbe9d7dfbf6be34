"""The separable law: closed forms, exact identities, and random populations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hesscope.errors import InputError
from hesscope.measure import AtomicMeasure
from hesscope.rmt import GeneralisedMarchenkoPastur

ONE = AtomicMeasure.of([1.0])


def total_mass(law: GeneralisedMarchenkoPastur) -> float:
    """The integral of the density by adaptive Gauss panels in the angle of each bulk, plus the atom at zero."""
    nodes, weights = np.polynomial.legendre.leggauss(24)
    total = law.mass_at_zero
    for left, right in law.support:

        def integrand(angle: np.ndarray, left: float = left, right: float = right) -> np.ndarray:
            half = 0.5 * (right - left)
            return law.density(0.5 * (left + right) - half * np.cos(angle)) * half * np.sin(angle)

        panels = np.linspace(0.0, np.pi, 9)
        left_ends, right_ends = panels[:-1], panels[1:]
        for _ in range(40):
            middle = 0.5 * (left_ends + right_ends)
            whole = _panel(integrand, left_ends, right_ends, nodes, weights)
            halves = _panel(integrand, left_ends, middle, nodes, weights) + _panel(
                integrand, middle, right_ends, nodes, weights
            )
            split = np.abs(whole - halves) > 1e-10
            total += halves[~split].sum()
            left_ends, right_ends = (
                np.concatenate([left_ends[split], middle[split]]),
                np.concatenate([middle[split], right_ends[split]]),
            )
            if left_ends.size == 0:
                break
        else:
            total += _panel(integrand, left_ends, right_ends, nodes, weights).sum()
    return float(total)


def _panel(f, a, b, nodes, weights):
    points = 0.5 * (a + b)[:, None] + 0.5 * (b - a)[:, None] * nodes
    return (f(points.reshape(-1)).reshape(points.shape) @ weights) * 0.5 * (b - a)


def atoms(values: st.SearchStrategy[float], most: int) -> st.SearchStrategy[AtomicMeasure]:
    pairs = st.lists(st.tuples(values, st.floats(0.05, 1.0)), min_size=1, max_size=most)
    return pairs.map(lambda rows: AtomicMeasure.of([r[0] for r in rows], [r[1] for r in rows]))


signed = st.floats(-4.0, 4.0).filter(lambda v: abs(v) > 1e-3) | st.just(0.0)
positive = st.floats(0.05, 10.0)
ratios = st.floats(0.02, 20.0)


@settings(deadline=None, max_examples=60)
@given(atoms(signed, 6), atoms(positive, 4), ratios)
def test_every_law_converges_with_unit_mass(g: AtomicMeasure, t: AtomicMeasure, ratio: float) -> None:
    law = GeneralisedMarchenkoPastur(g, t, ratio)
    x = np.concatenate([np.linspace(a, b, 60)[1:-1] for a, b in law.support] or [np.array([0.5])])
    z = x.astype(complex)
    delta, e = law.fixed_point(z)
    residual = delta - ratio * (t.nodes / (np.multiply.outer(e, t.nodes) - z[:, None])) @ t.weights
    if law.support:
        assert (delta.imag > 0).all()
        assert np.abs(residual / delta).max() < 1e-9
    assert (law.density(x) >= 0).all()
    assert abs(total_mass(law) - 1.0) < 1e-6
