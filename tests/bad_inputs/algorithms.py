"""Operators that are none, vectors that do not fit them, and settings of algorithms that nothing can meet."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from hesscope.errors import BudgetExceeded

from .given import INF, NAN, SIZE, hessian, hs, large, network, operators, spoiled
from .row import Row


def _vector() -> torch.Tensor:
    return torch.ones(SIZE)


def _dense(matrix: Any, **settings: Any) -> Any:
    return operators.Dense(torch.as_tensor(matrix), **settings)


def _indefinite() -> Any:
    return _dense(torch.diag(torch.tensor([1.0, -1.0, 2.0])))


def _asymmetric() -> Any:
    return _dense(torch.tensor([[1.0, 2.0], [0.0, 1.0]]))


def _liar() -> Any:
    """Says that it is symmetric, and is not."""
    matrix = torch.randn(300, 300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return _dense(matrix, symmetric=True)


class Unfinished(operators.LinearOperator):  # type: ignore[misc]
    """An operator of the user's own that gives NaN."""

    shape, dtype, device = (300, 300), torch.float64, torch.device("cpu")

    def _apply(self, block: torch.Tensor) -> torch.Tensor:
        return block * NAN


SIZED = rf"\({SIZE},\)"

ROWS = [
    Row(
        "product-length",
        lambda: hessian() @ torch.ones(SIZE + 1),
        rf"needs a tensor of shape {SIZED}",
        r"\(44,\)",
        "pack",
    ),
    Row(
        "product-three-axes",
        lambda: hessian() @ torch.ones(SIZE, 1, 1),
        rf"needs a tensor of shape {SIZED}",
        rf"\({SIZE}, 1, 1\)",
        "pack",
    ),
    Row("product-number", lambda: hessian() @ torch.tensor(1.0), rf"needs a tensor of shape {SIZED}", r"\(\)", "pack"),
    Row("product-array-length", lambda: hessian() @ np.ones(3), rf"needs a tensor of shape {SIZED}", r"\(3,\)", "pack"),
    Row(
        "product-meta",
        lambda: hessian() @ torch.ones(SIZE, device="meta"),
        "needs numbers",
        "meta device",
        "own device",
    ),
    Row("product-list", lambda: hessian() @ [1.0] * SIZE, "needs a tensor", "list", r"\w"),
    Row("product-text", lambda: hessian() @ "gradient", "needs a tensor", "str", r"\w"),
    Row("product-none", lambda: hessian() @ None, "needs a tensor", "None", r"\w"),
    Row("product-nan", lambda: hessian() @ spoiled(_vector(), NAN), "finite", "nan|NaN", r"\w"),
    Row("product-infinite", lambda: hessian() @ spoiled(_vector(), INF), "finite", "inf", r"\w"),
    Row("product-array-nan", lambda: hessian() @ np.full(SIZE, NAN), "finite", "nan|NaN", r"\w"),
    Row("product-complex", lambda: hessian() @ _vector().to(torch.complex64), "real", "complex64", r"\w"),
    Row(
        "product-array-of-text",
        lambda: hessian() @ np.array(["a"] * SIZE),
        "needs a tensor|number",
        r"<U1|str|dtype",
        r"\w",
    ),
    Row("sum-shapes", lambda: hessian() + _dense(torch.eye(3)), "must have one shape", r"\(3, 3\)", "same parameters"),
    Row("sum-tensor", lambda: hessian() + torch.eye(SIZE), "operator", "Tensor", "Dense"),
    Row("multiple-text", lambda: hessian() * "two", "numbers", "str", r"\w"),
    Row("multiple-number-as-text", lambda: hessian() * "2", "number|scale", "'2'", r"\w"),
    Row("multiple-nan", lambda: hessian() * NAN, "number|scale|finite", "nan", r"\w"),
    Row("multiple-operator", lambda: hessian() * hessian(), "number|scale", "Hessian", r"\w"),
    Row("dense-vector", lambda: _dense(torch.ones(3)), "needs a matrix", r"\(3,\)", "2-d"),
    Row("dense-list", lambda: operators.Dense([[1.0]]), "tensor", "list", r"Tensor"),
    Row("dense-chunk-zero", lambda: hessian().dense(chunk=0), "chunk must be", "0", r"\w"),
    Row("kronecker-vector", lambda: operators.Kronecker(torch.ones(2), torch.eye(2)), "matri", r"\(2,\)", r"\w"),
    Row("low-rank-values", lambda: operators.LowRank(torch.ones(4, 2), torch.ones(3)), "values", "3|2", r"\w"),
    Row("block-diagonal-nothing", lambda: operators.BlockDiagonal([]), "needs blocks", "none", "at least one"),
    Row("block-diagonal-tensors", lambda: operators.BlockDiagonal([torch.eye(2)]), "operator", "plain tensor", "Dense"),
    Row("counted-model", lambda: hs.Counted(network()), "operator", "Sequential", r"Problem\.of"),
    Row("counted-budget-negative", lambda: hs.Counted(hessian(), budget=-1), "budget must be", "-1", r"\w"),
    Row("counted-budget-fraction", lambda: hs.Counted(hessian(), budget=2.5), "budget must be", r"2\.5", r"\w"),
    Row("counted-budget-text", lambda: hs.Counted(hessian(), budget="much"), "budget must be", "'much'", r"\w"),
    Row("counted-report-number", lambda: hs.Counted(hessian(), on_product=3), "on_product must be", "3|int", r"\w"),
    Row(
        "counted-budget-spent",
        lambda: hs.eigenpairs(hs.Counted(large(), budget=5), k=3),
        "the budget must cover the work",
        "5",
        "Raise the budget",
        BudgetExceeded,
    ),
    Row("eigen-model", lambda: hs.eigenpairs(network()), "operator", "Sequential", r"\w"),
    Row("eigen-array", lambda: hs.eigenpairs(np.eye(3)), "operator", "plain array", r"Dense"),
    Row("eigen-tensor", lambda: hs.eigenpairs(torch.eye(3)), "operator", "plain tensor", r"Dense"),
    Row("eigen-none", lambda: hs.eigenpairs(None), "operator", "None", r"\w"),
    Row("eigen-k-zero", lambda: hs.eigenpairs(hessian(), k=0), "k must be", "k=0", "default"),
    Row("eigen-k-negative", lambda: hs.eigenpairs(hessian(), k=-2), "k must be", "k=-2", "default"),
    Row("eigen-k-fraction", lambda: hs.eigenpairs(hessian(), k=2.5), "k must be", r"2\.5", r"\w"),
    Row("eigen-k-text", lambda: hs.eigenpairs(hessian(), k="ten"), "k must be", "'ten'", r"\w"),
    Row("eigen-k-none", lambda: hs.eigenpairs(hessian(), k=None), "k must be", "None", r"\w"),
    Row("eigen-which", lambda: hs.eigenpairs(hessian(), which="top"), "which must be", "'top'", "largest"),
    Row("eigen-which-number", lambda: hs.eigenpairs(hessian(), which=3), "which must be", "3", "largest"),
    Row("eigen-tol-zero", lambda: hs.eigenpairs(hessian(), tol=0.0), "tol must be > 0", r"tol=0\.0", "1e-3"),
    Row("eigen-tol-negative", lambda: hs.eigenpairs(hessian(), tol=-1e-3), "tol must be > 0", r"tol=-0\.001", "1e-3"),
    Row("eigen-tol-nan", lambda: hs.eigenpairs(hessian(), tol=NAN), "tol must be > 0", "tol=nan", "1e-3"),
    Row("eigen-tol-infinite", lambda: hs.eigenpairs(hessian(), tol=INF), "tol must be", "inf", "1e-3"),
    Row("eigen-tol-text", lambda: hs.eigenpairs(hessian(), tol="small"), "tol must be > 0", "'?small'?", "1e-3"),
    Row(
        "eigen-start-shape",
        lambda: hs.eigenpairs(hessian(), start=torch.ones(3, 2)),
        rf"start must have shape \({SIZE}, j\)",
        r"\(3, 2\)",
        "vectors",
    ),
    Row(
        "eigen-start-vector",
        lambda: hs.eigenpairs(hessian(), start=_vector()),
        rf"start must have shape \({SIZE}, j\)",
        SIZED,
        "vectors",
    ),
    Row(
        "eigen-start-nan",
        lambda: hs.eigenpairs(hessian(), start=torch.full((SIZE, 1), NAN)),
        "start must be finite",
        "NaN",
        "random",
    ),
    Row(
        "eigen-start-list",
        lambda: hs.eigenpairs(hessian(), start=[[1.0]] * SIZE),
        "start must",
        "list",
        r"vectors",
    ),
    Row("eigen-block-zero", lambda: hs.eigenpairs(hessian(), block=0), "block must be", "block=0", "default"),
    Row("eigen-block-fraction", lambda: hs.eigenpairs(large(), block=1.5), "block must be", r"1\.5", r"\w"),
    Row(
        "eigen-basis-small",
        lambda: hs.eigenpairs(large(), k=5, max_basis=4),
        "max_basis must be",
        "max_basis=4",
        "Raise",
    ),
    Row("eigen-basis-text", lambda: hs.eigenpairs(large(), max_basis="all"), "max_basis must be", "'all'", r"\w"),
    Row(
        "eigen-products-zero",
        lambda: hs.eigenpairs(hessian(), max_products=0),
        "max_products must be",
        "max_products=0",
        "default",
    ),
    Row("eigen-seed", lambda: hs.eigenpairs(large(), rng=0.5), "rng must be", r"0\.5", "Rng"),
    Row("eigen-asymmetric", lambda: hs.eigenpairs(_asymmetric()), "symmetric operator", "which is not", r"A \+ A\.T"),
    Row(
        "eigen-not-square",
        lambda: hs.eigenpairs(_dense(torch.ones(2, 3))),
        "symmetric operator",
        "which is not",
        r"A \+ A\.T",
    ),
    Row("eigen-liar", lambda: hs.eigenpairs(_liar(), k=2), "symmetric operator", "differ by", r"A \+ A\.T"),
    Row("eigen-empty", lambda: hs.eigenpairs(_dense(torch.zeros(0, 0))), "at least one row", "Dense", r"\w"),
    Row("eigen-float16", lambda: hs.eigenpairs(_dense(torch.eye(3).half())), "float32 or float64", "float16", r"float"),
    Row("eigen-nan", lambda: hs.eigenpairs(_dense(torch.eye(3) * NAN, symmetric=True)), "must be finite", "NaN", r"\w"),
    Row("eigen-nan-large", lambda: hs.eigenpairs(Unfinished(), k=2), "must be finite", "NaN", r"\w"),
    Row("density-probes-zero", lambda: hs.spectral_density(hessian(), probes=0), "probes.* must be", "0", "10"),
    Row(
        "density-probes-fraction", lambda: hs.spectral_density(large(), probes=2.5), "probes.* must be", r"2\.5", r"\w"
    ),
    Row("density-probes-text", lambda: hs.spectral_density(hessian(), probes="ten"), "probes.* must be", "ten", r"\w"),
    Row("density-steps-zero", lambda: hs.spectral_density(hessian(), steps=0), "steps must be", "0", "80"),
    Row("density-steps-fraction", lambda: hs.spectral_density(large(), steps=20.5), "steps must be", r"20\.5", r"\w"),
    Row(
        "density-tol-negative",
        lambda: hs.spectral_density(hessian(), tol=-0.1),
        "tol must be >= 0",
        r"tol=-0\.1",
        "0.02",
    ),
    Row("density-tol-nan", lambda: hs.spectral_density(hessian(), tol=NAN), "tol must be >= 0", "tol=nan", "0.02"),
    Row("density-method", lambda: hs.spectral_density(hessian(), method="fft"), "method must be", "'fft'", r"\w"),
    Row("density-seed", lambda: hs.spectral_density(large(), rng="1"), "rng must be", "'1'", "Rng"),
    Row(
        "density-stderr-width",
        lambda: hs.spectral_density(large(), 2, steps=20, tol=0.0).density_stderr(1.0, 0.0),
        "width",
        r"0\.0",
        r"\w",
    ),
    Row(
        "density-probe-unknown",
        lambda: hs.spectral_density(large(), 2, steps=20, tol=0.0).probe(99),
        "probe",
        "99",
        r"\w",
    ),
    Row("trace-tol-zero", lambda: hs.trace(hessian(), tol=0), "tol must be > 0", "tol=0", "1e-3"),
    Row("trace-method", lambda: hs.trace(hessian(), method="hutch"), "method must be", "'hutch'", r"\w"),
    Row("trace-products-negative", lambda: hs.trace(large(), max_products=-1), "max_products must be", "-1", r"\w"),
    Row(
        "trace-products-fraction", lambda: hs.trace(large(), max_products=10.5), "max_products must be", r"10\.5", r"\w"
    ),
    Row("trace-asymmetric", lambda: hs.trace(_asymmetric()), "symmetric operator", "which is not", r"A \+ A\.T"),
    Row("trace-nan", lambda: hs.trace(Unfinished()), "must be finite", "NaN", r"\w"),
    Row("diagonal-model", lambda: hs.diagonal(network()), "operator", "Sequential", r"\w"),
    Row("diagonal-tol-nan", lambda: hs.diagonal(hessian(), tol=NAN), "tol must be > 0", "tol=nan", "1e-3"),
    Row("diagonal-products-zero", lambda: hs.diagonal(large(), max_products=0), "max_products must be", "0", r"\w"),
    Row("row-norms-tol-text", lambda: hs.row_norms(hessian(), tol="5 %"), "tol must be > 0", "5 %", "1e-3"),
    Row("row-norms-seed", lambda: hs.row_norms(large(), rng="seed"), "rng must be", "'seed'|str", "Rng"),
    Row("frobenius-tol-negative", lambda: hs.frobenius_norm(hessian(), tol=-1), "tol must be > 0", "tol=-1", "1e-3"),
    Row(
        "spectral-norm-products",
        lambda: hs.spectral_norm(hessian(), max_products=0),
        "max_products must be",
        "0",
        r"\w",
    ),
    Row("spectral-norm-text", lambda: hs.spectral_norm("H"), "operator", "str", r"\w"),
    Row(
        "solve-length", lambda: hs.solve(hessian(), torch.ones(3)), rf"b must have shape {SIZED}", r"\(3,\)", "Flatten"
    ),
    Row(
        "solve-matrix",
        lambda: hs.solve(hessian(), torch.ones(SIZE, 2)),
        rf"b must have shape {SIZED}",
        rf"\({SIZE}, 2\)",
        "Flatten|one",
    ),
    Row(
        "solve-nan", lambda: hs.solve(hessian(), spoiled(_vector(), NAN)), "b must be finite", "NaN", "right-hand side"
    ),
    Row("solve-list", lambda: hs.solve(hessian(), [1.0] * SIZE), "b must", "list", r"tensor"),
    Row(
        "solve-complex",
        lambda: hs.solve(hessian(), _vector().to(torch.complex64)),
        "b must be real|real",
        "complex64",
        r"\w",
    ),
    Row("solve-method", lambda: hs.solve(hessian(), _vector(), method="lu"), "method must be", "'lu'", "minres"),
    Row(
        "solve-damping-negative",
        lambda: hs.solve(hessian(), _vector(), damping=-1.0),
        "damping must be finite and >= 0",
        r"-1\.0",
        "plain system",
    ),
    Row(
        "solve-damping-nan",
        lambda: hs.solve(hessian(), _vector(), damping=NAN),
        "damping must be finite and >= 0",
        "nan",
        "plain system",
    ),
    Row(
        "solve-damping-text",
        lambda: hs.solve(hessian(), _vector(), damping="some"),
        "damping must be",
        "'?some'?",
        "plain system",
    ),
    Row("solve-tol-zero", lambda: hs.solve(hessian(), _vector(), tol=0.0), "tol must be > 0", r"tol=0\.0", "1e-3"),
    Row(
        "solve-products-zero",
        lambda: hs.solve(hessian(), _vector(), max_products=0),
        "max_products must be",
        "0",
        r"\w",
    ),
    Row(
        "solve-negative-curvature",
        lambda: hs.solve(_indefinite(), torch.ones(3) * torch.tensor([0.0, 1.0, 0.0])),
        "positive curvature",
        "-1",
        "minres",
    ),
    Row("check-operator-tensor", lambda: hs.testing.check_operator(torch.eye(3)), "operator", "plain tensor", "Dense"),
]
