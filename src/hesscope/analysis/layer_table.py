"""hs.per_layer: what the Hessian of every layer is like, in one call."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ..curvature import Hessian, Problem
from ..curvature.given_problem import need_problem
from ..errors import refuse
from ..kron import Decoupling, decouplable_layers
from ..kron.frobenius import Distances
from ..layers.example_factors import example_columns, row_count
from ..linalg import eigenpairs, frobenius_norm, trace
from ..linalg.validation import require_positive
from ..measure import Array
from ..operators import Dense, LinearOperator
from ..operators.autocast import own_types
from ..results.kronecker import KroneckerComparison
from ..results.layers import LayerTable
from ..rng import Rng
from .context import Context
from .layer_prices import expected_products, factor_room, factored_sizes, layer_sizes, parameters_by_layer
from .layers import decouplings, second_derivative_passes

Errors = Mapping[str, tuple[float, float]]
Announce = Callable[[str], None]
_DENSE = 200  # up to this size all products of a block cost no more than its three estimates
_MOST_PRODUCTS = 200  # for each estimate of a block; what is left then is in its error
_GRAM = 2048  # side of a Gram matrix that is formed
_MOST_PASSES = 1000  # for the output Hessians of a layer
_KRONECKER_FLOPS = 2e10


@dataclass(frozen=True)
class _Row:
    """Value and error of trace, top eigenvalue, norm and Frobenius norm of one layer."""

    trace: tuple[float, float]
    top: tuple[float, float]
    norm: tuple[float, float]
    frobenius: tuple[float, float]
    products: int
    method: str


@own_types()
def per_layer(
    problem: Problem, tol: float = 0.03, *, kronecker: bool | Errors = True, rng: Rng | int | None = None
) -> LayerTable:
    """Trace, top eigenvalue, Frobenius norm, share, stable rank and Kronecker error of every layer's Hessian.

    Layers behind which the loss's own curvature is everything (piecewise-linear networks) are H = AᵀA, A the gradients
    of the examples: all numbers but the eigenvalue's residual are then exact, without a product. Small blocks are
    multiplied out; the others are estimated to a relative error of `tol`, or with what 200 products each give.
    `kronecker=False` leaves the comparison with E[M] ⊗ E[xxᵀ] out, which takes longest.
    """
    require_positive("tol", tol)
    if not isinstance(kronecker, bool | Mapping):
        refuse("kronecker must be True or False", f"{kronecker!r}", "False leaves the Kronecker errors out.")
    return measure_layers(need_problem(problem), tol, kronecker, Rng.of(rng).child("per layer"))


def measure_layers(
    problem: Problem, tol: float, kronecker: bool | Errors, rng: Rng, announce: Announce = lambda stage: None
) -> LayerTable:
    """The same; `kronecker` may hold errors that are known already, by layer."""
    hessian = Hessian(problem)
    hessian.need_right()  # first: what comes from layer structure is proven by these derivatives alone
    check = hessian.verified
    blocks = parameters_by_layer(problem)
    parts = _kronecker_parts(problem, announce) if kronecker is True else {}
    errors: dict[str, tuple[float, float]] = dict(kronecker) if isinstance(kronecker, Mapping) else {}
    rows = _from_examples(problem, blocks, parts, errors)
    for layer, names in blocks.items():
        if layer not in rows:
            announce(layer)
            rows[layer] = _by_products(hessian.restricted(problem.space.only(names)), tol, rng.child(layer))
    for layer, part in parts.items():
        if layer not in errors:
            announce(f"Kronecker error of {layer}")
            errors[layer] = Distances(part.exact, None, _KRONECKER_FLOPS).relative(part.operator)
    missing = (float("nan"), float("nan"))
    compared = np.array([errors.get(layer, missing) for layer in blocks]).T

    def both(name: str) -> tuple[Array, Array]:
        found = np.array([getattr(rows[layer], name) for layer in blocks], dtype=np.float64)
        return found[:, 0], found[:, 1]

    return LayerTable(
        tuple(blocks),
        np.array(list(layer_sizes(problem).values()), dtype=np.float64),
        *both("trace"),
        *both("top"),
        *both("norm"),
        *both("frobenius"),
        compared[0],
        compared[1],
        tuple(rows[layer].method for layer in blocks),
        sum(row.products for row in rows.values()),
        check,
    )


def table_of_layers(run: Context, compared: Sequence[KroneckerComparison]) -> LayerTable | None:
    """The stage of an analysis; Kronecker errors are those that it has measured already."""
    problem, config = run.problem, run.config
    if not config.per_layer:
        return None
    products = expected_products(problem)
    if products > config.most_products:
        run.notes.append(f"No table by layer: it takes about {products:,} products (--most-products).")
        return None
    known = {d.layer: (d.frobenius_error, d.frobenius_stderr) for d in compared}

    def announce(stage: str) -> None:
        run.announce(f"layer {stage}")

    def compute() -> LayerTable:
        return measure_layers(problem, 2 * config.trace_tol, known, run.rng.child("per layer"), announce)

    inputs = (config.trace_tol, config.seed, sorted(known.items()))
    return run.stages.run(LayerTable, "layers", compute, inputs)


def _from_examples(
    problem: Problem,
    blocks: Mapping[str, list[str]],
    parts: Mapping[str, Decoupling],
    errors: dict[str, tuple[float, float]],
) -> dict[str, _Row]:
    """The rows of all layers that are AᵀA and whose A fits into memory, several at a time; fills in their `errors`."""
    rows = row_count(problem)
    if rows is None:
        return {}
    room, factored = factor_room(problem), factored_sizes(problem)
    found: dict[str, _Row] = {}
    group: list[str] = []
    held = 0.0

    def finish() -> bool:
        names = [name for layer in group for name in blocks[layer]]
        columns = example_columns(problem, names) if names else {}
        for layer in group if columns is not None else ():
            assert columns is not None
            found[layer] = _of_factor(torch.cat([columns[name] for name in blocks[layer]], 1))
            if layer in parts:
                errors[layer] = (_kronecker_error(columns[parts[layer].weight], parts[layer]), 0.0)
        group.clear()
        return columns is not None

    for layer, size in factored.items():
        entries = float(rows * size)
        if held + entries > room and group:
            if not finish():
                return {}
            held = 0.0
        group.append(layer)
        held += entries
    return found if finish() else {}


def _of_factor(a: torch.Tensor) -> _Row:
    """H = AᵀA has the nonzero eigenvalues of AAᵀ: the smaller of the two gives every number."""
    method = "per-example gradients"
    total = float(a.double().square().sum())
    small = a.T @ a if a.shape[1] <= a.shape[0] else a @ a.T
    if len(small) > _GRAM:
        top = eigenpairs(Dense(small, symmetric=True), 1, tol=1e-4)
    else:
        top = eigenpairs(Dense(small.double(), symmetric=True), 1, tol=1e-6)
    largest = (float(top.values[0]), float(top.residuals[0]))
    return _Row((total, 0.0), largest, largest, (float(torch.linalg.matrix_norm(small.double())), 0.0), 0, method)


def _by_products(block: LinearOperator, tol: float, rng: Rng) -> _Row:
    n = block.shape[0]
    if n <= _DENSE:
        matrix = block.dense().double()
        values = torch.linalg.eigvalsh((matrix + matrix.T) / 2)
        rounding = float(values.abs().max()) * torch.finfo(block.dtype).eps
        return _Row(
            (float(matrix.trace()), 0.0),
            (float(values[-1]), rounding),
            (float(values.abs().max()), rounding),
            (float(torch.linalg.matrix_norm(matrix)), 0.0),
            n,
            "all products",
        )
    # A residual only says that some eigenvalue is near; a coarse one may belong to the second largest.
    sharp, most = min(tol, 1e-3), _MOST_PRODUCTS
    with warnings.catch_warnings():  # what is not reached stands in the errors
        warnings.simplefilter("ignore")
        largest = eigenpairs(block, 1, which="magnitude", tol=sharp, max_products=most, rng=rng)
        products, top = largest.products, largest
        if largest.values[0] < 0:
            top = eigenpairs(block, 1, tol=sharp, max_products=most, rng=rng)
            products += top.products
        whole = trace(block, tol, max_products=most, rng=rng)
        size = frobenius_norm(block, tol, max_products=most, rng=rng)
    return _Row(
        (float(whole), float(whole.stderr)),
        (float(top.values[0]), float(top.residuals[0])),
        (abs(float(largest.values[0])), float(largest.residuals[0])),
        (float(size), float(size.stderr)),
        products + whole.products + size.products,
        f"Lanczos, {whole.method}, {size.method}",
    )


def _kronecker_parts(problem: Problem, announce: Announce) -> dict[str, Decoupling]:
    """E[M] and E[xxᵀ] of every selected weight that is taken apart at an acceptable price, by layer."""
    announce("Kronecker factors")
    names = [name for name in decouplable_layers(problem) if second_derivative_passes(problem, name) <= _MOST_PASSES]
    return decouplings(problem, names)


def _kronecker_error(a: torch.Tensor, part: Decoupling) -> float:
    """‖H − K‖² = ‖H‖² − 2 Σ_r a_rᵀ K a_r + ‖K‖², for H = AᵀA and K = E[M] ⊗ E[xxᵀ], relative to ‖H‖."""
    left, right = part.output_hessian.double(), part.input_autocorrelation.double()
    inner, small = 0.0, a.T @ a if a.shape[1] <= a.shape[0] else a @ a.T
    for rows in torch.split(a, 256):
        matrices = rows.double().view(-1, len(left), len(right))
        inner += float(((left @ matrices @ right) * matrices).sum())
    whole = float(small.double().square().sum())
    gap = whole - 2 * inner + float(left.square().sum() * right.square().sum())
    return (max(gap, 0.0) / whole) ** 0.5 if whole else 0.0
