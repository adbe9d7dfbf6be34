"""Partitions that cover nothing or too much, and pictures of matrices that there are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from .given import NAN, SIZE, data, hessian, hs, inputs, labels, network, of, problem, spoiled
from .row import Row


def _other() -> Any:
    """A problem with other parameters."""
    return of(nn.Linear(4, 3))


def _convolution() -> Any:
    model = nn.Sequential(nn.Conv1d(1, 3, 4), nn.Flatten())
    return of(model, batch=(inputs()[:, None], labels()))


def _unlabelled() -> Any:
    """Labels that leave some parameters without a block."""
    return hs.Partition(torch.full((SIZE,), -1), ("a",), ("a",))


def _nan_problem() -> Any:
    return of(loss=nn.CrossEntropyLoss(reduction="sum"), batch=(spoiled(inputs(), NAN), labels()))


def _scaled(factor: float) -> Any:
    """In float32, with entries whose squares it does not hold."""
    each = nn.CrossEntropyLoss(reduction="none")
    return of(loss=lambda z, y: factor * each(z, y)).cast(torch.float32)


def _states(**values: Any) -> Any:
    return {name.replace("_", "."): value for name, value in values.items()}


def _course(*checkpoints: Any) -> Any:
    return hs.structure_history(problem(), checkpoints, partition="layer")


ROWS = [
    Row(
        "partition-kind",
        lambda: hs.Partition.by("row", problem()),
        "a partition must be one of layer",
        "'row'",
        r"Partition\.of",
    ),
    Row(
        "partition-kind-none",
        lambda: hs.Partition.by(None, problem()),
        "a partition must be one of layer",
        "None",
        r"Partition\.of",
    ),
    Row(
        "partition-kind-list",
        lambda: hs.Partition.by(["layer"], problem()),
        "a partition must be one of layer",
        r"\['layer'\]",
        r"Partition\.of",
    ),
    Row("partition-of-model", lambda: hs.Partition.by("layer", network()), "Problem", "Sequential", r"Problem\.of"),
    Row(
        "partition-swapped",
        lambda: hs.Partition.by(problem(), "layer"),
        "a partition must be one of layer",
        "Problem",
        r"\w",
    ),
    Row(
        "partition-class-without-matrix",
        lambda: hs.Partition.by("class", problem().select("*bias")),
        "needs an output matrix",
        "no matrix",
        "weight",
    ),
    Row(
        "partition-head-without-attention",
        lambda: hs.Partition.by("head", problem()),
        "needs attention modules",
        "Sequential without",
        "num_heads",
    ),
    Row(
        "partition-overlap",
        lambda: hs.Partition.of(problem(), {"a": "0.*", "b": "*"}),
        "must not overlap",
        "'b' repeats",
        "disjoint",
    ),
    Row(
        "partition-uncovered",
        lambda: hs.Partition.of(problem(), {"a": "0.*"}),
        "cover every selected parameter",
        r"2\.weight",
        "glob",
    ),
    Row(
        "partition-unknown-glob",
        lambda: hs.Partition.of(problem(), {"a": "fc*"}),
        "match at least one parameter",
        r"'fc\*'",
        r"0\.weight",
    ),
    Row(
        "partition-no-blocks",
        lambda: hs.Partition.of(problem(), {}),
        "cover every selected parameter",
        r"0\.weight",
        "glob",
    ),
    Row("partition-list", lambda: hs.Partition.of(problem(), ["0.*", "2.*"]), "blocks must be", "list", r"\w"),
    Row("partition-number-glob", lambda: hs.Partition.of(problem(), {"a": 0}), "glob", "0|int", r"0\.weight"),
    Row("partition-block-unknown", lambda: hs.Partition.by("layer", problem()).indices("fc"), "block", "'fc'", r"\w"),
    Row("partition-block-outside", lambda: hs.Partition.by("layer", problem()).indices(7), "block", "7", r"\w"),
    Row(
        "norms-partition-unknown",
        lambda: hs.block_norms(problem(), "rows"),
        "a partition must be one of layer",
        "'rows'",
        r"Partition\.of",
    ),
    Row(
        "norms-partition-none",
        lambda: hs.block_norms(problem(), None),
        "a partition must be one of layer",
        "None",
        r"Partition\.of",
    ),
    Row(
        "norms-partition-of-another",
        lambda: hs.block_norms(problem(), hs.Partition.by("layer", _other())),
        f"cover the {SIZE} selected parameters",
        "15 parameters",
        "same problem",
    ),
    Row(
        "norms-partition-holes",
        lambda: hs.block_norms(problem(), _unlabelled()),
        "every parameter must have a block",
        "labels",
        r"\w",
    ),
    Row(
        "norms-matrix",
        lambda: hs.block_norms(problem(), "layer", matrix="hess"),
        "matrix must be",
        "'hess'",
        "operator",
    ),
    Row("norms-method", lambda: hs.block_norms(problem(), method="quick"), "method must be", "'quick'", "auto"),
    Row("norms-one-probe", lambda: hs.block_norms(problem(), probes=1), "probes must be", "1", "16"),
    Row(
        "norms-probes-fraction",
        lambda: hs.block_norms(problem(), method="stochastic", probes=2.5),
        "probes must be",
        r"2\.5",
        r"\w",
    ),
    Row("norms-probes-text", lambda: hs.block_norms(problem(), probes="many"), "probes must be", "'many'", r"\w"),
    Row("norms-seed", lambda: hs.block_norms(problem(), method="stochastic", rng=NAN), "rng must be", "nan", "Rng"),
    Row("norms-of-model", lambda: hs.block_norms(network()), "Problem", "Sequential", r"Problem\.of"),
    Row(
        "norms-float32-tiny",
        lambda: hs.block_norms(_scaled(1e-24), "layer"),
        r"between 1e-15 and 1e\+17",
        "less",
        "cast",
    ),
    Row(
        "norms-float32-huge", lambda: hs.block_norms(_scaled(1e20), "layer"), "must be finite", "NaN or inf", "float64"
    ),
    Row(
        "decouple-float32-tiny",
        lambda: hs.decouple(_scaled(1e-22), "0").errors(),
        r"between 1e-15 and 1e\+17",
        "less|norm of",
        "cast",
    ),
    Row("decouple-float32-huge", lambda: hs.decouple(_scaled(1e20), "0").errors(), "squared", "inf|nan", "cast"),
    Row("norms-nan-input", lambda: hs.block_norms(_nan_problem(), "layer"), "must be finite", "nan|NaN", r"\w"),
    Row(
        "norms-nan-input-stochastic",
        lambda: hs.block_norms(_nan_problem(), "layer", method="stochastic"),
        "must be finite",
        "nan|NaN",
        r"\w",
    ),
    Row(
        "spectra-partition",
        lambda: hs.block_spectra(problem(), "rows"),
        "a partition must be one of layer",
        "'rows'",
        r"Partition\.of",
    ),
    Row(
        "spectra-matrix",
        lambda: hs.block_spectra(problem(), "layer", matrix="fisher"),
        "matrix must be",
        "'fisher'",
        "operator",
    ),
    Row("spectra-nan-input", lambda: hs.block_spectra(_nan_problem(), "layer"), "must be finite", "nan|NaN", r"\w"),
    Row("dense-matrix", lambda: hs.dense_hessian(problem(), "H"), "matrix must be", "'H'", "operator"),
    Row("dense-nan-input", lambda: hs.dense_hessian(_nan_problem()), "must be finite", "nan|NaN", r"\w"),
    Row("heat-no-pixels", lambda: hs.heat_map(problem(), pixels=0), "pixels must be", "0", "512"),
    Row("heat-pixels-fraction", lambda: hs.heat_map(problem(), pixels=10.5), "pixels must be", r"10\.5", r"\w"),
    Row("heat-pixels-text", lambda: hs.heat_map(problem(), pixels="large"), "pixels must be", "'large'", r"\w"),
    Row("heat-reduce", lambda: hs.heat_map(problem(), reduce="sum"), "reduce must be", "'sum'", r"\w"),
    Row("heat-of-array", lambda: hs.heat_map(np.eye(3)), "Problem", "ndarray", r"\w"),
    Row("heat-nan-input", lambda: hs.heat_map(_nan_problem()), "must be finite", "nan|NaN", r"\w"),
    Row("output-layer-unknown", lambda: hs.output_block_norms(problem(), "fc"), "layer", "'fc'", r"\w"),
    Row("output-layer-without-weight", lambda: hs.output_block_norms(problem(), "1"), "linear layer", "'1'", r"\w"),
    Row("output-layer-number", lambda: hs.output_block_norms(problem(), 2), "layer", "2|int", r"\w"),
    Row(
        "output-no-linear",
        lambda: hs.output_block_norms(_convolution()),
        "linear output layer",
        "Sequential without",
        r"\w",
    ),
    Row("output-pairs-outside", lambda: hs.output_block_norms(problem(), pairs=[(0, 99)]), "pair", "99", r"\w"),
    Row("output-pairs-negative", lambda: hs.output_block_norms(problem(), pairs=[(-1, 0)]), "pair", "-1", r"\w"),
    Row(
        "output-pairs-triple",
        lambda: hs.output_block_norms(problem(), pairs=[(0, 1, 2)]),
        "pair",
        r"\(0, 1, 2\)|3",
        r"\w",
    ),
    Row("output-pairs-fraction", lambda: hs.output_block_norms(problem(), pairs=[(0.5, 1)]), "pair", r"0\.5", r"\w"),
    Row(
        "output-sampled-negative", lambda: hs.output_block_norms(problem(), sampled=-1), "sampled must be", "-1", r"\w"
    ),
    Row(
        "output-sampled-fraction",
        lambda: hs.output_block_norms(problem(), sampled=1.5),
        "sampled must be",
        r"1\.5",
        r"\w",
    ),
    Row("stripes-one-layer", lambda: hs.circulant_score(_other()), "two selected linear layers", r"\[", r"\w"),
    Row("stripes-of-operator", lambda: hs.circulant_score(hessian()), "Problem", "Hessian", r"\w"),
    Row("course-empty", lambda: _course(), "at least one checkpoint", "none", "pairs"),
    Row(
        "course-unknown-name",
        lambda: _course((0, _states(fc_weight=torch.zeros(5, 4)))),
        "parameter",
        "'fc.weight'",
        r"0\.weight",
    ),
    Row("course-states-only", lambda: _course(network().state_dict()), "checkpoint", r"\w", r"pairs|\(step"),
    Row("course-step-text", lambda: _course(("start", dict(network().named_parameters()))), "step", "'start'", r"\w"),
    Row("course-step-nan", lambda: _course((NAN, dict(network().named_parameters()))), "step", "nan", r"\w"),
    Row("course-of-data", lambda: hs.structure_history(data(), [(0, {})]), "Problem", "tuple", r"Problem\.of"),
]
