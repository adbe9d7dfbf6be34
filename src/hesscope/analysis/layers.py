"""The stages that look at layers: norms of blocks, Kronecker factors and what they predict."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np

from ..curvature import Problem
from ..errors import FileError, HesscopeError
from ..kron import Decoupling, approximate_full_eigenpairs, decouplable_layers, decouple, decouple_layers
from ..kron.curvature_choice import layer_curvature
from ..measure import Array, AtomicMeasure
from ..partition import Grouping, Partition
from ..results.blocks import BlockNorms
from ..results.kronecker import KroneckerComparison, KroneckerPrediction
from ..results.plan import FINE, KRONECKER, LAYERS, NEURONS
from ..structure import block_norms, norm_products
from ..structure.norms import NormsMethod
from .context import Context
from .planning import NORM_PROBES, finer_grouping

MOST_VECTOR_ENTRIES = 4_000_000


def block_maps(run: Context) -> tuple[BlockNorms, ...]:
    """Norms by layer and, where there are few enough, by neuron; exact ones by neuron give those by layer."""
    if not run.config.block_maps:
        return ()
    fine, finer = _fine_norms(run), run.optional(FINE, lambda: _shared_norms(run), None)
    layers = Partition.by("layer", run.problem).count
    if layers < 2:
        run.notes.append(f"No block map by layer: {layers} blocks.")
        return tuple(norms for norms in (fine, finer) if norms is not None)
    if fine is not None and fine.exact:
        return (run.planned(LAYERS, fine.by_layer), fine)
    coarse = run.optional(LAYERS, lambda: _norms(run, "layer", *sampling(run, LAYERS)), None)
    return tuple(norms for norms in (coarse, fine, finer) if norms is not None)


def _shared_norms(run: Context) -> BlockNorms | None:
    """Norms of G by neuron or head, from random gradients that all blocks share."""
    kind = finer_grouping(run.problem, run.config)
    if kind is None:
        return None
    run.announce(f"blocks of G by {kind}")
    kept = run.stages.state("blocks-shared", kind)
    compute = partial(
        block_norms, run.problem, kind, matrix="gauss_newton", method="shared", probes=NORM_PROBES, resume=kept
    )
    return run.stages.run(BlockNorms, "blocks-shared", compute, kind)


def _fine_norms(run: Context) -> BlockNorms | None:
    count = Partition.by("neuron", run.problem).count
    if count < 2 or count > run.config.most_blocks:
        run.notes.append(f"No block map by neuron: {count:,} blocks.")
        return None
    if run.plan.stage(NEURONS) is None:
        products = norm_products(run.problem, "neuron")
        run.notes.append(f"No block map by neuron: it takes {products:,} products (--most-products).")
    return run.optional(NEURONS, lambda: _norms(run, "neuron", NORM_PROBES, "auto"), None)


def sampling(run: Context, stage: str) -> tuple[int, NormsMethod]:
    """Random vectors a block where the plan says how many, else what norms do by themselves."""
    sampled = run.amount(stage, 0)
    return (sampled, "stochastic") if sampled else (NORM_PROBES, "auto")


def _norms(run: Context, kind: Grouping, probes: int, method: NormsMethod) -> BlockNorms:
    run.announce(f"blocks by {kind}")
    kept = run.stages.state(f"blocks-{kind}", (probes, method))
    compute = partial(block_norms, run.problem, kind, probes=probes, method=method, resume=kept)
    return run.stages.run(BlockNorms, f"blocks-{kind}", compute, (probes, method))


def kronecker(run: Context) -> tuple[tuple[KroneckerComparison, ...], KroneckerPrediction | None]:
    """Every layer beside its Kronecker factors, and what all factors together predict."""
    found: list[KroneckerComparison] = []
    prediction = run.optional(KRONECKER, lambda: _kronecker(run, found), None)
    return tuple(found), prediction


def _kronecker(run: Context, found: list[KroneckerComparison]) -> KroneckerPrediction | None:
    """Fills `found` layer by layer, so that what is done counts where the rest is cut off."""
    config, problem = run.config, run.problem
    names = decouplable_layers(problem) if config.decouple else []
    if not names:
        return None
    run.announce("Kronecker factors")
    affordable = _without_dear(run, names)
    parts = list(decouplings(problem, affordable, run.stages.state("factors", affordable)).values())
    if len(parts) < len(affordable):
        missing = len(affordable) - len(parts)
        run.notes.append(f"{missing} layers have no Kronecker form (tied weights, or used twice).")
    if not parts:
        return None
    inputs = (config.k, [part.layer for part in parts])
    prediction = run.stages.run(KroneckerPrediction, "prediction", partial(predict, problem, parts, config.k), inputs)
    compared = run.amount(KRONECKER, config.decouple)
    if len(parts) > compared:
        run.notes.append(f"Exact comparison for the first {compared} of {len(parts)} layers.")
    for number, part in enumerate(parts[:compared]):
        run.announce(f"comparing {part.layer}")
        name, own = f"kronecker-{number}", (config.k, part.layer)
        one = run.stages.run(KroneckerComparison, name, partial(compare_layer, part, config.k), own)
        small = one.vectors.shape[0] * one.vectors.shape[1] <= MOST_VECTOR_ENTRIES
        found.append(one if small else one.without_vectors())
    return prediction


def compare_layer(part: Decoupling, k: int) -> KroneckerComparison:
    """The exact layer Hessian against E[M] ⊗ E[xxᵀ], up to its size."""
    return part.compare(min(k, part.exact.shape[0]))


def _without_dear(run: Context, names: list[str]) -> list[str]:
    passes = {name: second_derivative_passes(run.problem, name) for name in names}
    dear = [name for name in names if passes[name] > run.config.most_passes]
    if dear:
        named = ", ".join(f"{name} ({passes[name]:,} backward passes per batch)" for name in dear)
        run.notes.append(f"No Kronecker factors of {named}; see --most-passes.")
    return [name for name in names if name not in dear]


def second_derivative_passes(problem: Problem, layer: str) -> int:
    """How many backward passes per batch E[M] of this layer takes, where factors do not give it."""
    try:
        how = layer_curvature(problem, layer)
    except HesscopeError:
        return 0  # such a layer is left out later
    return 0 if how.gauss_newton else how.positions * how.layer.outputs


def decouplings(problem: Problem, layers: list[str], kept: Path | None = None) -> dict[str, Decoupling]:
    """E[M] and E[xxᵀ] of these layers, in one pass; layers that cannot be taken apart are left out."""
    try:
        return decouple_layers(problem, layers, resume=kept) if layers else {}
    except FileError:
        raise
    except HesscopeError:
        pass
    found = {}
    for layer in layers:
        with suppress(HesscopeError):
            found[layer] = decouple(problem, layer)
    return found


def predict(problem: Problem, parts: list[Decoupling], k: int) -> KroneckerPrediction:
    """The spectrum of ⊕ E[M] ⊗ E[xxᵀ] over the layers, and the top eigenvalues with inputs replaced by their means."""
    measures, sizes = [], []
    for d in parts:
        outer, inner = (np.linalg.eigvalsh(m.cpu().numpy()) for m in (d.output_hessian, d.input_autocorrelation))
        measures.append(_thin(np.multiply.outer(_thin(outer), _thin(inner)).ravel()))
        sizes.append(outer.size * inner.size)
    whole = AtomicMeasure.mixture([AtomicMeasure.of(m) for m in measures], np.array(sizes) / sum(sizes))
    top = np.zeros(0)
    with suppress(HesscopeError):
        outputs = sum(d.output_hessian.shape[0] for d in parts)
        top = approximate_full_eigenpairs(problem, min(k, outputs)).values
    how = f"Kronecker factors of {len(parts)} layers" + (
        "; the largest with inputs replaced by their means" * (top.size > 0)
    )
    return KroneckerPrediction(whole.nodes, whole.weights, top, parts[0].check, how)


def _thin(values: Array, most: int = 2000) -> Array:
    """As many order statistics as a picture can show, with both ends."""
    ordered = np.sort(values)
    if ordered.size <= most:
        return ordered
    chosen: Array = ordered[np.linspace(0, ordered.size - 1, most).round().astype(int)]
    return chosen
