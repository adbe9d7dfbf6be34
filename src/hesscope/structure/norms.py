"""Frobenius norms of all blocks of a curvature matrix."""

from __future__ import annotations

import os
import warnings
from typing import Literal, get_args

import torch

from ..arguments import need_count
from ..curvature import Problem
from ..curvature.gradient_mode import differentiable
from ..errors import refuse
from ..linalg.estimates.estimate import root_stderr
from ..linalg.resuming.checkpoint import kept_in
from ..linalg.resuming.steps import Steps
from ..linalg.validation import require_room_for_squares
from ..memory import free_bytes
from ..operators import LinearOperator
from ..operators.content import digest
from ..operators.given import MatrixName
from ..partition import Grouping, Partition
from ..results.blocks import BlockNorms
from ..rng import Rng
from .exact.tiles import Stream
from .sampled.sampled_norms import products_of
from .sampled.shared_norms import LEAST_DRAWS, can_share
from .source import MatrixSource, source_of
from .squares import Squares

NormsMethod = Literal["auto", "exact", "stochastic", "shared"]
_Way = Literal["exact", "stochastic", "shared"]
_EXACT_COLUMNS = 4000
_MOST_PROBES = 100  # products; beyond, random gradients that all blocks share take their place


@differentiable()
def block_norms(
    matrix_of: Problem | LinearOperator,
    partition: Partition | Grouping = "neuron",
    *,
    matrix: MatrixName | None = None,
    method: NormsMethod = "auto",
    probes: int = 16,
    rng: Rng | int | None = None,
    resume: str | os.PathLike[str] | None = None,
) -> BlockNorms:
    """‖H_IJ‖_F of every pair of blocks of a problem's Hessian, or of any operator; exact where structure or size allow.

    Linear layers that run once per example cost sᵀ (K ∘ K') s per pair of neurons and no product with a weight. What is
    left is streamed, one product per parameter, up to 4000 parameters ("auto"); beyond, each remaining block costs
    `probes` products, ‖H_IJ‖² = E‖H_IJ z‖² ("stochastic"), its norms carry a standard error, and a warning says so.
    Where that is more than 100 products with a Gauss-Newton matrix, as for transformers, `probes` random gradients, each
    a backward pass over the data, serve all blocks ("shared"): ‖G_IJ‖² = E (g_I · g'_I)(g_J · g'_J), with errors
    relative to √(‖G_II‖ ‖G_JJ‖). Memory: B² numbers for B blocks; `output_block_norms` does without for a vocabulary.
    `resume`: a folder; the same call goes on where a stopped one was.
    """
    if method not in get_args(NormsMethod):
        refuse(f"method must be one of {', '.join(get_args(NormsMethod))}", f"{method!r}", "Leave it at 'auto'.")
    need_count("probes", probes, LEAST_DRAWS if method == "shared" else 2, "16 gives about 10 % on a norm.")
    source, seed = source_of(matrix_of, matrix), Rng.of(rng)
    chosen = source.partition(partition)
    _refuse_too_many(chosen.count)
    if method == "shared" and not can_share(source):
        refuse(
            "norms are shared by blocks of a Gauss-Newton matrix, of a convex loss of outputs, in one process",
            f"another matrix ({source.name})",
            "Use method='stochastic'.",
        )
    stream = Stream(source, structured=method in ("auto", "exact"))
    columns, labels = stream.unstructured, chosen.labels[stream.order]
    sampled = torch.unique(labels[:columns])
    how = _way(source, stream, len(sampled), probes) if method == "auto" else method
    if how == "stochastic" and bool(torch.isin(sampled, labels[columns:]).any()):
        stream = Stream(source, structured=False)  # a block with both kinds of parameters
        sampled = torch.arange(chosen.count, device="cpu")
    if method == "auto" and how != "exact":
        each = "per block" if how == "stochastic" else "that all blocks share"
        warnings.warn(
            f"block norms that touch {columns} parameters outside linear layers are estimated, {probes} probes {each}; "
            f"see `stderr`. method='exact' takes a product per parameter; method={how!r} asks for this.",
            stacklevel=3,
        )
    drawn = {"exact": "no", "stochastic": f"{probes} directions of {seed}", "shared": f"{probes} shared of {seed}"}
    way = {"sampled": drawn[how], "order": digest(stream.order)}
    with kept_in(resume, source.products(), "block norms", blocks=digest(chosen.labels), **way) as store:
        work = Squares(chosen, stream, Steps(store))
        if how == "shared":
            work.add_shared(chosen, probes, seed)
        elif how == "stochastic":
            work.add_sampled(chosen, sampled, probes, seed)
        else:
            work.add_columns()
        if stream.layers:
            work.add_layers()
        work.steps.finish(work.state)
    variance, products = work.variance, stream.products + stream.hidden_outputs
    if not bool(torch.isfinite(work.total).all()):
        refuse(
            "the matrix must be finite",
            "NaN or infinity in its blocks",
            "Check the loss and the data at these parameters; numbers whose squares float32 does not hold need float64.",
        )
    require_room_for_squares(source.products(), float(work.total.max()) ** 0.5)
    norms = work.total.clamp_min(0).sqrt()
    stderr = root_stderr(variance.sqrt(), norms)
    return BlockNorms(
        norms.numpy(),
        stderr.numpy(),
        chosen.names,
        chosen.layers,
        chosen.sizes.double().numpy(),
        source.name,
        not bool(variance.any()),
        products,
        partition if isinstance(partition, str) else "own",
        _in_words(stream, probes if bool(variance.any()) else 0, how == "shared"),
        source.verified(),
    )


def _way(source: MatrixSource, stream: Stream, blocks: int, probes: int) -> _Way:
    """How to go about what structure does not give, by its cost."""
    if stream.unstructured <= _EXACT_COLUMNS or probes * blocks >= stream.unstructured:
        return "exact"
    shared = probes * blocks > _MOST_PROBES and probes >= LEAST_DRAWS and not stream.layers and can_share(source)
    return "shared" if shared else "stochastic"


def _in_words(stream: Stream, probes: int, shared: bool) -> str:
    if probes and shared:
        return f"{probes} random gradients, shared by all blocks"
    if probes:
        return f"{probes} random probes per block where structure does not give it"
    return stream.how


def norm_products(
    problem: Problem | LinearOperator,
    partition: Partition | Grouping = "neuron",
    probes: int = 16,
    method: Literal["auto", "stochastic"] = "auto",
) -> int:
    """How many products `block_norms` takes by itself: none where structure gives everything."""
    source = source_of(problem)
    chosen = source.partition(partition)
    if method == "stochastic":
        return products_of(chosen, torch.arange(chosen.count, device="cpu"), probes)
    stream = Stream(source)
    columns = stream.unstructured
    labels = chosen.labels[stream.order]
    sampled = torch.unique(labels[:columns])
    how = _way(source, stream, len(sampled), probes)
    if how != "stochastic":
        return columns if how == "exact" else probes
    mixed = bool(torch.isin(sampled, labels[columns:]).any())
    return products_of(chosen, torch.arange(chosen.count, device="cpu") if mixed else sampled, probes)


def _refuse_too_many(blocks: int) -> None:
    """Sums, their mirror images, norms and errors hold about six B x B arrays of float64 at once."""
    size = 6 * 8 * blocks**2
    if size > free_bytes(torch.device("cpu")):
        refuse(
            "the norms of all pairs of blocks must fit in memory",
            f"{blocks} blocks, {size / 1e9:.0f} GB",
            "Use output_block_norms for a vocabulary, a coarser partition, or problem.select(...).",
        )
