"""Each statement of Liao & Mahoney that needs correction, decided by computation or simulation."""

from __future__ import annotations

import numpy as np
import pytest

from hesscope.rmt import GLM
from hesscope.rng import Rng

X, Y, Z = np.eye(3)
ZERO = np.zeros(3)


def test_expected_hessian_has_mean_curvature_in_its_corner() -> None:
    # At w = w_star = 0 and logistic loss g = 1/4, so E[H] = (C + mean meanᵀ)/4: the corner is E[g], not 1.
    model = GLM(loss="logistic", w=ZERO, w_star=ZERO, mean=2 * X, ratio=0.1)
    corner = model._expectation.weighted(model._expectation.nodes)[0, 0]
    assert corner == pytest.approx(0.25)
    x = Rng(0).numpy().standard_normal((200_000, 3)) + 2 * X
    sample = 0.25 * x.T @ x / len(x)
    assert np.abs(sample - 0.25 * np.eye(3) - corner * np.outer(2 * X, 2 * X)).max() < 0.01


def test_phase_retrieval_carries_w_star_at_the_left_end() -> None:
    model = GLM(loss="phase_retrieval", response="phase_retrieval", w=X, w_star=2 * Y, mean=ZERO, ratio=0.13)
    left, right = [], []
    for run in range(4):
        one = model.simulate(200, Rng(1).child(run))
        left.append((one.alignment(0).w_star, one.alignment(0).w))
        right.append((one.alignment(-1).w_star, one.alignment(-1).w))
    (bottom_star, bottom_w), (top_star, top_w) = np.mean(left, axis=0), np.mean(right, axis=0)
    assert bottom_star > 0.3 > 5 * bottom_w
    assert top_w > 0.2 > 5 * top_star


def test_the_sign_condition_of_footnote_six_would_reject_left_spikes() -> None:
    model = GLM(loss="logistic", w=2 * X, w_star=ZERO, mean=ZERO, ratio=0.1)
    (spike,) = model.spikes()
    z_m = spike.location * float(model.law().stieltjes(spike.location).real)
    assert spike.side == "left"
    assert z_m > 0  # footnote 6 asks for z m(z) < 0
    assert model.simulate(400, Rng(2)).eigenvalues[0] == pytest.approx(spike.location, rel=0.06)


def test_without_the_derivative_of_delta_every_alignment_is_one() -> None:
    rho, ratio = 0.8, 0.25
    model = GLM(loss="logistic", w=ZERO, w_star=ZERO, mean=np.sqrt(rho) * X, ratio=ratio)
    (spike,) = model.spikes()
    delta, e = (float(v[0].real) for v in model.law().fixed_point(np.array([spike.location + 0j])))
    lam = 0.25 / (1 + 0.25 * delta)
    resolvent = 1 / (e - spike.location)
    explicit = lam * rho * resolvent**2  # dG/dx at fixed δ, G = 1 + Λ |mean|²/(e - x)
    assert (rho * resolvent) * lam * resolvent / explicit == pytest.approx(1.0)
    assert spike.alignment.mean == pytest.approx((rho**2 - ratio) / (rho**2 + ratio * rho), abs=1e-8)


def test_the_left_spike_merges_again_only_at_large_ratios_and_its_alignment_peaks() -> None:
    line = GLM(loss="logistic", w=[1.0], w_star=[0.0], mean=[0.0], ratio=0.1)
    assert [t.appears for t in line.transitions("w", [0.5, 2.0, 8.0, 20.0])] == [True]
    other = GLM(loss="logistic", w=[1.0], w_star=[0.0], mean=[0.0], ratio=0.35)
    first, last = other.transitions("w", [3.0, 6.0, 14.0, 24.0])
    assert (first.appears, last.appears) == (True, False)
    assert 1e-3 > other.rescaled(w=0.97 * last.norm).spikes()[0].distance > 0
    assert other.rescaled(w=1.05 * last.norm).spikes() == []
    alignments = [
        GLM(loss="logistic", w=[norm], w_star=[0.0], mean=[0.0], ratio=0.2).spikes()[0].alignment.w
        for norm in (3.0, 9.0, 24.0)
    ]
    assert alignments[0] < alignments[1] > alignments[2] + 0.03


def test_a_spike_can_sit_between_two_bulks() -> None:
    model = GLM(loss="square", w=[0.0, 0.0], w_star=[0.0, 0.0], mean=[2.0, 0.0], ratio=0.05, covariance=[1.0, 16.0])
    (spike,) = model.spikes()
    assert spike.side == "gap"
    (_, low), (high, _) = model.law().support
    values = model.simulate(400, Rng(3)).eigenvalues
    between = values[(values > low + 0.3 * (spike.location - low)) & (values < high - 0.3 * (high - spike.location))]
    assert between.size == 1
    assert between[0] == pytest.approx(spike.location, rel=0.05)


@pytest.mark.parametrize(("ratio", "norm"), [(0.1, 40.0), (0.2, 10.0), (0.2, 40.0)])
def test_simulated_alignments_far_beyond_the_range_of_figure_five(ratio: float, norm: float) -> None:
    model = GLM(loss="logistic", w=[norm], w_star=[0.0], mean=[0.0], ratio=ratio)
    (spike,) = model.spikes()
    # Squared cosines near one are skewed to the left (about -2): a dozen runs would underestimate their spread.
    runs = 80
    found = [model.simulate(200, Rng(4).child(ratio, norm, run)).alignment(0).w for run in range(runs)]
    assert abs(np.mean(found) - spike.alignment.w) <= 4 * np.std(found, ddof=1) / np.sqrt(runs)


def test_after_a_true_merger_the_bottom_eigenvector_forgets_w() -> None:
    model = GLM(loss="logistic", w=[30.0], w_star=[0.0], mean=[0.0], ratio=0.35)
    assert model.spikes() == []
    assert np.mean([model.simulate(200, Rng(5).child(run)).alignment(0).w for run in range(12)]) < 0.25
