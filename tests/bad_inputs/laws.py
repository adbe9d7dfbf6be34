"""Random-matrix laws with arguments that no theorem covers."""

from __future__ import annotations

from typing import Any

import numpy as np

from .given import INF, NAN, hs
from .row import Row

rmt = hs.rmt


def _law() -> Any:
    return rmt.MarchenkoPastur(0.5)


def _atom(*nodes: float) -> Any:
    return hs.AtomicMeasure.of(nodes)


def _glm(**changes: object) -> Any:
    usual: dict[str, object] = {
        "loss": "logistic",
        "w": [0.0, 1.0],
        "w_star": [1.0, 0.0],
        "mean": [0.0, 0.0],
        "ratio": 0.25,
    }
    return rmt.GLM(**{**usual, **changes})


def _zeros(y: object, h: object) -> float:
    return 0.0


def _breaks(*_: object) -> Any:
    raise KeyError("weight")


ROWS = [
    Row("mp-ratio-negative", lambda: rmt.MarchenkoPastur(-0.5), "ratio", r"-0\.5", "0.25"),
    Row("mp-ratio-zero", lambda: rmt.MarchenkoPastur(0.0), "ratio", r"0\.0", "0.25"),
    Row("mp-ratio-nan", lambda: rmt.MarchenkoPastur(NAN), "ratio", "nan", "0.25"),
    Row("mp-ratio-infinite", lambda: rmt.MarchenkoPastur(INF), "ratio", "inf", "0.25"),
    Row("mp-ratio-text", lambda: rmt.MarchenkoPastur("a half"), "ratio", "'a half'", "0.25"),
    Row("mp-ratio-none", lambda: rmt.MarchenkoPastur(None), "ratio", "None", "0.25"),
    Row("mp-scale-zero", lambda: rmt.MarchenkoPastur(0.5, 0.0), "scale", r"0\.0", "variance"),
    Row("mp-scale-nan", lambda: rmt.MarchenkoPastur(0.5, NAN), "scale", "nan", "variance"),
    Row("mp-scale-text", lambda: rmt.MarchenkoPastur(0.5, "wide"), "scale", "'wide'", "variance"),
    Row("law-quantile-above-one", lambda: _law().quantile(1.5), r"\[0, 1\]", r"1\.5"),
    Row("law-quantile-negative", lambda: _law().quantile([0.5, -0.1]), r"\[0, 1\]", r"-0\.1"),
    Row("law-quantile-nan", lambda: _law().quantile(NAN), r"\[0, 1\]", "nan"),
    Row("law-moment-negative", lambda: _law().moment(-1), "integer k >= 0", "-1", "density"),
    Row("law-moment-fraction", lambda: _law().moment(1.5), "integer k >= 0", r"1\.5", "density"),
    Row("law-moment-text", lambda: _law().moment("two"), "integer k >= 0", "'two'", "density"),
    Row("law-cdf-nan", lambda: _law().cdf([0.5, NAN]), "x must", "nan"),
    Row("law-cdf-text", lambda: _law().cdf("all"), "x must", "'all'|str"),
    Row("law-density-nan", lambda: _law().density(NAN), "x must", "nan"),
    Row("law-density-width-negative", lambda: _law().density(1.0, width=-0.1), "width", r"-0\.1"),
    Row("law-smooth-cdf-width-zero", lambda: _law().smooth_cdf(1.0, width=0.0), "width", r"0\.0"),
    Row("law-stieltjes-nan", lambda: _law().stieltjes(NAN), "z must", "nan"),
    Row("law-kolmogorov-number", lambda: _law().kolmogorov(3.0), "measure", r"3\.0"),
    Row("law-wasserstein-no-points", lambda: _law().wasserstein(_law(), points=0), "points", "0"),
    Row(
        "separable-population-array",
        lambda: rmt.GeneralisedMarchenkoPastur(np.ones(3), None, 0.5),
        "population_g",
        "ndarray",
        "AtomicMeasure.of",
    ),
    Row(
        "separable-covariance-number",
        lambda: rmt.GeneralisedMarchenkoPastur(_atom(1.0), 2.0, 0.5),
        "population_c",
        r"2\.0",
        "AtomicMeasure.of",
    ),
    Row(
        "separable-covariance-negative",
        lambda: rmt.GeneralisedMarchenkoPastur(_atom(1.0), _atom(-1.0, 2.0), 0.5),
        "must not be negative",
        "-1",
        "population_g",
    ),
    Row(
        "separable-ratio-negative",
        lambda: rmt.GeneralisedMarchenkoPastur(_atom(1.0), None, -2.0),
        "ratio",
        r"-2\.0",
        "0.25",
    ),
    Row("glm-loss-unknown", lambda: _glm(loss="logit"), "a loss must be a known name", "'logit'", "logistic"),
    Row("glm-loss-number", lambda: _glm(loss=3), "a loss must be a known name or a callable", "3|int", "logistic"),
    Row("glm-loss-one-number", lambda: _glm(loss=_zeros), "one finite number per pair", "shape", "arrays"),
    Row("glm-loss-nan", lambda: _glm(loss=lambda y, h: h * NAN), "one finite number per pair", "nan", "arrays"),
    Row("glm-loss-raises", lambda: _glm(loss=_breaks), "must run", "KeyError"),
    Row(
        "glm-response-unknown",
        lambda: _glm(response="probit"),
        "a response must be a known name",
        "'probit'",
        "logistic",
    ),
    Row(
        "glm-response-number",
        lambda: _glm(response=1.0),
        "a response must be a known name or a callable",
        "float|1.0",
        "logistic",
    ),
    Row(
        "glm-response-shape",
        lambda: _glm(response=lambda rng, t: t[:3]),
        "one finite y per t",
        r"\(3,\)",
        "shaped like t",
    ),
    Row("glm-response-raises", lambda: _glm(response=_breaks), "must run", "KeyError"),
    Row("glm-w-nan", lambda: _glm(w=[NAN, 0.0]), "finite vectors of one length", "nan|w"),
    Row("glm-w-text", lambda: _glm(w="large"), "w must", "'large'|str"),
    Row("glm-w-matrix", lambda: _glm(w=np.ones((2, 2))), "one length", r"\(2, 2\)", "Pad"),
    Row("glm-w-empty", lambda: _glm(w=[], w_star=[], mean=[]), "one length|at least one", r"\(0,\)|empty"),
    Row("glm-w-length", lambda: _glm(w=[1.0, 2.0, 3.0]), "one length", r"\(3,\)", "Pad"),
    Row("glm-covariance-shape", lambda: _glm(covariance=np.ones(3)), "covariance must be", r"\(3,\)", "length of w"),
    Row(
        "glm-covariance-asymmetric", lambda: _glm(covariance=[[1.0, 0.5], [0.0, 1.0]]), "symmetric", "not", "transpose"
    ),
    Row("glm-covariance-negative", lambda: _glm(covariance=[1.0, -1.0]), "positive definite", "-1", "ridge"),
    Row("glm-covariance-text", lambda: _glm(covariance="identity"), "covariance must be", "'identity'", "None"),
    Row("glm-ratio-zero", lambda: _glm(ratio=0), "ratio", "0", "0.25"),
    Row("glm-ratio-text", lambda: _glm(ratio="wide"), "ratio", "'wide'", "0.25"),
    Row("glm-rng-number", lambda: _glm(rng="3"), "rng", "'3'", "Rng"),
    Row("glm-transitions-unknown", lambda: _glm().transitions("v", [1.0, 2.0]), "transitions need", "'v'", "linspace"),
    Row("glm-transitions-descending", lambda: _glm().transitions("w", [2.0, 1.0]), "ascending", "'w'", "linspace"),
    Row("glm-transitions-empty", lambda: _glm().transitions("w", []), "ascending", "0 norms", "linspace"),
    Row("glm-transitions-nan", lambda: _glm().transitions("w", [1.0, NAN]), "ascending", "'w'", "linspace"),
    Row(
        "glm-transitions-zero-vector",
        lambda: _glm().transitions("mean", [1.0, 2.0]),
        "must not be zero",
        "zero vector",
        "direction",
    ),
    Row("glm-simulate-zero", lambda: _glm().simulate(0, hs.Rng(0)), "p must", "0"),
    Row("glm-simulate-fraction", lambda: _glm().simulate(10.5, hs.Rng(0)), "p must", r"10\.5"),
    Row("glm-simulate-seed", lambda: _glm().simulate(10, 0.5), "rng", r"0\.5", "Rng"),
    Row("glm-simulate-features", lambda: _glm().simulate(10, hs.Rng(0), "cauchy"), "features", "'cauchy'", "gaussian"),
    Row("softmax-one-class", lambda: rmt.SoftmaxGLM(1, 1.0, 0.5), "classes >= 2", "classes=1", "number of outputs"),
    Row("softmax-classes-fraction", lambda: rmt.SoftmaxGLM(2.5, 1.0, 0.5), "classes", r"2\.5", "number of outputs"),
    Row("softmax-classes-text", lambda: rmt.SoftmaxGLM("ten", 1.0, 0.5), "classes", "ten", "number of outputs"),
    Row(
        "softmax-logit-std-negative", lambda: rmt.SoftmaxGLM(3, -1.0, 0.5), "logit_std", r"-1\.0", "standard deviation"
    ),
    Row("softmax-logit-std-infinite", lambda: rmt.SoftmaxGLM(3, INF, 0.5), "logit_std", "inf", "standard deviation"),
    Row("softmax-ratio-negative", lambda: rmt.SoftmaxGLM(3, 1.0, -0.5), "ratio", r"-0\.5", "0.25"),
    Row(
        "softmax-population-array",
        lambda: rmt.SoftmaxGLM(3, 1.0, 0.5, np.ones(3)),
        "population_c",
        "ndarray",
        "AtomicMeasure.of",
    ),
    Row("softmax-simulate-zero", lambda: rmt.SoftmaxGLM(3, 1.0, 0.5).simulate(0, hs.Rng(0)), "d must", "0"),
    Row(
        "limits-ratio-negative",
        lambda: rmt.block_limits.linear_cross_entropy(-1.0, 10),
        "ratio = d/N",
        r"-1\.0",
        "examples",
    ),
    Row(
        "limits-ratio-text",
        lambda: rmt.block_limits.linear_cross_entropy("one", 10),
        "ratio = d/N",
        "'one'",
        "examples",
    ),
    Row(
        "limits-one-class",
        lambda: rmt.block_limits.linear_cross_entropy(1.0, 1),
        "classes must be an integer",
        "1",
        "classify",
    ),
    Row(
        "limits-classes-fraction",
        lambda: rmt.block_limits.hidden_mse(1.0, 2.5, 8),
        "classes must be an integer",
        r"2\.5",
    ),
    Row("limits-classes-bool", lambda: rmt.block_limits.hidden_mse(1.0, True, 8), "classes must be an integer", "True"),
    Row(
        "limits-hidden-two",
        lambda: rmt.block_limits.hidden_cross_entropy(1.0, 10, 2),
        "hidden must be an integer",
        "2",
        "measure",
    ),
    Row("limits-hidden-text", lambda: rmt.block_limits.output_cross_entropy(10, "8"), "hidden must be an integer", "8"),
    Row("limits-rng-number", lambda: rmt.block_limits.output_cross_entropy(10, 8, rng=True), "rng", "True", "Rng"),
    Row(
        "block-law-ratio-nan",
        lambda: rmt.block_law.linear_cross_entropy(NAN, 10, "diagonal"),
        "ratio = d/N",
        "nan",
        "examples",
    ),
    Row(
        "block-law-block-unknown",
        lambda: rmt.block_law.linear_cross_entropy(0.5, 10, "upper"),
        "block must be",
        "'upper'",
        "one class",
    ),
    Row(
        "block-law-weights-vector",
        lambda: rmt.block_law.hidden_mse(0.5, np.ones(3), 0, 0),
        "C x m matrix",
        r"\(3,\)",
        "last layer",
    ),
    Row(
        "block-law-weights-nan",
        lambda: rmt.block_law.hidden_mse(0.5, np.full((3, 4), NAN), 0, 0),
        "finite C x m matrix",
        r"\(3, 4\)",
    ),
    Row(
        "block-law-weights-text",
        lambda: rmt.block_law.hidden_mse(0.5, "V", 0, 0),
        "C x m matrix",
        "'V'|str",
        "last layer",
    ),
    Row(
        "block-law-unit-outside",
        lambda: rmt.block_law.hidden_mse(0.5, np.ones((3, 4)), 0, 4),
        r"0 \.\. 3",
        "0 and 4",
        "from zero",
    ),
    Row(
        "block-law-unit-fraction",
        lambda: rmt.block_law.hidden_mse(0.5, np.ones((3, 4)), 0.5, 0),
        "units must",
        r"0\.5",
        "from zero",
    ),
    Row("fit-few-atoms", lambda: rmt.fit(_atom(1.0, 2.0)), "at least eight atoms", "2 atoms", "more"),
    Row("fit-zeros", lambda: rmt.fit(_atom(*[0.0] * 20)), "at least eight atoms", "20 atoms", "more"),
    Row("fit-array", lambda: rmt.fit(np.arange(20.0)), "measure", "ndarray", "AtomicMeasure.of"),
    Row("fit-size-negative", lambda: rmt.fit(hs.AtomicMeasure.of(np.arange(20.0)), size=-5), "size", "-5"),
    Row("fit-size-fraction", lambda: rmt.fit(hs.AtomicMeasure.of(np.arange(20.0)), size=2.5), "size", r"2\.5"),
]
