"""A small analysis made of known numbers, with names that try to break out of the page."""

from __future__ import annotations

import numpy as np

from hesscope.results.analysis import (
    Analysis,
    BlockMap,
    ExtremeValues,
    LayerDecoupling,
    MeasuredSpectrum,
    Prediction,
    SelfCheck,
    TracePair,
    TrainingCourse,
)
from hesscope.results.claims import Claim

HOSTILE = "</script><script>window.broken=1</script><img src=x onerror='window.broken=2'>"


def sample(name: str = "fc1") -> Analysis:
    """Six large eigenvalues over a bulk of a hundred, two layers of three neurons."""
    draw = np.random.default_rng(0)
    bulk = np.sort(0.1 * draw.standard_normal(94) ** 3)
    largest = np.array([9.0, 7.0, 6.0, 4.0, 3.5, 3.0])
    nodes = np.sort(np.concatenate([bulk, largest]))
    weights = np.full(100, 0.01)
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
        verdict=SelfCheck(True, "kept", 1e-7, f"passed ({name})"),
        extremes=ExtremeValues(
            largest, 1e-4 * largest, np.array([nodes[0]]), np.array([1e-3]), True, 30, 0.95 * largest
        ),
        traces=TracePair(float(nodes.sum()), 0.0, float(largest.sum()), 0.0, 10),
        spectrum=MeasuredSpectrum(nodes, weights, 100, 1e-3, 1e-4, 80),
        gauss_newton=MeasuredSpectrum(np.maximum(nodes, 0), weights, 100, 1e-3, 1e-4, 80),
        blocks=(
            BlockMap("layer", (name, "out"), (name, "out"), np.array([[2.0, 0.5], [0.5, 1.0]]), True),
            BlockMap("neuron", neurons, (name,) * 3 + ("out",) * 3, norms, True),
        ),
        decoupling=(LayerDecoupling(name, 90, largest, 0.9 * largest, falling, 0.2, 0.1),),
        prediction=Prediction(np.maximum(nodes, 0), weights, 0.9 * largest),
        fit=None,
        course=TrainingCourse(
            ("0", "10"), np.array([2.0, 0.5]), np.array([1.0, 9.0]), np.array([5.0, 30.0]), np.array([0.3, 0.2])
        ),
        claims=(Claim(f"about {name}", name, name, name, True), Claim("false", "nowhere", "1", "2", False)),
        notes=(name,),
        settings={"tol": 1e-3, "k": name},
        provenance={"source": name},
        products=200,
        seconds=1.5,
    )
