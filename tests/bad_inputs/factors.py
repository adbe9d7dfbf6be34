"""Kronecker factors of layers that there are not, and subspaces that do not compare."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import nn

from .given import NAN, function_loss, hessian, hs, inputs, labels, network, of, problem, spoiled
from .row import Row


@cache
def _decoupled() -> Any:
    return hs.decouple(problem(), "0")


def _grouped() -> Any:
    model = nn.Sequential(nn.Conv1d(2, 4, 2, groups=2), nn.Flatten(), nn.Linear(4, 3))
    return of(model, batch=(inputs().view(12, 2, 2), labels()))


def _wide(hidden: int) -> Any:
    return of(nn.Sequential(nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, 3)))


def _regression() -> Any:
    return of(loss="mse", batch=(inputs(), torch.zeros(12, 3)))


def _one_output() -> Any:
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 1))
    return of(model, "mse", (inputs(), torch.zeros(12, 1)))


EYE = torch.eye(4)

ROWS = [
    Row(
        "decouple-layer-unknown",
        lambda: hs.decouple(problem(), "fc1"),
        "layer must be a module of the model",
        "'fc1'",
        "Layers here: 0, 2",
    ),
    Row("decouple-layer-number", lambda: hs.decouple(problem(), 0), "layer must be", "0|int", "Layers here: 0, 2"),
    Row(
        "decouple-layer-module",
        lambda: hs.decouple(problem(), network()[0]),
        "layer must be",
        "Linear",
        "Layers here: 0, 2",
    ),
    Row("decouple-directions-one", lambda: hs.decouple(problem(), "0", directions=1), "directions must", "1", "halves"),
    Row(
        "decouple-directions-word",
        lambda: hs.decouple(problem(), "0", directions="many"),
        "directions must",
        "many",
        "every one",
    ),
    Row("decouple-layer-none", lambda: hs.decouple(problem(), None), "layer must be", "None", "Layers here: 0, 2"),
    Row(
        "decouple-layer-without-weight",
        lambda: hs.decouple(problem(), "1"),
        "multiply its input by a weight",
        "'1', a Tanh",
        "Layers here: 0, 2",
    ),
    Row(
        "decouple-reduction", lambda: hs.decouple(problem(), "0", reduction="sum"), "reduction must be", "'sum'", r"\w"
    ),
    Row(
        "decouple-curvature",
        lambda: hs.decouple(problem(), "0", curvature="fisher"),
        "curvature must be",
        "'fisher'",
        "auto|gauss_newton",
    ),
    Row("decouple-operator", lambda: hs.decouple(hessian(), "0"), "Problem", "Hessian", r"\w"),
    Row("decouple-model", lambda: hs.decouple(network(), "0"), "Problem", "Sequential", r"Problem\.of"),
    Row(
        "decouple-groups",
        lambda: hs.decouple(_grouped(), "0"),
        "give every output the same input",
        "2 groups",
        "layer_hessian",
    ),
    Row(
        "decouple-nan-input",
        lambda: hs.decouple(of(batch=(spoiled(inputs(), NAN), labels())), "0"),
        "must be finite",
        "nan|NaN",
        r"\w",
    ),
    Row(
        "decouple-layers-nothing", lambda: hs.decouple_layers(problem(), []), "at least one layer", r"\[\]|none", r"\w"
    ),
    Row("decouple-layers-text", lambda: hs.decouple_layers(problem(), "02"), "layers must be", "'02'|str", r"\w"),
    Row("decouple-layers-number", lambda: hs.decouple_layers(problem(), 2), "layers must be", "2|int", r"\w"),
    Row("decouple-layers-twice", lambda: hs.decouple_layers(problem(), ["0", "0"]), "layer", "'0'", r"\w"),
    Row("compare-k-zero", lambda: _decoupled().compare(k=0), "k must lie between 1 and", "k=0", "fewer"),
    Row("compare-k-large", lambda: _decoupled().compare(k=1000), "k must lie between 1 and", "k=1000", "fewer"),
    Row("compare-k-fraction", lambda: _decoupled().compare(k=2.5), "k must", r"2\.5", r"\w"),
    Row("compare-tol-nan", lambda: _decoupled().compare(k=2, tol=NAN), "tol must be > 0", "nan", r"\w"),
    Row("factors-k-zero", lambda: _decoupled().eigenpairs(0), "k must lie between 1 and", "k=0", "fewer"),
    Row("factors-k-text", lambda: _decoupled().eigenpairs("all"), "k must", "'all'", r"\w"),
    Row("factors-reduction", lambda: _decoupled().with_reduction("mean"), "reduction must be", "'mean'", r"\w"),
    Row(
        "layer-hessian-unknown",
        lambda: hs.layer_hessian(problem(), "head"),
        "layer must be a module of the model",
        "'head'",
        "Layers here: 0, 2",
    ),
    Row(
        "layer-hessian-curvature",
        lambda: hs.layer_hessian(problem(), "0", curvature="exact"),
        "curvature must be",
        "'exact'",
        "auto|gauss_newton",
    ),
    Row(
        "layer-hessian-function",
        lambda: hs.layer_hessian(of(loss=function_loss), "0", curvature="gauss_newton"),
        "outputs and the loss apart",
        r"\(sum, count\)",
        "forward=",
    ),
    Row("layer-hessian-operator", lambda: hs.layer_hessian(hessian(), "0"), "Problem", "Hessian", r"\w"),
    Row(
        "overlap-shapes",
        lambda: hs.subspace_overlap(EYE[:, :2], EYE[:, :3]),
        "same dimension",
        r"\(4, 2\) and \(4, 3\)",
        "Cut",
    ),
    Row(
        "overlap-vector",
        lambda: hs.subspace_overlap(EYE[:, 0], EYE[:, 1]),
        r"a basis of shape \(d, k\)",
        r"\(4,\)",
        "Columns",
    ),
    Row(
        "overlap-too-many-columns",
        lambda: hs.subspace_overlap(EYE[:2], EYE[:2]),
        r"1 <= k <= d",
        r"\(2, 4\)",
        "Columns",
    ),
    Row(
        "overlap-dependent",
        lambda: hs.subspace_overlap(torch.ones(4, 2), EYE[:, :2]),
        "must be independent",
        "rank below 2",
        "Drop",
    ),
    Row("overlap-nan", lambda: hs.subspace_overlap(EYE[:, :2] * NAN, EYE[:, :2]), "finite", "nan|NaN", r"\w"),
    Row("overlap-text", lambda: hs.subspace_overlap("u", "v"), "basis", "str|'u'", r"\w"),
    Row(
        "overlap-complex",
        lambda: hs.subspace_overlap(EYE[:, :2].to(torch.complex64), EYE[:, :2]),
        "real",
        "complex64",
        r"\w",
    ),
    Row(
        "overlap-result",
        lambda: hs.subspace_overlap(hs.eigenpairs(hessian(), 2), EYE[:, :2]),
        "basis",
        "Eigenpairs",
        r"vectors",
    ),
    Row("matricize-length", lambda: hs.matricize(torch.ones(7), (2, 3)), "must have 6 entries", r"\(7,\)", "layer"),
    Row(
        "matricize-layer-without-weight",
        lambda: hs.matricize(torch.ones(6), nn.ReLU()),
        "must have a weight matrix",
        "ReLU",
        r"\(m, n\)",
    ),
    Row("matricize-one-number", lambda: hs.matricize(torch.ones(6), (6,)), r"\(m, n\)", r"\(6,\)", r"\w"),
    Row("matricize-layer-name", lambda: hs.matricize(torch.ones(20), "0"), r"\(m, n\)", "'0'|str", r"\w"),
    Row(
        "correspondence-side",
        lambda: hs.correspondence(torch.ones(6, 1), torch.eye(3), side="rows"),
        "side must be",
        "'rows'",
        "inputs",
    ),
    Row(
        "correspondence-flat",
        lambda: hs.correspondence(torch.ones(6, 1), torch.eye(3)),
        "flat eigenvectors need side",
        "side='auto'",
        "matricize",
    ),
    Row(
        "correspondence-square",
        lambda: hs.correspondence(torch.ones(1, 3, 3), torch.eye(3)),
        "a square layer needs side",
        "side='auto'",
        "basis",
    ),
    Row(
        "correspondence-basis",
        lambda: hs.correspondence(torch.ones(1, 2, 3), torch.eye(4), side="inputs"),
        "basis must live on",
        "basis of 4",
        "inputs",
    ),
    Row(
        "correspondence-vector",
        lambda: hs.correspondence(torch.ones(6), torch.eye(3), side="inputs"),
        "vectors",
        r"\(6,\)",
        r"\w",
    ),
    Row(
        "full-k-zero",
        lambda: hs.approximate_full_eigenpairs(problem(), k=0),
        "k must lie between 1 and",
        "k=0",
        "fewer",
    ),
    Row(
        "full-k-large",
        lambda: hs.approximate_full_eigenpairs(problem(), k=50),
        "k must lie between 1 and the 8",
        "k=50",
        "fewer",
    ),
    Row("full-k-fraction", lambda: hs.approximate_full_eigenpairs(problem(), k=2.5), "k must", r"2\.5", r"\w"),
    Row(
        "full-form",
        lambda: hs.approximate_full_eigenpairs(problem(), k=2, form="paper"),
        "form must be",
        "'paper'",
        "printed",
    ),
    Row("full-operator", lambda: hs.approximate_full_eigenpairs(hessian(), k=2), "Problem", "Hessian", r"\w"),
    Row(
        "predicted-unknown",
        lambda: hs.predicted_output_eigenspace(problem(), "fc"),
        "layer must be a module of the model",
        "'fc'",
        "Layers here: 0, 2",
    ),
    Row(
        "predicted-one-output",
        lambda: hs.predicted_output_eigenspace(_one_output(), "0"),
        "at least two outputs",
        "1",
        r"\w",
    ),
    Row("predicted-operator", lambda: hs.predicted_output_eigenspace(hessian(), "0"), "Problem", "Hessian", r"\w"),
    Row("models-one", lambda: hs.model_overlap([problem()], "0", k=2), "at least two models", "1", "another"),
    Row(
        "models-problem",
        lambda: hs.model_overlap(problem(), "0", k=2),
        "problems must be|at least two",
        "Problem",
        r"\w",
    ),
    Row(
        "models-shapes",
        lambda: hs.model_overlap([_wide(5), _wide(6)], "0", k=2),
        "same shape in this layer",
        r"\(5, 4\), \(6, 4\)",
        "equal layers",
    ),
    Row(
        "models-k-zero",
        lambda: hs.model_overlap([problem(), problem()], "0", k=0),
        "k must lie between 1 and",
        "k=0",
        "fewer",
    ),
    Row(
        "models-tol-zero",
        lambda: hs.model_overlap([problem(), problem()], "0", k=2, tol=0),
        "tol must be > 0",
        "tol=0",
        r"\w",
    ),
    Row("models-operators", lambda: hs.model_overlap([hessian(), hessian()], "0", k=2), "Problem", "Hessian", r"\w"),
    Row("logits-regression", lambda: hs.logit_gradients(_regression(), "0"), "cross-entropy|label", r"\w", r"\w"),
    Row(
        "logits-function",
        lambda: hs.logit_gradients(of(loss=function_loss), "0"),
        "outputs and the loss apart",
        r"\(sum, count\)",
        "forward=",
    ),
    Row(
        "logits-layer",
        lambda: hs.logit_gradients(problem(), "fc"),
        "layer must be a module of the model",
        "'fc'",
        "Layers here: 0, 2",
    ),
    Row("logits-operator", lambda: hs.logit_gradients(hessian(), "0"), "Problem", "Hessian", r"\w"),
]
