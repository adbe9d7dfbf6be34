"""One vocabulary: what algorithms return survives a file and works from there as it did fresh."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hesscope as hs
from hesscope.errors import InputError
from hesscope.report import load_result
from hesscope.results.blocks import BlockNorms
from hesscope.results.history import TrainingHistory
from hesscope.results.spectra import Eigenpairs, SpectralDensity
from hesscope.rmt import Fit, MarchenkoPastur, fit


@pytest.fixture(scope="module")
def problem() -> hs.Problem:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(12, 20), torch.nn.Tanh(), torch.nn.Linear(20, 4))
    return hs.Problem.of(model, "cross_entropy", (torch.randn(60, 12), torch.arange(60) % 4))


def test_loaded_eigenvectors_start_the_next_run(problem: hs.Problem, tmp_path: Path) -> None:
    H = hs.Hessian(problem)
    first = hs.eigenpairs(H, 4, tol=1e-6)
    loaded = Eigenpairs.load(first.save(tmp_path / "pairs"))
    assert type(loaded.vectors).__module__ == "numpy"
    again = hs.eigenpairs(H, 4, tol=1e-3, start=loaded.vectors)
    np.testing.assert_allclose(again.values, first.values, rtol=1e-5)
    assert again.products < hs.eigenpairs(H, 4, tol=1e-3).products


def test_a_loaded_density_has_the_same_errors(problem: hs.Problem, tmp_path: Path) -> None:
    fresh = hs.spectral_density(hs.Hessian(problem), 3, steps=20, tol=0)
    loaded = SpectralDensity.load(fresh.save(tmp_path / "density"))
    assert not loaded.exact
    assert loaded.moment_stderr(1) == fresh.moment_stderr(1) > 0
    assert loaded.kolmogorov(fresh) == 0


def test_exact_norms_by_neuron_add_up_to_those_by_layer(problem: hs.Problem) -> None:
    fine, coarse = hs.block_norms(problem, "neuron"), hs.block_norms(problem, "layer")
    added = fine.by_layer()
    assert fine.partition == "neuron"
    assert (added.names, added.layers, added.partition) == (coarse.names, coarse.layers, coarse.partition)
    np.testing.assert_allclose(added.norms, coarse.norms, rtol=1e-5)
    np.testing.assert_array_equal(added.sizes, coarse.sizes)


def test_estimated_norms_are_not_added_up(problem: hs.Problem) -> None:
    sampled = hs.block_norms(problem, "neuron", method="stochastic", probes=2)
    with pytest.raises(InputError, match="correlated"):
        sampled.by_layer()


def test_norms_carry_what_was_verified(problem: hs.Problem) -> None:
    before = hs.block_norms(problem, "layer")
    assert before.check not in ("", "unchecked")
    assert before.method == "layer structure"
    again = hs.Problem.of(problem.model, "cross_entropy", next(iter(problem.batches)))
    verdict = hs.check(again)
    assert hs.block_norms(again, "layer").check == str(verdict)
    sampled = hs.block_norms(problem, "neuron", method="stochastic", probes=2)
    assert "2 random probes" in sampled.method


def test_norms_that_are_not_finite_have_no_share() -> None:
    norms = np.array([[np.nan, 1.0], [1.0, 1.0]])
    found = BlockNorms(norms, np.zeros((2, 2)), ("a", "b"), ("a", "b"), np.ones(2), "hessian", True, 0)
    assert np.isnan(found.diagonal_share)


def test_a_fitted_law_is_the_same_law_from_a_file(tmp_path: Path) -> None:
    law = MarchenkoPastur(0.4, 2.0)
    measured = hs.AtomicMeasure.of(law.quantile((np.arange(300) + 0.5) / 300))
    fresh = fit(measured, 300)
    loaded = Fit.load(fresh.save(tmp_path / "fit"))
    x = np.linspace(0.5, 4.0, 9)
    np.testing.assert_array_equal(loaded.law.density(x), fresh.law.density(x))
    np.testing.assert_allclose(loaded.law.density(x), law.density(x), rtol=0.1)
    assert [other.family for other in loaded.alternatives] == [other.family for other in fresh.alternatives]


def test_a_history_survives_a_file(problem: hs.Problem, tmp_path: Path) -> None:
    fresh = hs.structure_history(problem, [(0, problem.parameters), (2.5, problem.parameters)])
    loaded = TrainingHistory.load(fresh.save(tmp_path / "history"))
    np.testing.assert_array_equal(loaded.steps, [0, 2.5])
    np.testing.assert_array_equal(loaded.diagonal_share, fresh.diagonal_share)
    assert list(loaded.ratios) == ["0", "2"]


@pytest.mark.parametrize("kind", ["BlockMap", "TracePair", "Course"])
def test_results_of_earlier_versions_are_refused_by_name(kind: str, tmp_path: Path) -> None:
    fields: dict[str, Any] = {}
    body = {"hesscope": "0.1.0", "format": 1, "result": {"$kind": kind, "fields": fields}}
    (tmp_path / "old.json").write_text(json.dumps(body))
    np.savez(tmp_path / "old.npz")
    with pytest.raises(InputError, match=f"{kind}, which an earlier version wrote; run that command again"):
        load_result(tmp_path / "old.json")
