"""A small analysis made of known numbers, with names that try to break out of the page."""

from __future__ import annotations

from typing import Any

import numpy as np

from hesscope.measure import Array
from hesscope.results.analysis import Analysis
from hesscope.results.blocks import BlockNorms
from hesscope.results.checks import Verdict
from hesscope.results.claims import Claim
from hesscope.results.history import TrainingHistory
from hesscope.results.kronecker import KroneckerComparison, KroneckerPrediction
from hesscope.results.landscape import BreakingDistance, Landscape, LossLine
from hesscope.results.spectra import Eigenpairs, Estimate, SpectralDensity

FAILED = Verdict(False, "kept", 1.0, 1.0, 1.0, float("nan"), (), ("fc1 (Linear)",))
HOSTILE = "</script><script>window.broken=1</script><img src=x onerror='window.broken=2'>"
NO_VECTORS: Any = np.zeros((100, 0))  # as from a file: an array


def sample(name: str = "fc1") -> Analysis:
    """Six large eigenvalues over a bulk of a hundred, two layers of three neurons."""
    draw = np.random.default_rng(0)
    bulk = np.sort(0.1 * draw.standard_normal(94) ** 3)
    largest = np.array([9.0, 7.0, 6.0, 4.0, 3.5, 3.0])
    nodes = np.sort(np.concatenate([bulk, largest]))
    norms = np.exp(-np.abs(np.subtract.outer(np.arange(6.0), np.arange(6.0))))
    neurons = tuple(f"{name}[{i}]" if i < 3 else f"out[{i - 3}]" for i in range(6))
    falling = np.linspace(1.0, 0.4, 6)
    return Analysis(
        title=f"Network {name}",
        model=f"Model({name})",
        parameters={f"{name}.weight": (10, 9), "out.weight": (10,)},
        layers=(name, "out"),
        classes=7,
        rows=50.0,
        loss=0.5,
        gradient_norm=0.01,
        unused=(),
        verdict=Verdict(True, f"kept ({name})", 1e-9, 1e-9, 1e-9, 1e-7, ()),
        largest=_pairs(largest, 1e-4 * largest, 30),
        smallest=_pairs(nodes[:1], np.array([1e-3]), 0),
        gauss_newton_parts=Estimate(0.95 * largest, np.zeros(6), 0, "products", True),
        trace=_exact(float(nodes.sum())),
        gauss_newton_trace=_exact(float(largest.sum())),
        trace_by_products=None,
        density=_density(nodes),
        gauss_newton_density=_density(np.maximum(nodes, 0)),
        blocks=(
            _norms("layer", (name, "out"), (name, "out"), np.array([[2.0, 0.5], [0.5, 1.0]])),
            _norms("neuron", neurons, (name,) * 3 + ("out",) * 3, norms),
        ),
        kronecker=(
            KroneckerComparison(
                name,
                90,
                "Gauss-Newton factors, exact here",
                "expand",
                largest,
                0.9 * largest,
                1e-4 * largest,
                falling,
                0.1,
                0.2,
                0.0,
                NO_VECTORS,
                NO_VECTORS,
            ),
        ),
        prediction=KroneckerPrediction(np.maximum(nodes, 0), np.full(100, 0.01), 0.9 * largest),
        fit=None,
        history=TrainingHistory(
            ("0", "10"),
            np.array([2.0, 0.5]),
            tuple(
                _norms("layer", (name, "out"), (name, "out"), np.sqrt([[1 - share, share / 2], [share / 2, 0.0]]))
                for share in (0.3, 0.2)
            ),
            tuple(_pairs(np.array([top]), np.array([1e-2 * top]), 10) for top in (1.0, 9.0)),
            (_exact(5.0), _exact(30.0)),
        ),
        claims=(Claim(f"about {name}", name, name, name, True), Claim("false", "nowhere", "1", "2", False)),
        notes=(name,),
        settings={"tol": 1e-3, "k": name},
        provenance={"source": name},
        seconds=1.5,
        landscape=Landscape((_line(name),), None, 0.5, 0.1, "float64", 50, 1, (), "passed"),
    )


def _pairs(values: Array, residuals: Array, products: int) -> Eigenpairs:
    return Eigenpairs(values, NO_VECTORS, residuals, np.ones(values.size, bool), products, 1e-3, "passed")


def _line(name: str) -> LossLine:
    t = np.linspace(-1.0, 1.0, 5)
    breaks = BreakingDistance(0.4, 0.6), BreakingDistance(0.7, float("inf"))
    return LossLine(name, "eigenvector", 1.0, t, 0.5 + 4.5 * t**2, 0.5, 0.0, 9.0, 0.0, 0.0, 1e-15, 0.1, *breaks)


def _exact(value: float) -> Estimate:
    return Estimate(value, 0.0, 10, "columns", True, "passed")


def _density(nodes: Array) -> SpectralDensity:
    return SpectralDensity(nodes, np.full(100, 0.01), 100, nodes, (), (), (), 1e-3, 1e-4, 80, "exact", "passed")


def _norms(kind: str, names: tuple[str, ...], layers: tuple[str, ...], norms: Array) -> BlockNorms:
    sizes = np.full(len(names), 100.0 / len(names))
    return BlockNorms(norms, np.zeros_like(norms), names, layers, sizes, "hessian", True, 0, kind, check="passed")
