"""GLM Hessians: corollaries in closed form, degenerate geometry, total derivatives, and simulation."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import brentq

from hesscope.errors import InputError
from hesscope.measure import AtomicMeasure
from hesscope.rmt import GLM, GeneralisedMarchenkoPastur, MarchenkoPastur
from hesscope.rng import Rng
from properties import examples
from rmt.law_integrals import total_mass

X, Y, Z = np.eye(3)
ZERO = np.zeros(3)


def test_importing_the_theory_does_not_import_torch() -> None:
    code = "import sys, hesscope.rmt; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(("rho", "ratio"), [(0.8, 0.25), (3.0, 0.25), (2.0, 1.5), (0.4, 0.25), (0.49, 0.25)])
def test_corollary_one(rho: float, ratio: float) -> None:
    model = GLM(loss="logistic", w=ZERO, w_star=ZERO, mean=np.sqrt(rho) * X, ratio=ratio)
    law, exact = model.law(), MarchenkoPastur(ratio, 0.25)
    x = np.linspace(*exact.support[0], 101)[1:-1]
    assert np.abs(law.density(x) - exact.density(x)).max() < 1e-8
    spikes = model.spikes()
    if rho <= np.sqrt(ratio):
        assert spikes == []
        return
    (spike,) = spikes
    assert spike.side == "right"
    assert spike.isolated
    assert spike.location == pytest.approx(0.25 * (1 + rho + ratio * (rho + 1) / rho), abs=1e-8)
    assert spike.alignment.mean == pytest.approx((rho**2 - ratio) / (rho**2 + ratio * rho), abs=1e-8)


@pytest.mark.parametrize("norm", [1.5, 2.0, 4.0])
def test_corollary_two(norm: float) -> None:
    ratio = 0.1
    model = GLM(loss="logistic", w=norm * X, w_star=0.7 * Y, mean=ZERO, ratio=ratio)
    nodes = np.linspace(-9.0, 9.0, 4001)
    weights = np.exp(-0.5 * nodes**2)
    r, weights = norm * nodes, weights / weights.sum()

    def f(m: complex) -> np.ndarray:
        return 1 / (ratio * m + 2 + np.exp(-r) + np.exp(r))

    for z in (0.1 + 0.02j, 0.2 + 0.05j, -0.1 + 0j):
        m = complex(model.law().stieltjes(z))
        assert abs(m - 1 / (weights @ f(m) - z)) < 1e-8 * abs(m)
    (spike,) = model.spikes()
    assert spike.side == "left"

    def determinant(x: float) -> float:
        m = float(model.law().stieltjes(x).real)
        return 1 + m * float(weights @ (f(m) * (r**2 - norm**2))) / norm**2

    left_edge = model.law().edges[0]
    assert brentq(determinant, 1e-6, left_edge - 1e-7, xtol=1e-14) == pytest.approx(spike.location, abs=1e-8)


def test_square_loss_is_marchenko_pastur_with_a_mean_spike() -> None:
    model = GLM(loss="square", w=X, w_star=Y, mean=2 * Z, ratio=0.5)
    assert np.allclose(model.law().edges, MarchenkoPastur(0.5).edges, atol=1e-10)
    (spike,) = model.spikes()
    rho, c = 4.0, 0.5
    assert spike.location == pytest.approx((1 + rho) * (1 + c / rho), abs=1e-8)
    assert spike.alignment.mean == pytest.approx((rho**2 - c) / (rho**2 + c * rho), abs=1e-8)
    assert spike.alignment.w == pytest.approx(0.0, abs=1e-12)


def test_expectation_of_the_hessian_is_the_limit_of_small_ratio() -> None:
    # p fixed, n → ∞: H → E[H], whose (1, 1) block weight is E[g], not 1.
    mean, w, w_star = np.array([0.5, 0.2, 0.0]), np.array([1.0, 0.0, 0.4]), np.array([0.3, -0.8, 0.0])
    model = GLM(loss="exponential", w=w, w_star=w_star, mean=mean, ratio=1e-6)
    step = np.linspace(-7.5, 7.5, 76)
    z = np.stack(np.meshgrid(step, step, step, indexing="ij"), -1).reshape(-1, 3)
    share = np.exp(-0.5 * (z**2).sum(1))
    share /= share.sum()
    x = z + mean
    h, t = x @ w, x @ w_star
    g = np.exp(-h) / (1 + np.exp(-t)) + np.exp(h) / (1 + np.exp(t))
    exact = np.linalg.eigvalsh((x.T * (share * g)) @ x)
    assert model._expectation.moments[:, 0, 0] @ model._expectation.nodes == pytest.approx(share @ g, rel=1e-9)
    lam = model._expectation.weighted(model._expectation.nodes)
    v = np.stack([mean, w_star, w], axis=1) @ model.spike_equation.mix
    assert np.allclose(np.linalg.eigvalsh((share @ g) * np.eye(3) + v @ lam @ v.T), exact, rtol=1e-8)


def test_alignment_needs_the_total_derivative() -> None:
    # Residues of the deterministic equivalent by a small circle around the spike: an independent route to Theorem 3.
    covariance = np.array([1.0, 2.5, 1.0])
    model = GLM(loss="logistic", w=[1.0, 0.5, 0.0], w_star=ZERO, mean=[0.0, 1.2, 0.9], ratio=0.1, covariance=covariance)
    equation = model.spike_equation
    mean, _, w = np.array([[0.0, 1.2, 0.9], ZERO, [1.0, 0.5, 0.0]])
    v = np.stack([mean, ZERO, covariance * w], axis=1) @ equation.mix
    spikes = model.spikes()
    assert spikes
    for spike in spikes:
        radius = 0.5 * spike.distance
        circle = radius * np.exp(2j * np.pi * (np.arange(64) + 0.5) / 64)
        overlap = 0.0
        for step in circle:
            z = np.array([spike.location + step])
            delta, e = (value[0] for value in model.law().fixed_point(z))
            if z[0].imag < 0:
                delta, e = np.conj(delta), np.conj(e)
            nodes = equation.expectation.nodes
            # The contour serves the upper half-plane; below it, conjugate.
            upper = np.conj(delta) if z[0].imag < 0 else delta
            lam = np.tensordot(nodes / (1 + nodes * upper), equation.expectation.moments, axes=([0], [0]))
            lam = np.conj(lam) if z[0].imag < 0 else lam
            inverse = np.diag(e * covariance - z[0]) + v @ lam @ v.T
            overlap += -(mean @ np.linalg.solve(inverse, mean)) * step / 64
        assert overlap.real / (mean @ mean) == pytest.approx(spike.alignment.mean, abs=1e-7)
        assert 0 < spike.alignment.mean <= 1


def test_only_the_geometry_matters() -> None:
    rng = np.random.default_rng(3)
    q, _ = np.linalg.qr(rng.standard_normal((7, 7)))
    vectors = rng.standard_normal((3, 7))
    spectrum = np.array([1, 1, 1, 2, 2, 4, 4.0])
    plain = GLM(loss="logistic", mean=vectors[0], w_star=vectors[1], w=vectors[2], covariance=spectrum, ratio=0.3)
    turned = GLM(
        loss="logistic",
        mean=q @ vectors[0],
        w_star=q @ vectors[1],
        w=q @ vectors[2],
        covariance=q @ np.diag(spectrum) @ q.T,
        ratio=0.3,
    )
    assert np.allclose(plain.law().edges, turned.law().edges, atol=1e-10)
    for one, two in zip(plain.spikes(), turned.spikes(), strict=True):
        assert one.location == pytest.approx(two.location, abs=1e-9)
        assert one.alignment.w == pytest.approx(two.alignment.w, abs=1e-7)


@pytest.mark.parametrize("loss", ["logistic", "exponential", "square", "phase_retrieval"])
@pytest.mark.parametrize(
    ("w", "w_star", "mean"),
    [
        (ZERO, ZERO, ZERO),
        (ZERO, X, ZERO),
        (X, ZERO, ZERO),
        (X, X, ZERO),
        (X, X, X),
        (X, -2 * X, 0.5 * X),
        (X, Y, X + Y),
    ],
)
def test_degenerate_geometries(loss: str, w: np.ndarray, w_star: np.ndarray, mean: np.ndarray) -> None:
    response = "phase_retrieval" if loss == "phase_retrieval" else "logistic"
    model = GLM(loss=loss, response=response, w=w, w_star=w_star, mean=mean, ratio=0.2)
    # A direct sample of g decides the first two moments of the law.
    draws = Rng(5).child(loss).numpy().standard_normal((200_000, 3)) + mean
    y = model._response.draw(Rng(6).numpy(), draws @ w_star)
    g = model._loss.curvature(y, draws @ w)
    assert abs(g.mean() - model._law._g.moment(1)) <= 4 * g.std() / np.sqrt(g.size) + 1e-12
    assert all(
        0 < value <= 1 + 1e-9 or value != value for s in model.spikes() for value in [max(vars(s.alignment).values())]
    )
    low, high = (float(model.law().quantile(q)) for q in (0.05, 0.95)) if model.law().support else (0.0, 0.0)
    assert low <= model.law().mean <= high or loss == "phase_retrieval"


def test_phase_retrieval_at_the_truth_is_chi_squared() -> None:
    # g = 2 |w|² χ²₁ when w = w_star.
    model = GLM(loss="phase_retrieval", response="phase_retrieval", w=1.5 * X, w_star=1.5 * X, mean=ZERO, ratio=0.2)
    assert model._law._g.moment(1) == pytest.approx(2 * 1.5**2, rel=1e-10)
    assert model._law._g.moment(2) == pytest.approx(3 * (2 * 1.5**2) ** 2, rel=1e-10)
    (bulk,) = model.law().support
    assert np.isfinite(bulk[0])
    assert bulk[1] == np.inf


def test_exponential_loss_is_log_normal_only_for_independent_labels() -> None:
    free = GLM(loss="exponential", w=X, w_star=ZERO, mean=ZERO, ratio=0.2)
    tied = GLM(loss="exponential", w=X, w_star=2 * X, mean=ZERO, ratio=0.2)
    for k in (1, 2, 3):
        assert free._law._g.moment(k) == pytest.approx(np.exp(0.5 * k**2), rel=1e-9)
    assert tied._law._g.moment(1) < 0.8 * np.exp(0.5)


def test_tails_of_an_unbounded_law_are_smooth() -> None:
    law = GLM(loss="exponential", w=X, w_star=ZERO, mean=ZERO, ratio=0.2).law()
    assert law.support[0][1] == np.inf
    x = np.linspace(8.0, 40.0, 400)
    density = law.density(x)
    assert (density > 0).all()
    assert (np.diff(density) < 0).all()
    assert (np.diff(np.log(density), 2) > -1e-6).all()


def test_an_unbounded_callable_gets_the_same_contour_quality() -> None:
    named = GLM(loss="exponential", w=X, w_star=0.5 * Y, mean=ZERO, ratio=0.2).law()
    called = GLM(loss=lambda y, h: np.exp(-y * h), w=X, w_star=0.5 * Y, mean=ZERO, ratio=0.2).law()
    x = np.linspace(0.5, 12.0, 60)
    assert np.abs(named.density(x) - called.density(x)).max() < 1e-6


def test_a_loss_with_two_curvatures_has_atoms() -> None:
    # Huber: g = 1{|h| < 1}; with c large the zeros of g are zeros of the Hessian.
    model = GLM(loss=lambda y, h: (np.abs(h) < 1.0).astype(float), w=X, w_star=ZERO, mean=ZERO, ratio=0.9)
    inside = 0.6826894921370859
    with pytest.warns(UserWarning, match="settled to .* only: l'' jumps"):
        _, error = model.accuracy
    assert error < 0.01
    assert model._law._g.zero_mass == pytest.approx(1 - inside, abs=2 * error)
    assert model.law().mass_at_zero == pytest.approx(1 - inside / 0.9, abs=2 * error / 0.9)


def test_long_weights_do_not_overflow() -> None:
    """g = 1/(4 cosh²(h/2)) with h far beyond what cosh can hold: the law against simulated spectra."""
    model = GLM(loss="logistic", w=100 * X, w_star=ZERO, mean=ZERO, ratio=0.1)
    assert model.accuracy[1] < 1e-10
    # One in 25 samples has |h| < 5 and counts: 80 a run, so that pooled over 16 runs their number varies by 2.8 %.
    runs = np.concatenate([model.simulate(200, Rng(3).child(k)).eigenvalues for k in range(16)])
    levels = np.linspace(0.1, 0.95, 6)
    np.testing.assert_allclose(model.law().cdf(np.quantile(runs, levels)), levels, atol=0.03)


@pytest.mark.parametrize("length", [3.0, 20.0])
def test_an_unbounded_curvature_has_one_bulk_without_end(length: float) -> None:
    """g = 3h² − y with y = ±1: scaled by |w|², the laws tend to one; the poles of P(y | t) come ever closer."""
    model = GLM(loss="phase_retrieval", w=length * X, w_star=length * X, mean=ZERO, ratio=0.1)
    ((low, high),) = model.law().support
    assert high == np.inf
    run = model.simulate(300, Rng(4))
    assert low == pytest.approx(run.eigenvalues[0], rel=0.1)
    assert model.law().kolmogorov(AtomicMeasure.of(run.eigenvalues)) < 0.05


def test_what_is_not_resolved_is_said() -> None:
    model = GLM(loss=lambda y, h: np.abs(h), w=X, w_star=ZERO, mean=ZERO, ratio=0.5)
    with pytest.warns(UserWarning, match="known at real points only"):
        _ = model.accuracy


def test_a_sampled_response_reports_its_standard_error() -> None:
    def noisy(rng: np.random.Generator, t: np.ndarray) -> np.ndarray:
        return np.where(rng.random(t.shape) < 1 / (1 + np.exp(-t)), 1.0, -1.0)

    exact = GLM(loss="exponential", w=0.5 * X, w_star=0.5 * X, mean=ZERO, ratio=0.2)
    drawn = GLM(loss="exponential", w=0.5 * X, w_star=0.5 * X, mean=ZERO, ratio=0.2, response=noisy)
    kind, error = drawn.accuracy
    assert kind == "sampling"
    assert 0 < error < 0.01
    assert abs(drawn._law._g.moment(1) - exact._law._g.moment(1)) <= 4 * error
    assert exact.accuracy[0] == "quadrature"
    assert exact.accuracy[1] < 1e-10


def test_density_is_positive_all_over_the_support() -> None:
    """Next to an inner edge a real root repels: lifted above the axis by rounding, it gave a density of zero."""
    law = GLM(loss="logistic", w=[0.5, 0.0], w_star=[0.0, 0.0], mean=[0.0, 0.0], ratio=0.5, covariance=[1.0, 6.0]).law()
    assert len(law.support) == 2
    for left, right in law.support:
        x = left + (right - left) * np.sin(np.linspace(0, np.pi / 2, 2001)[1:-1]) ** 2
        density = law.density(x)
        middle = np.sqrt((x - left) * (right - x))
        assert (density > 0.05 * middle).all()
        assert (np.diff(law.cdf(x)) > 0).all()


@examples(8)
@given(st.floats(0.05, 4.0), st.floats(0.0, 3.0), st.floats(-1.0, 1.0), st.floats(0.03, 2.0), st.floats(1.0, 8.0))
def test_logistic_models_integrate_to_one(norm: float, mean: float, tilt: float, ratio: float, spread: float) -> None:
    model = GLM(
        loss="logistic", w=[norm, 0.0], w_star=[0.0, 0.0], mean=[tilt, mean], ratio=ratio, covariance=[1.0, spread]
    )
    law = model.law()
    assume(abs(ratio - 1) > 0.05)  # at a hard edge the density of a spread-out g defies the quadrature of this test
    for spike in model.spikes():
        assert -1e-9 <= spike.alignment.w <= 1 + 1e-6
        assert not any(left < spike.location < right for left, right in law.support)
    assert abs(total_mass(law) - 1) < 1e-6


def test_transitions_match_corollary_one_and_stay_apart_in_corollary_two() -> None:
    mean = GLM(loss="logistic", w=ZERO, w_star=ZERO, mean=X, ratio=0.25)
    (single,) = mean.transitions("mean", np.linspace(0.2, 2.0, 8))
    assert single.norm**2 == pytest.approx(0.5, abs=1e-9)
    assert (single.side, single.appears) == ("right", True)
    model = GLM(loss="logistic", w=X, w_star=ZERO, mean=ZERO, ratio=0.1)
    (left,) = model.transitions("w", np.geomspace(0.5, 30.0, 10))
    assert (left.side, left.appears) == ("left", True)
    assert not model.rescaled(w=0.999 * left.norm).spikes()
    assert model.rescaled(w=1.02 * left.norm).spikes()


def test_simulations_agree_at_three_sizes() -> None:
    covariance = np.repeat([1.0, 4.0], 2)
    model = GLM(
        loss="logistic", w=[1.0, 0, 0.5, 0], w_star=ZERO[:1].repeat(4), mean=[0.0, 2.0, 0, 2.0], ratio=0.15,
        covariance=covariance,
    )  # fmt: skip
    spike = model.spikes()[-1]
    assert spike.side == "right"
    distances, errors = [], []
    for p in (80, 160, 320):
        runs = [model.simulate(p, Rng(7).child(p, run)) for run in range(8)]
        distances.append(np.mean([model.law().kolmogorov(run.measure) for run in runs]))
        errors.append(np.mean([run.eigenvalues[-1] for run in runs]) - spike.location)
        spread = np.std([run.eigenvalues[-1] for run in runs], ddof=1) / np.sqrt(8)
        assert abs(errors[-1]) <= 4 * spread + 3.0 * spike.location / p
    # One run fluctuates like 1/√n through the empirical law of g and like 1/p through its eigenvalues.
    assert distances[2] < 0.65 * distances[0]
    assert distances[2] < 0.02


def test_non_gaussian_features_follow_the_same_law() -> None:
    model = GLM(loss="logistic", w=2 * X, w_star=ZERO, mean=ZERO, ratio=0.2)
    (spike,) = model.spikes()
    for features in ("rademacher", "uniform", "student"):
        run = model.simulate(400, Rng(8).child(features), features=features)
        assert model.law().kolmogorov(run.measure) < 0.02
        assert run.eigenvalues[0] == pytest.approx(spike.location, rel=0.1)


def test_bad_input_is_refused() -> None:
    good = {"loss": "logistic", "w": X, "w_star": Y, "mean": Z, "ratio": 0.5}
    bad: list[tuple[dict[str, Any], str]] = [
        ({"ratio": -1.0}, "ratio"),
        ({"ratio": np.nan}, "ratio"),
        ({"covariance": [1.0, 0.0, 1.0]}, "positive definite"),
        ({"covariance": np.ones(2)}, "covariance"),
        ({"covariance": np.array([[1.0, 2, 0], [0, 1, 0], [0, 0, 1]])}, "symmetric"),
        ({"w": np.zeros(2)}, "one length"),
        ({"loss": "hinge"}, "known name"),
        ({"loss": lambda y, h: 1 / (h - h)}, "finite"),
        ({"response": "poisson"}, "known name"),
    ]
    for change, message in bad:
        with np.errstate(all="ignore"), pytest.raises(InputError, match=message):
            GLM(**{**good, **change})
    with pytest.raises(InputError, match="distribution"):
        GLM(**good).simulate(50, Rng(0), features="cauchy")
    with pytest.raises(InputError, match="room"):
        GLM(**{**good, "covariance": [1.0, 2.0, 3.0]}).simulate(2, Rng(0))


def test_separable_covariance_is_the_law_of_a_constant_curvature() -> None:
    covariance = np.array([1.0, 3.0, 3.0])
    model = GLM(loss="square", w=X, w_star=Y, mean=ZERO, ratio=0.2, covariance=covariance)
    exact = GeneralisedMarchenkoPastur(AtomicMeasure.of([1.0]), AtomicMeasure.of(covariance), 0.2)
    x = np.linspace(0.2, 6.0, 50)
    assert np.abs(model.law().density(x) - exact.density(x)).max() < 1e-8
