"""What the closed forms promise beside numbers: speed, no torch, clear errors, saving, words, and any loss."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from closed_form.closed_form_truth import check
from hesscope import closed_form as cf
from hesscope.errors import InputError
from hesscope.result import Result


def test_width_one_million_stays_closed_form() -> None:
    """Two million eigenvalues without a matrix of that size; how fast, `make bench` says."""
    rng = np.random.default_rng(0)
    w, v, x, y = rng.normal(size=10**6), rng.normal(size=10**6), rng.normal(size=100), rng.normal(size=100)
    values = cf.linear_network(w, v, x, y).eigenvalues
    assert values.shape == (2 * 10**6,)
    parts = cf.sharpness_parts(w, v, x, y)
    assert values[-1] == pytest.approx(parts.sharpness, rel=1e-12)
    assert values[0] == pytest.approx(-abs(np.mean(x * ((w @ v) * x - y))), rel=1e-9)


def test_chunked_widths_agree_with_whole_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    arrays = rng.normal(size=(2, 103)), rng.normal(size=(103, 3)), rng.normal(size=(9, 3)), rng.normal(size=(9, 2))
    whole = cf.linear_network(*arrays).eigenvalues
    monkeypatch.setattr("hesscope.closed_form.products.CHUNK", 10)
    np.testing.assert_allclose(cf.linear_network(*arrays).eigenvalues, whole, atol=1e-13 * whole[-1])


def test_importing_needs_no_torch() -> None:
    code = "import sys, hesscope.closed_form; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_any_loss_through_a_product() -> None:
    """A logistic loss of a = <w, v>: H = l''(a) g gᵀ + l'(a) SWAP, without a word about squares."""
    rng = np.random.default_rng(2)
    w, v = rng.normal(size=4), rng.normal(size=4)
    p = 1 / (1 + np.exp(w @ v))
    rows = np.array([4, 0])
    product = cf.WeightProduct("logit", w[None], v[None], np.array([[-p]]), rows, np.ones_like(rows))
    parts = cf.couple([product], np.array([[p * (1 - p)]]))
    spectrum = cf.ClosedFormSpectrum("logistic", parts, (("v", (4,)), ("w", (4,))))
    check(spectrum, lambda v_, w_: ((-(v_ * w_).sum(-1)).exp() + 1).log().sum(), [v, w])


def test_condition_number_is_infinite_when_singular() -> None:
    x, w = np.array([1.0, 2.0]), np.array([1.0, -0.5, 2.0])
    assert cf.linear_network(w, w, x, (w @ w) * x).condition_number == np.inf
    for u in (0.3, 0.7, 1.1, 1.7):  # one unit: the zero eigenvalue is a computed outlier, not a bulk value
        assert cf.linear_network([u], [1.3 * u], x, 1.3 * u * u * x).condition_number == np.inf
    assert cf.linear_network(w, 2 * w, x, x).condition_number < 1e3


def test_saved_and_loaded(tmp_path: Path) -> None:
    spectrum = cf.relu_network([1.0, 2.0, -1.0], [1.0, -1.0, 0.5], [1.0, -2.0], [0.0, 1.0])
    loaded = Result.load(spectrum.save(tmp_path / "relu"))
    assert isinstance(loaded, cf.ClosedFormSpectrum)
    np.testing.assert_array_equal(loaded.eigenvalues, spectrum.eigenvalues)
    np.testing.assert_array_equal(loaded.eigenvectors(), spectrum.eigenvectors())


def test_measure_and_words() -> None:
    rng = np.random.default_rng(3)
    spectrum = cf.relu_network(rng.normal(size=30), rng.normal(size=30), rng.normal(size=8), rng.normal(size=8))
    measure = spectrum.measure()
    assert measure.moment(1) * 60 == pytest.approx(spectrum.trace)
    words = spectrum.explain()
    assert "+ cell" in words
    assert "- cell" in words
    assert f"{spectrum.sharpness:.6g}" in words
    assert "60 parameters" in words
    assert {b.source for b in spectrum.bulk} == {"+ cell", "- cell"}
    assert len(spectrum.outlier_sources) == spectrum.outliers.size == 4


def test_many_coupled_cells_stay_readable() -> None:
    rng = np.random.default_rng(4)
    spectrum = cf.relu_network(
        rng.normal(size=40), rng.normal(size=(40, 3)), rng.normal(size=(9, 3)), rng.normal(size=9)
    )
    assert len(spectrum.explain().splitlines()) < 40


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"w": [1.0]}, "same length"),
        ({"x": [1.0, np.nan]}, "x must hold finite"),
        ({"y": [1.0, 2.0, 3.0]}, "x: 2, y: 3"),
        ({"v": []}, "non-empty"),
        ({"w": "abc"}, "array of numbers"),
        ({"x": [[1.0, 2.0], [1.0, 2.0]]}, "v_inputs"),
        ({"y": [[1.0, 2.0], [1.0, 2.0]]}, "w_outputs"),
    ],
)
@pytest.mark.parametrize("network", [cf.linear_network, cf.relu_network])
def test_bad_arrays_are_refused(
    network: Callable[..., cf.ClosedFormSpectrum], change: dict[str, Any], message: str
) -> None:
    good = {"w": [1.0, 2.0], "v": [0.5, 1.0], "x": [1.0, 2.0], "y": [0.0, 1.0]}
    with pytest.raises(InputError, match=message):
        network(**(good | change))


def test_dense_members_of_huge_networks_are_refused() -> None:
    ones = np.ones(20_001)
    spectrum = cf.linear_network(ones, ones, [1.0], [0.0])
    with pytest.raises(InputError, match="at most 20000 parameters"):
        spectrum.eigenvectors()
    with pytest.raises(InputError, match="no such limit"):
        spectrum.hessian()


def test_products_and_curvature_must_match() -> None:
    rows = np.array([2, 0])
    with pytest.raises(InputError, match="slope"):
        cf.WeightProduct("p", np.ones((1, 2)), np.ones((1, 2)), np.ones((2, 1)), rows, rows)
    product = cf.WeightProduct("p", np.ones((1, 2)), np.ones((1, 2)), np.ones((1, 1)), rows, np.ones_like(rows))
    with pytest.raises(InputError, match="1 x 1"):
        cf.couple([product], np.eye(2))
