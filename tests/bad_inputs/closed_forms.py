"""Closed forms with arrays that make no network, and bounds with numbers that are no probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .given import INF, NAN, hs
from .row import Row

form, pac = hs.closed_form, hs.pacbayes
ONE, TWO = [1.0], [1.0, 2.0]


def _linear(**changes: Any) -> Any:
    return form.linear_network(**{"w": TWO, "v": TWO, "x": TWO, "y": TWO, **changes})


def _attention(**changes: Any) -> Any:
    usual = {"w_V": 1.0, "w_Q": TWO, "w_K": TWO, "X": [1.0, 2.0, 3.0], "Y": [1.0, 2.0, 3.0]}
    return form.self_attention(**{**usual, **changes})


def _bound(**changes: Any) -> Any:
    return pac.bound(**{"error": 0.1, "draws": 100, "kl": 10.0, "examples": 1000, "index": 50, **changes})


def _product(outer: Any) -> Any:
    return form.WeightProduct("p", outer, np.ones((1, 2)), np.ones((1, 1)), np.arange(2), np.ones(2, int))


ROWS = [
    Row("linear-empty", lambda: _linear(x=[], y=[]), "x must be a non-empty array", r"\(0,\)", "shape"),
    Row("linear-nan", lambda: _linear(w=[NAN, 1.0]), "w must hold finite numbers", "NaN", "entries"),
    Row("linear-infinite", lambda: _linear(y=[INF, 1.0]), "y must hold finite numbers", "infinity", "entries"),
    Row("linear-text", lambda: _linear(v="weights"), "v must be an array of numbers", "str|'weights'", "NumPy"),
    Row("linear-none", lambda: _linear(v=None), "v must be", "None|shape", "NumPy|shape"),
    Row("linear-ragged", lambda: _linear(x=[[1.0], [1.0, 2.0]]), "x must be an array of numbers", "list", "NumPy"),
    Row("linear-complex", lambda: _linear(w=np.array([1j, 2.0])), "w must", "complex", r"real|part"),
    Row(
        "linear-needs-gradient",
        lambda: _linear(w=torch.ones(2, requires_grad=True)),
        "w must be an array",
        "Tensor",
        "NumPy|detach",
    ),
    Row(
        "linear-dimension",
        lambda: _linear(w=np.ones((1, 1, 2))),
        "w must be a non-empty array of dimension 1 or 2",
        r"\(1, 1, 2\)",
    ),
    Row("linear-width", lambda: _linear(w=ONE), "w and v must have the same length", "w: 1, v: 2", "axis"),
    Row("linear-data", lambda: _linear(x=[1.0, 2.0, 3.0]), "x and y must have the same length", "x: 3, y: 2", "axis"),
    Row(
        "relu-width",
        lambda: form.relu_network(ONE, TWO, TWO, TWO),
        "w and v must have the same length",
        "w: 1, v: 2",
        "axis",
    ),
    Row(
        "relu-nan", lambda: form.relu_network(TWO, TWO, [NAN, 1.0], TWO), "x must hold finite numbers", "NaN", "entries"
    ),
    Row(
        "bias-matrix",
        lambda: form.linear_network_with_bias(np.ones((2, 2)), TWO, TWO, TWO, TWO),
        "w must be a non-empty array of dimension 1",
        r"\(2, 2\)",
    ),
    Row(
        "bias-length",
        lambda: form.linear_network_with_bias(TWO, TWO, ONE, TWO, TWO),
        "must have the same length",
        "b: 1",
        "axis",
    ),
    Row(
        "bias-printed",
        lambda: form.linear_network_with_bias(TWO, TWO, TWO, TWO, TWO, printed=True),
        r"Theorem B\.1",
        "fails by",
        "printed=True",
    ),
    Row("attention-keys", lambda: _attention(w_K=ONE), "w_Q and w_K must have the same shape", r"\(1,\)", "d_K"),
    Row("attention-values", lambda: _attention(w_V=[1.0, 2.0]), "same length", "w_V", "axis"),
    Row(
        "attention-values-vector",
        lambda: form.self_attention([1.0, 2.0], np.ones((2, 3)), np.ones((2, 3)), np.ones((4, 2)), np.ones((4, 1))),
        "w_V must be",
        r"\(2,\)",
    ),
    Row("attention-length", lambda: _attention(Y=[1.0]), "must have the same length", "Y_length: 1", "axis"),
    Row(
        "attention-bias-shape",
        lambda: _attention(score_bias=np.zeros((2, 2))),
        r"score_bias must be \(3, 3\)",
        r"\(2, 2\)",
        "-inf masks",
    ),
    Row(
        "attention-bias-nan",
        lambda: _attention(score_bias=np.full((3, 3), NAN)),
        "score_bias must be",
        r"\(3, 3\)",
        "-inf masks",
    ),
    Row(
        "attention-bias-masks-all",
        lambda: _attention(score_bias=np.full((3, 3), -INF)),
        "keep at least one position",
        "a row of -inf",
        "diagonal",
    ),
    Row("attention-bias-text", lambda: _attention(score_bias="causal"), "score_bias must be", "'causal'|str"),
    Row("attention-bias-batch", lambda: _attention(score_bias=np.zeros((2, 3, 3))), "score_bias", r"\(2, 3, 3\)"),
    Row(
        "attention-activation-name",
        lambda: _attention(activation="softmax"),
        "activation must be",
        "'softmax'|str",
        "SOFTMAX",
    ),
    Row(
        "separable-inputs-columns",
        lambda: form.separable_inputs(np.ones((2, 3)), np.ones((2, 3)), np.ones((4, 3)), np.ones(4)),
        "same length",
        "X_columns: 3",
        "axis",
    ),
    Row(
        "separable-outputs-width",
        lambda: form.separable_outputs(np.ones((2, 3)), np.ones((2, 4)), np.ones(4), np.ones((4, 2))),
        "same length",
        "V_width: 4",
        "axis",
    ),
    Row(
        "sharpness-matrix",
        lambda: form.sharpness_parts(np.ones((2, 2)), TWO, TWO, TWO),
        "w must be a non-empty array of dimension 1",
        r"\(2, 2\)",
    ),
    Row(
        "phase-no-inputs",
        lambda: form.learning_phase(TWO, TWO, [0.0, 0.0], TWO),
        "some x that is not 0",
        "x = 0",
        "learn",
    ),
    Row("product-width", lambda: _product(np.ones((1, 3))), "a product needs outer", r"\(1, 3\)", "width last"),
    Row("product-lists", lambda: _product([[1.0, 2.0]]), "a product needs", "list", "array"),
    Row("couple-nothing", lambda: form.couple([], np.zeros((0, 0))), "at least one product", "none|0"),
    Row(
        "couple-curvature-shape", lambda: form.couple([_product(np.ones((1, 2)))], np.eye(3)), "curvature", r"\(3, 3\)"
    ),
    Row("kl-q-above-one", lambda: pac.binary_kl(1.2, 0.5), "q must be a probability", r"1\.2", "total"),
    Row("kl-p-negative", lambda: pac.binary_kl(0.2, -0.5), "p must be a probability", r"-0\.5", "total"),
    Row("kl-nan", lambda: pac.binary_kl(NAN, 0.5), "q must be a probability", "nan", "total"),
    Row("kl-text", lambda: pac.binary_kl("low", 0.5), "q must be a probability", "'low'|str"),
    Row("kl-shapes", lambda: pac.binary_kl([0.1, 0.2], [0.1, 0.2, 0.3]), "q and p must", r"\(2,\).*\(3,\)"),
    Row(
        "kl-inverse-c-negative",
        lambda: pac.binary_kl_inverse(0.1, -1.0),
        "c must be at least 0",
        r"-1\.0",
        "divergence",
    ),
    Row("kl-inverse-c-nan", lambda: pac.binary_kl_inverse(0.1, NAN), "c must be at least 0", "nan", "divergence"),
    Row("kl-inverse-c-text", lambda: pac.binary_kl_inverse(0.1, "small"), "c must be", "'small'|str"),
    Row(
        "kl-inverse-shapes",
        lambda: pac.binary_kl_inverse([0.1, 0.2], [0.1, 0.2, 0.3]),
        "q and c must",
        r"\(2,\).*\(3,\)",
    ),
    Row("bound-error-above-one", lambda: _bound(error=1.5), "error must be", r"1\.5", "0-1 error"),
    Row("bound-error-nan", lambda: _bound(error=NAN), "error must be", "nan", "0-1 error"),
    Row("bound-error-text", lambda: _bound(error="10 %"), "error must be", "'10 %'"),
    Row("bound-no-draws", lambda: _bound(draws=0), "at least 1 draw", "0", "counts"),
    Row("bound-draws-fraction", lambda: _bound(draws=2.5), "draw", r"2\.5", "counts"),
    Row("bound-one-example", lambda: _bound(examples=1), "2 examples", "1", "counts"),
    Row("bound-examples-nan", lambda: _bound(examples=NAN), "examples", "nan", "counts"),
    Row("bound-kl-negative", lambda: _bound(kl=-1.0), "a divergence must be at least 0", r"-1\.0", "gaussian_kl"),
    Row("bound-kl-nan", lambda: _bound(kl=NAN), "a divergence must be at least 0", "nan", "gaussian_kl"),
    Row("bound-index-zero", lambda: _bound(index=0), "integer >= 1", "0", "union"),
    Row("bound-index-fraction", lambda: _bound(index=[1.5]), "integer >= 1", r"1\.5", "union"),
    Row("bound-index-empty", lambda: _bound(index=[]), "index", r"\[\]|none"),
    Row("bound-index-text", lambda: _bound(index="f"), "integer >= 1", "'f'"),
    Row("bound-delta-zero", lambda: _bound(delta=0.0), "delta must lie strictly between 0 and 1", r"0\.0", "0.025"),
    Row("bound-delta-one", lambda: _bound(delta=1.0), "delta must lie strictly between 0 and 1", r"1\.0", "0.025"),
    Row("bound-delta-nan", lambda: _bound(delta_mc=NAN), "delta_mc must lie strictly between 0 and 1", "nan", "0.025"),
    Row("bound-delta-text", lambda: _bound(delta="5 %"), "delta must lie strictly between 0 and 1", "'5 %'", "0.025"),
    Row(
        "bound-deltas-sum",
        lambda: _bound(delta=0.6, delta_mc=0.5),
        r"delta \+ delta_mc must be below 1",
        r"1\.1",
        "0.01",
    ),
    Row("bound-grid-number", lambda: _bound(grid=0.1), "grid must be", "0.1|float", "Grid"),
    Row("grid-precision-zero", lambda: pac.Grid(precision=0), "precision and ceiling must be positive", "0", "100"),
    Row(
        "grid-precision-infinite",
        lambda: pac.Grid(precision=INF),
        "precision and ceiling must be positive",
        "inf",
        "100",
    ),
    Row("grid-ceiling-nan", lambda: pac.Grid(ceiling=NAN), "precision and ceiling must be positive", "nan", "100"),
    Row("grid-ceiling-text", lambda: pac.Grid(ceiling="low"), "precision and ceiling must be positive", "low", "100"),
    Row("grid-neighbours-negative", lambda: pac.Grid().neighbours(-1.0), "variance must be positive", r"-1\.0"),
    Row(
        "gaussian-kl-variance-zero",
        lambda: pac.gaussian_kl(TWO, [0.0, 1.0], TWO, 1.0),
        "variances must be positive",
        r"0\.0",
    ),
    Row(
        "gaussian-kl-variance-nan",
        lambda: pac.gaussian_kl(TWO, [NAN, 1.0], TWO, 1.0),
        "variances must be positive",
        "nan",
    ),
    Row("gaussian-kl-mean-nan", lambda: pac.gaussian_kl([NAN, 1.0], TWO, TWO, 1.0), "mean", "nan|NaN"),
    Row("gaussian-kl-shapes", lambda: pac.gaussian_kl([1.0, 2.0, 3.0], TWO, TWO, 1.0), "mean", r"\(3,\)"),
    Row("gaussian-kl-variance-shape", lambda: pac.gaussian_kl(TWO, [1.0, 2.0, 3.0], TWO, 1.0), "variance", r"\(3,\)"),
    Row("gaussian-kl-empty", lambda: pac.gaussian_kl([], [], [], 1.0), "at least one", "none|0"),
    Row("gaussian-kl-text", lambda: pac.gaussian_kl("w", TWO, TWO, 1.0), "mean", "'w'|str"),
]
