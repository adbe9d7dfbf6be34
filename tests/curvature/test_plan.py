"""What a plan says against what a run takes: products are counted; times are measured, so only their source is tested."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import hesscope as hs
from hesscope.curvature.costs.rehearsal import rehearse


def problem_of(width: int, examples: int = 60) -> hs.Problem:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 4))
    return hs.Problem.of(model, "cross_entropy", (torch.randn(examples, 8), torch.randint(0, 4, (examples,))))


@pytest.mark.parametrize("task", ["eigenpairs", "trace", "diagonal", "dense", "spectral_density"])
def test_small_matrices_are_planned_as_what_they_are(task: str) -> None:
    problem = problem_of(6)
    found = hs.plan(problem, task)
    assert found.products == problem.space.size
    assert "whole matrix" in found.note


def test_products_are_within_half_as_many_again() -> None:
    problem = problem_of(60)
    assert problem.space.size > 480
    planned, taken = hs.plan(problem, "eigenpairs", k=5), hs.eigenpairs(problem, 5)
    assert 1 / 1.5 <= planned.products / taken.products <= 1.5
    assert hs.plan(problem, "spectral_density", tol=0, probes=2, steps=30).products == 60
    assert hs.plan(problem, "eigenpairs", k=5, max_products=7).products == 7
    small = problem_of(30)
    assert hs.plan(small, "spectral_density").products == hs.spectral_density(small).products


@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("eigenpairs", {"k": 5, "which": "both"}),
        ("spectral_density", {"probes": 4, "steps": 30}),
        ("solve", {"method": "minres", "damping": 0.5, "b": torch.ones(784)}),
    ],
)
def test_a_rehearsal_on_some_examples_tells_how_many(
    task: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The small end of a spectrum takes far more products than the large one, damped systems far fewer."""
    monkeypatch.setattr(
        "hesscope.curvature.costs.rehearsal._AT_ONCE", 1e9
    )  # half of the examples, whatever the clock says
    problem = problem_of(60, 400)
    taken = getattr(hs, task)(problem, **settings).products
    assert 1 / 1.5 <= hs.plan(problem, task, **settings).products / taken <= 1.5


def test_answers_from_layers_are_not_priced_as_products() -> None:
    """Four columns: a forward pass and four passes back to activations, and as many for the entries of a diagonal."""
    problem = problem_of(60)
    for task, passes in (("trace", 5), ("diagonal", 9)):
        found = hs.plan(problem, task)
        assert found.products == 4 == getattr(hs, task)(problem).products
        assert found.seconds == pytest.approx(passes / 3 * found.gradient_seconds)
        problem = problem_of(60)


def test_a_product_is_timed_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that advances a second at every look, a product takes one second."""
    ticks = iter(range(10_000))
    monkeypatch.setattr("hesscope.curvature.costs.plans.time.perf_counter", lambda: float(next(ticks)))
    problem = problem_of(60)
    found = hs.plan(problem, "solve")
    # A gradient of all 60 seems to take a second too, so that a product is timed on 3 of them, and on 1: a second each.
    # At least a quarter of it is for the examples. The proof of derivatives is ten gradients in float64.
    product = 0.75 + 0.25 / 3 * 60
    assert found.seconds == pytest.approx(found.products * product + 10 * 2, rel=1e-6)
    # Eight columns of all rows are made orthogonal in a second.
    n, pairs = problem.space.size, hs.plan(problem, "eigenpairs", k=5)
    vectors = pairs.basis_bytes // (4 * n)
    assert pairs.seconds == pytest.approx(pairs.products * (product + vectors / 2 / 8) + 10 * 2, rel=1e-6)
    problem.proofs["products"] = None
    assert hs.plan(problem, "solve").seconds == pytest.approx(found.seconds - 10 * 2, rel=1e-6)


def test_a_way_out_where_memory_does_not_suffice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hesscope.curvature.costs.plans.free_bytes", lambda device: 1e4)
    note = hs.plan(problem_of(60), "dense").note
    assert "more than the 0.0 GB that are free" in note
    assert "problem.select" in note
    assert "max_basis" in hs.plan(problem_of(60), "eigenpairs", k=100).note


def test_a_run_on_a_few_large_examples_is_not_rehearsed_by_itself() -> None:
    def never(*given: Any, **settings: Any) -> Any:
        raise AssertionError("this is the run itself")

    assert rehearse(problem_of(60, 4), never, {}, lambda examples: 25.0 * examples) is None


def test_vectors_in_memory_are_those_that_a_run_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of(60)
    vector = 4 * problem.space.size
    assert hs.plan(problem, "eigenpairs", k=1, max_basis=7).basis_bytes <= 7 * vector
    for place in ("curvature.costs.plans", "linalg.eigensolver"):
        monkeypatch.setattr(f"hesscope.{place}.vectors_that_fit", lambda op: 3)
    assert hs.plan(problem, "eigenpairs", k=1).basis_bytes == 6 * vector
    found = hs.plan(problem, "spectral_density")
    assert found.basis_bytes == 3 * vector
    assert "go to a file" in found.note
