"""Closed-form, softmax and fitted laws."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import ArrayLike

from hesscope.errors import InputError
from hesscope.measure import AtomicMeasure
from hesscope.rmt import GLM, GeneralisedMarchenkoPastur, MarchenkoPastur, SoftmaxGLM, fit
from hesscope.rng import Rng
from rmt.law_integrals import total_mass


def spectrum(g: list[float], t: list[float], ratio: float, p: int = 400, seed: int = 0) -> np.ndarray:
    n = round(p / ratio)
    x = np.sqrt(np.resize(t, p))[:, None] * np.random.default_rng(seed).standard_normal((p, n))
    return np.linalg.eigvalsh((x * np.resize(g, n)) @ x.T / n)


@pytest.mark.parametrize(("ratio", "scale"), [(0.25, 2.0), (1.0, 1.0), (3.0, -1.5)])
def test_marchenko_pastur_agrees_with_the_iteration(ratio: float, scale: float) -> None:
    closed, solved = MarchenkoPastur(ratio, scale), GeneralisedMarchenkoPastur(AtomicMeasure.of([scale]), None, ratio)
    left, right = closed.support[0]
    x = np.linspace(left, right, 101)[1:-1]
    assert np.abs(closed.density(x) - solved.density(x)).max() < 1e-8
    assert np.abs(closed.cdf(x) - solved.cdf(x)).max() < 1e-12
    assert np.allclose(closed.edges, solved.edges, atol=1e-10)
    assert [closed.moment(k) for k in range(6)] == pytest.approx([solved.moment(k) for k in range(6)], rel=1e-13)
    assert total_mass(closed) == pytest.approx(1.0, abs=1e-9)


def test_two_classes_are_logistic_regression() -> None:
    # A = p(1 - p) [[1, -1], [-1, 1]] has the eigenvalue 2 p(1 - p), with logit difference of variance 2 std².
    law = SoftmaxGLM(classes=2, logit_std=1.0, ratio=0.3).law()
    logistic = GLM(loss="logistic", w=[np.sqrt(2.0)], w_star=[0.0], mean=[0.0], ratio=0.3).law()
    x = np.linspace(0.05, 0.9, 60)
    assert np.abs(law.density(x) - 0.5 * logistic.density(x / 2) / 2).max() < 1e-8
    assert np.allclose(law.edges, 2 * np.array(logistic.edges), atol=1e-9)
    assert law.mass_at_zero == 0.5


@pytest.mark.parametrize(("classes", "ratio"), [(3, 0.3), (5, 0.5), (4, 2.0)])
def test_softmax_hessians_follow_their_law(classes: int, ratio: float) -> None:
    model = SoftmaxGLM(classes=classes, logit_std=1.0, ratio=ratio, population_c=AtomicMeasure.of([0.5, 1.5]))
    law = model.law()
    assert model.accuracy[0] == "sampling"
    assert model.accuracy[1] < 1e-3
    assert law.kolmogorov(model.simulate(120, Rng(1).child(classes))) < 0.02
    assert law.moment(0) == 1.0
    assert float(law.quantile(0.5 / classes)) == 0.0 or ratio < 1


@pytest.mark.parametrize(
    ("family", "g", "t", "ratio"),
    [
        ("marchenko_pastur", [2.0], [1.0], 0.3),
        ("two_scales", [1.0], [1.0, 5.0], 0.05),
        ("signed", [-1.0, 1.0, 1.0], [1.0], 0.7),
    ],
)
def test_fit_names_the_law_that_made_the_spectrum(family: str, g: list[float], t: list[float], ratio: float) -> None:
    found = fit(AtomicMeasure.of(spectrum(g, t, ratio)))
    assert found.family == family
    assert found.kolmogorov < 0.02
    assert found.outliers.size == 0
    assert found.parameters["ratio"] == pytest.approx(ratio, rel=0.1)
    assert {f.family for f in found.alternatives} == {"marchenko_pastur", "log_normal", "two_scales", "signed"} - {
        family
    }


def test_fit_keeps_zeros_and_outliers_apart() -> None:
    values = np.concatenate([np.zeros(400), spectrum([3.0], [1.0], 0.25), [12.0, 20.0]])
    found = fit(AtomicMeasure.of(values))
    assert found.family == "marchenko_pastur"
    assert found.outliers.tolist() == [12.0, 20.0]
    assert found.parameters["scale"] == pytest.approx(3.0, rel=0.03)
    assert found.law.mass_at_zero == pytest.approx(400 / 802)


def test_refusals() -> None:
    with pytest.raises(InputError, match="classes"):
        SoftmaxGLM(classes=1, logit_std=1.0, ratio=0.5)
    with pytest.raises(InputError, match="eight"):
        fit(AtomicMeasure.of([1.0, 2.0]))
    with pytest.raises(InputError, match="scale"):
        MarchenkoPastur(0.5, 0.0)


def test_the_integral_of_a_noisy_density_takes_bounded_work() -> None:
    """Rounding of one part in a million cannot be halved away; the mass is then as good as the noise, not endless."""
    law, calls = MarchenkoPastur(0.3), [0]

    class Noisy(MarchenkoPastur):
        def density(self, x: ArrayLike, width: float = 0.0) -> np.ndarray:
            calls[0] += np.size(x)
            return law.density(x, width) * (1 + 1e-6 * np.sin(1e9 * np.asarray(x)))

    assert abs(total_mass(law) - 1) < 1e-12
    assert abs(total_mass(Noisy(0.3)) - 1) < 1e-6
    assert calls[0] < 100_000
