"""Measures without atoms, randomness without a seed, vectors that do not fit their space."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .given import INF, NAN, SIZE, hs, problem
from .row import Row


def _measure() -> Any:
    return hs.AtomicMeasure.of([1.0, 2.0, 3.0])


def _space() -> Any:
    return problem().space


ROWS = [
    Row("measure-empty", lambda: hs.AtomicMeasure.of([]), "at least one finite node", "0 nodes", "eigenvalues"),
    Row("measure-nan", lambda: hs.AtomicMeasure.of([1.0, NAN]), "finite node", "nan|NaN", "eigenvalues"),
    Row("measure-infinite", lambda: hs.AtomicMeasure.of([1.0, INF]), "finite node", "inf", "eigenvalues"),
    Row("measure-text", lambda: hs.AtomicMeasure.of("spectrum"), "nodes must be", "'spectrum'|str", "eigenvalues"),
    Row(
        "measure-complex",
        lambda: hs.AtomicMeasure.of(np.array([1j, 2.0])),
        "nodes must be",
        "complex",
        "eigenvalues|real",
    ),
    Row(
        "measure-weights-negative",
        lambda: hs.AtomicMeasure.of([1.0, 2.0], [2.0, -1.0]),
        "non-negative weights",
        r"-1",
        "weights",
    ),
    Row(
        "measure-weights-nan",
        lambda: hs.AtomicMeasure.of([1.0, 2.0], [1.0, NAN]),
        "non-negative weights",
        "nan|NaN",
        "weights",
    ),
    Row(
        "measure-weights-infinite",
        lambda: hs.AtomicMeasure.of([1.0, 2.0], [1.0, INF]),
        "non-negative weights",
        "inf",
        "weights",
    ),
    Row(
        "measure-weights-zero",
        lambda: hs.AtomicMeasure.of([1.0, 2.0], [0.0, 0.0]),
        "non-negative weights",
        "0",
        "weights",
    ),
    Row(
        "measure-weights-length",
        lambda: hs.AtomicMeasure.of([1.0, 2.0], [1.0]),
        "as many",
        "2 nodes, 1 weights",
        "weights",
    ),
    Row("mixture-nothing", lambda: hs.AtomicMeasure.mixture([]), "at least one measure", "none|0"),
    Row(
        "mixture-shares",
        lambda: hs.AtomicMeasure.mixture([_measure()], [0.5, 0.5]),
        "shares must be 1 number",
        r"0\.5, 0\.5",
    ),
    Row(
        "mixture-shares-negative",
        lambda: hs.AtomicMeasure.mixture([_measure(), _measure()], [1.5, -0.5]),
        "shares|non-negative",
        r"-0\.5|-",
    ),
    Row("mixture-arrays", lambda: hs.AtomicMeasure.mixture([np.ones(3)]), "measure", "ndarray"),
    Row("measure-density-no-width", lambda: _measure().density(1.0), "width > 0", r"width=0\.0", "range"),
    Row("measure-density-width-nan", lambda: _measure().density(1.0, NAN), "width > 0", "width=nan", "range"),
    Row("measure-density-width-text", lambda: _measure().density(1.0, "thin"), "width > 0", "thin", "range"),
    Row("measure-density-nan", lambda: _measure().density(NAN, 0.1), "x must", "nan"),
    Row("measure-cdf-nan", lambda: _measure().cdf([1.0, NAN]), "x must", "nan"),
    Row("measure-cdf-text", lambda: _measure().cdf("all"), "x must", "'all'|str"),
    Row("measure-smooth-cdf-width", lambda: _measure().smooth_cdf(1.0, 0.0), "width > 0", r"0\.0"),
    Row("measure-quantile-above-one", lambda: _measure().quantile(1.5), r"\[0, 1\]", r"1\.5"),
    Row("measure-quantile-nan", lambda: _measure().quantile([0.1, NAN]), r"\[0, 1\]", "nan"),
    Row(
        "measure-moment-negative",
        lambda: hs.AtomicMeasure.of([0.0, 1.0]).moment(-1),
        "a power that every node has",
        "-1",
        "integer",
    ),
    Row(
        "measure-moment-fraction",
        lambda: hs.AtomicMeasure.of([-1.0, 1.0]).moment(0.5),
        "a power that every node has",
        r"0\.5",
        "integer",
    ),
    Row("measure-moment-text", lambda: _measure().moment("two"), "a power that every node has", "'two'", "integer"),
    Row("measure-mass-reversed", lambda: _measure().mass(2.0, 1.0), "left <= right", r"2\.0.*1\.0"),
    Row(
        "measure-kolmogorov-array", lambda: _measure().kolmogorov(np.ones(3)), "measure", "ndarray", "AtomicMeasure.of"
    ),
    Row("measure-wasserstein-none", lambda: _measure().wasserstein(None), "measure", "None", "AtomicMeasure.of"),
    Row("rng-text", lambda: hs.Rng("today"), "seed must be an integer", "'today'", "Rng"),
    Row("rng-fraction", lambda: hs.Rng(0.5), "seed must be an integer", r"0\.5", "Rng"),
    Row("rng-none", lambda: hs.Rng(None), "seed must be an integer", "None", "Rng"),
    Row("rng-bool", lambda: hs.Rng(True), "seed must be an integer", "True", "Rng"),
    Row("rng-generator", lambda: hs.Rng(torch.Generator()), "seed must be an integer", "Generator", "Rng"),
    Row("rng-path-text", lambda: hs.Rng(0, "slq"), "path must be", "'slq'", "child"),
    Row(
        "space-unpack-length",
        lambda: _space().unpack(torch.zeros(SIZE + 1)),
        rf"shape \({SIZE},\)",
        r"\(44,\)",
        "one number per parameter",
    ),
    Row(
        "space-unpack-matrix",
        lambda: _space().unpack(torch.zeros(SIZE, 1)),
        rf"shape \({SIZE},\)",
        rf"\({SIZE}, 1\)",
        "one number per parameter",
    ),
    Row("space-unpack-array", lambda: _space().unpack(np.zeros(SIZE)), "tensor", "ndarray", "from_numpy"),
    Row("space-pack-count", lambda: _space().pack([torch.zeros(5, 4)], torch.zeros(1)), "4 tensors", "1"),
    Row(
        "space-pack-shape",
        lambda: _space().pack([torch.zeros(2)] * 4, torch.zeros(1)),
        r"0\.weight.*shape \(5, 4\)",
        r"\(2,\)",
    ),
    Row(
        "space-slice-unknown",
        lambda: _space().slice_of("fc.weight"),
        "match at least one parameter",
        "'fc.weight'",
        r"0\.weight",
    ),
    Row(
        "space-shape-unknown",
        lambda: _space().shape_of("fc.weight"),
        "match at least one parameter",
        "'fc.weight'",
        r"0\.weight",
    ),
    Row(
        "space-select-unknown", lambda: _space().select("fc*"), "match at least one parameter", r"'fc\*'", r"0\.weight"
    ),
    Row("space-select-number", lambda: _space().select(3), "glob", "3|int", r"0\.weight"),
    Row("space-select-numbers", lambda: _space().select([0, 1]), "glob", "0|int", r"0\.weight"),
    Row("space-select-nothing", lambda: _space().select([]), "glob", r"\[\]|none", r"0\.weight"),
    Row("space-select-none", lambda: _space().select(None), "glob", "None", r"0\.weight"),
]
