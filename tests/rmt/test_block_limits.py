"""Predicted block norms against simulated networks, closed forms and each other."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hesscope.errors import InputError
from hesscope.result import Result
from hesscope.rmt import block_limits
from hesscope.rmt.blocks.hidden_weights import one_example
from hesscope.rmt.blocks.logit_pairs import LogitMarginal, LogitPair
from hesscope.rmt.blocks.overlaps import overlap_moments
from hesscope.rmt.blocks.softmax_moments import SoftmaxMoments
from hesscope.rng import Rng
from properties import DEEP, examples

RATIOS = (0.5, 1.0, 2.0)
SIZES = {0.5: (80, 160), 1.0: (120, 120), 2.0: (160, 80)}  # (d, N)


def softmax(logits: np.ndarray) -> np.ndarray:
    p = np.exp(logits - logits.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def squared_norms(gram: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """||(1/N) X diag(a) X^T||²_F for each row a: a^T (K o K) a / N²."""
    return ((weights @ gram**2) * weights).sum(-1) / gram.shape[0] ** 2


def class_norms(gram: np.ndarray, p: np.ndarray, distinct: bool = False) -> tuple[float, float]:
    """Mean squared norms of the blocks of one class and of two, over all classes: sums over pairs of examples first.

    `distinct` leaves out each example's pair with itself, a part of size 1/N that the output layer's limit drops.
    """
    n, classes = p.shape
    own, product = p * (1 - p), p @ p.T
    kernel = gram**2 * (1 - np.eye(n)) * n / (n - 1) if distinct else gram**2
    one = (kernel * (own @ own.T)).sum() / (classes * n**2)
    two = (kernel * (product**2 - p**2 @ (p**2).T)).sum() / (classes * (classes - 1) * n**2)
    return one, two


def simulate_linear(ratio: float, classes: int, networks: int, shrink: int) -> np.ndarray:
    """Per network (X, V): the squared norms over d, of one class and of two."""
    d, n = (size // shrink for size in SIZES[ratio])
    generator = Rng(1).child("linear", ratio, classes, shrink).numpy()
    out = np.empty((networks, 2))
    for k in range(networks):
        x = generator.standard_normal((d, n))
        p = softmax(x.T @ generator.standard_normal((d, classes)) / np.sqrt(d))
        out[k] = np.array(class_norms(x.T @ x, p)) / d
    return out


def simulate_hidden(ratio: float, classes: int, hidden: int, networks: int, shrink: int, draws: int = 12) -> np.ndarray:
    """Per network (X, W): means over draws of V of h_ii, h_ij, u_ii, u_ij, q_ii, q_ij."""
    d, n = (size // shrink for size in SIZES[ratio])
    generator = Rng(2).child("hidden", ratio, classes, hidden, shrink).numpy()
    i, j = np.triu_indices(hidden, 1)
    out = np.empty((networks, 6))
    for k in range(networks):
        x = generator.standard_normal((d, n))
        active = np.maximum(x.T @ generator.standard_normal((d, hidden)) / np.sqrt(d), 0)
        gram, on = x.T @ x, (active > 0).astype(float)
        both = on[:, i] * on[:, j]
        rows = []
        for _ in range(draws):
            v = generator.standard_normal((classes, hidden)) / np.sqrt(hidden)
            p = softmax(active @ v.T)
            mean = p @ v
            weights = [
                on * (p @ v**2 - mean**2),
                both * (p @ (v[:, i] * v[:, j]) - mean[:, i] * mean[:, j]),
                2 * on * (v**2).sum(0),
                2 * both * (v[:, i] * v[:, j]).sum(0),
            ]
            norms = [squared_norms(gram, w.T).mean() / d for w in weights]
            rows.append([*norms, *class_norms(active @ active.T, p, distinct=True)])
        out[k] = np.mean(rows, axis=0)
    return out


def extrapolate(simulate: Callable[[int, int], np.ndarray], networks: int) -> tuple[np.ndarray, np.ndarray]:
    """2 E(d) - E(d/2), which removes the O(1/d) of the limit, and its standard error."""
    full, half = simulate(networks, 1), simulate(networks, 2)
    value = 2 * full.mean(0) - half.mean(0)
    return value, np.sqrt((4 * full.var(0, ddof=1) + half.var(0, ddof=1)) / networks)


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("classes", [2, 10, 100, 1000])
def test_linear_model_matches_simulation(ratio: float, classes: int) -> None:
    value, error = extrapolate(lambda k, shrink: simulate_linear(ratio, classes, k, shrink), 60)
    limit = block_limits.linear_cross_entropy(ratio, classes)
    predicted = np.array([limit.diagonal[0], limit.off_diagonal[0]])
    assert (error < 0.05 * predicted).all()
    assert (np.abs(value - predicted) <= 4 * error).all()


# Each number of classes with one of hidden units; the deep run takes all pairs.
@pytest.mark.parametrize(
    ("classes", "hidden"),
    [(c, m) for c in (2, 10, 100, 1000) for m in (4, 8)] if DEEP else [(2, 8), (10, 4), (100, 8), (1000, 4)],
)
@pytest.mark.parametrize("ratio", RATIOS)
def test_hidden_layer_networks_match_simulation(ratio: float, classes: int, hidden: int) -> None:
    networks = 30 if classes < 1000 else 12
    value, error = extrapolate(lambda k, shrink: simulate_hidden(ratio, classes, hidden, k, shrink), networks)
    limits = (
        block_limits.hidden_cross_entropy(ratio, classes, hidden),
        block_limits.hidden_mse(ratio, classes, hidden),
        cached_output(classes, hidden),
    )
    parts = [part for limit in limits for part in (limit.diagonal, limit.off_diagonal)]
    predicted, own_error = np.array(parts).T
    assert (own_error < 0.005 * predicted).all()
    assert (np.abs(value - predicted) <= 4 * np.hypot(error, own_error)).all()


@lru_cache
def cached_output(classes: int, hidden: int) -> block_limits.BlockLimit:
    return block_limits.output_cross_entropy(classes, hidden)


@pytest.mark.parametrize(("classes", "hidden"), [(3, 4), (40, 8)])
def test_two_example_terms_match_draws_of_the_weights(classes: int, hidden: int) -> None:
    """The same expectations by brute force: V, z and z' drawn, nothing integrated out; sharper than whole networks."""
    generator = Rng(3).child(classes, hidden).numpy()
    samples = []
    for _ in range(40):
        v = generator.standard_normal((1_800_000 // (40 * classes), classes, hidden)) / np.sqrt(hidden)
        p, active = [], []
        for _ in range(2):
            a = np.maximum(generator.standard_normal((v.shape[0], hidden)), 0)
            active.append(a)
            p.append(softmax(np.einsum("nch,nh->nc", v, a)))
        weights = []
        for a, q in zip(active, p, strict=True):
            mean = np.einsum("nc,nch->nh", q, v)
            covariance = np.einsum("nch,nck->nhk", q[:, :, None] * v, v) - mean[:, :, None] * mean[:, None, :]
            on = a > 0
            weights.append(covariance * on[:, :, None] * on[:, None, :])
        product = weights[0] * weights[1]
        trace = np.einsum("nhh->n", product)
        pq, overlap = p[0] * p[1], (active[0] * active[1]).sum(1) ** 2
        own = ((p[0] * (1 - p[0])) * (p[1] * (1 - p[1]))).mean(1)
        samples.append(
            [
                trace.mean() / hidden,
                (product.sum((1, 2)) - trace).mean() / (hidden * (hidden - 1)),
                (overlap * own).mean(),
                (overlap * (pq.sum(1) ** 2 - (pq**2).sum(1))).mean() / (classes * (classes - 1)),
            ]
        )
    value, error = np.mean(samples, 0), np.std(samples, 0, ddof=1) / np.sqrt(len(samples))
    # At a vanishing ratio only the two-example term is left of the hidden layer's norms.
    hidden_limit, output = block_limits.hidden_cross_entropy(1e-12, classes, hidden), cached_output(classes, hidden)
    parts = [hidden_limit.diagonal, hidden_limit.off_diagonal, output.diagonal, output.off_diagonal]
    predicted, own_error = np.array(parts).T
    assert (error < 0.03 * predicted).all()
    assert (np.abs(value - predicted) <= 4 * np.hypot(error, own_error)).all()


@pytest.mark.parametrize(("classes", "scale"), [(2, 0.5), (10, 1.0), (1000, 2.0), (100_000, 1.0)])
def test_pair_and_single_engines_agree_on_identical_examples(classes: int, scale: float) -> None:
    """At correlation one, E tr(R R') and E tr R tr R' are moments of one softmax."""
    e = SoftmaxMoments(classes, scale).expect
    marginal = LogitMarginal(classes, scale)
    pair = LogitPair(classes, marginal, marginal, 1.0)
    both = e((0, 2), (0, 2))
    assert pair.derivative((0, 0, 2)) == pytest.approx(e((0, 2)) - 2 * e((0, 3)) + both, rel=1e-6)
    assert pair.derivative((1, 1, 0)) == pytest.approx((1 - 2 * e((0, 2)) + both) / 4, rel=1e-6)


@examples(25)
@given(classes=st.integers(2, 10**6), scale=st.floats(0.01, 4.0))
def test_softmax_moments_respect_that_probabilities_sum_to_one(classes: int, scale: float) -> None:
    softmax_moments = SoftmaxMoments(classes, scale)
    assert softmax_moments.expect((0, 1)) == pytest.approx(1.0, abs=1e-9)
    assert softmax_moments.expect((0, 1), (0, 2)) == pytest.approx(softmax_moments.expect((0, 2)), rel=1e-9)
    assert softmax_moments.expect((1, 1), (0, 1)) == pytest.approx(softmax_moments.expect((1, 1)), rel=1e-9)


@pytest.mark.parametrize("r", [-0.4, 0.25, 2 / 3])
def test_overlap_moments_equal_their_integrals(r: float) -> None:
    nodes, weights = np.polynomial.legendre.leggauss(200)
    x, w = 12 * (nodes + 1), 12 * weights
    kernel = np.exp(r * np.multiply.outer(x, x) - 0.5 * (x**2)[:, None] - 0.5 * x**2) / (2 * np.pi)
    for k, moment in enumerate(overlap_moments(r)):
        assert moment == pytest.approx((w * x**k) @ kernel @ (w * x**k), rel=1e-10)


def test_a_hundred_thousand_classes_keep_their_accuracy() -> None:
    """At three hidden units, where estimates are noisiest."""
    limits = (block_limits.hidden_cross_entropy(1.0, 10**5, 3), block_limits.output_cross_entropy(10**5, 3))
    for limit in limits:
        for value, error in (limit.diagonal, limit.off_diagonal, limit.ratio):
            assert error < 0.005 * value


def test_large_class_limits_are_reached() -> None:
    """Each constant against the finite value at 10^8 classes, where the corrections are gone at eight hidden units."""
    classes, hidden = 10**8, 8
    for limit in (
        block_limits.linear_cross_entropy(0.7, classes),
        block_limits.hidden_cross_entropy(0.7, classes, hidden),
        block_limits.hidden_mse(0.7, classes, hidden),
        block_limits.output_cross_entropy(classes, hidden),
    ):
        far = limit.large_class_limit
        assert limit.diagonal[0] / float(classes) ** far.diagonal_power == pytest.approx(far.diagonal, rel=1e-4)
        assert limit.off_diagonal[0] / float(classes) ** far.off_diagonal_power == pytest.approx(
            far.off_diagonal, rel=1e-4
        )


def test_printed_forms_that_fail() -> None:
    """What the paper prints differs from what the simulations above confirm by more than they could hide."""
    # (9): the printed limit of C h_ij lacks the shared term K_m.
    m = 4
    printed = (m - 1) ** 2 / (2**m * (m - 2) ** 3 * m) * (np.sqrt(m / (m - 2)) + 1) ** (m - 2)
    assert block_limits.hidden_cross_entropy(0.5, 2, m).large_class_limit.off_diagonal > 1.15 * 0.5 * printed
    # (91): (E ξ)² in place of E[(E[ξ | V])²].
    single, _ = one_example(2, m)
    exact = block_limits.hidden_cross_entropy(0.5, 2, m).diagonal[0]
    mean = 0.5 * sum(_mean_variance(m, k) for k in range(m)) / m
    assert (0.5 * single + mean**2) < 0.9 * exact


def _mean_variance(hidden: int, others: int) -> float:
    """m E[ξ | z_i > 0, `others` further units on] times its probability, two classes: p(1-p)(v_1i - v_2i)²."""
    generator = Rng(4).child(others).numpy()
    a = np.abs(generator.standard_normal((200_000, 1 + others)))
    v = generator.standard_normal((2, 200_000, 1 + others)) / np.sqrt(hidden)
    p = 1 / (1 + np.exp(-((v[0] - v[1]) * a).sum(1)))
    share = np.prod([(hidden - 1 - k) / (k + 1) for k in range(others)]) * 0.5 ** (hidden - 1)
    return share * hidden * (p * (1 - p) * (v[0, :, 0] - v[1, :, 0]) ** 2).mean()


def test_results_are_saved_and_ratios_carry_errors(tmp_path: Path) -> None:
    limit = block_limits.output_cross_entropy(10, 3)
    value, error = limit.ratio
    assert value == limit.off_diagonal[0] / limit.diagonal[0]
    assert 0 < error < 0.005 * value
    assert Result.load(limit.save(tmp_path / "limit")) == limit


@pytest.mark.parametrize(
    "call",
    [
        lambda: block_limits.linear_cross_entropy(0.0, 10),
        lambda: block_limits.linear_cross_entropy(float("nan"), 10),
        lambda: block_limits.linear_cross_entropy(1.0, 1),
        lambda: block_limits.linear_cross_entropy(1.0, 2.5),
        lambda: block_limits.hidden_cross_entropy(1.0, 10, 2),
        lambda: block_limits.hidden_mse(-1.0, 10, 8),
        lambda: block_limits.hidden_mse(1.0, 10, 2),
        lambda: block_limits.output_cross_entropy(1, 8),
        lambda: block_limits.output_cross_entropy(10, 0),
    ],
)
def test_bad_settings_are_refused(call: Callable[[], object]) -> None:
    with pytest.raises(InputError, match="must"):
        call()
