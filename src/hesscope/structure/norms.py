"""Frobenius norms of all blocks of a curvature matrix."""

from __future__ import annotations

import os
import warnings
from typing import Literal

import torch

from ..arguments import need_count
from ..curvature import Problem
from ..curvature.gradient_mode import differentiable
from ..errors import refuse
from ..linalg.checkpoint import kept_in
from ..linalg.estimate import root_stderr
from ..linalg.steps import Steps
from ..memory import free_bytes
from ..operators import LinearOperator
from ..operators.content import digest
from ..partition import Grouping, Partition
from ..results.blocks import BlockNorms
from ..rng import Rng
from .source import MatrixName, source_of
from .squares import Squares
from .tiles import Stream

NormsMethod = Literal["auto", "exact", "stochastic"]
_EXACT_COLUMNS = 4000


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
    `probes` products, ‖H_IJ‖² = E‖H_IJ z‖², its norms carry a standard error, and a warning says so. Memory: B²
    numbers for B blocks; `output_block_norms` does without for a vocabulary. `resume`: a folder; the same call goes on
    where a stopped one was.
    """
    if method not in ("auto", "exact", "stochastic"):
        refuse("method must be 'auto', 'exact' or 'stochastic'", f"{method!r}", "Leave it at 'auto'.")
    need_count("probes", probes, 2, "16 gives about 10 % on a norm.")
    source, seed = source_of(matrix_of, matrix), Rng.of(rng)
    chosen = source.partition(partition)
    _refuse_too_many(chosen.count)
    stream = Stream(source, structured=method != "stochastic")
    columns, labels = stream.unstructured, chosen.labels[stream.order]
    sampled = torch.unique(labels[:columns])
    cheaper = probes * len(sampled) < columns
    by_probes = method == "stochastic" or (method == "auto" and columns > _EXACT_COLUMNS and cheaper)
    if by_probes:
        if bool(torch.isin(sampled, labels[columns:]).any()):  # a block with both kinds of parameters
            stream = Stream(source, structured=False)
            sampled = torch.arange(chosen.count)
        if method == "auto":
            warnings.warn(
                f"block norms that touch {columns} parameters outside linear layers are estimated, {probes} probes per "
                "block; see `stderr`. method='exact' takes a product per parameter; method='stochastic' asks for this.",
                stacklevel=2,
            )
    way = {"sampled": f"{probes} of {seed}" if by_probes else "no", "order": digest(stream.order)}
    with kept_in(resume, source.products(), "block norms", blocks=digest(chosen.labels), **way) as store:
        work = Squares(chosen, stream, Steps(store))
        if by_probes:
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
            "Check the loss and the data at these parameters.",
        )
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
        _how(stream, probes if bool(variance.any()) else 0),
        source.verified(),
    )


def _how(stream: Stream, probes: int) -> str:
    """In words, for results."""
    if probes:
        return f"{probes} random probes per block where structure does not give it"
    parts = ["layer structure"] if stream.layers else []
    return " + ".join([*parts, *(["one product per parameter"] if stream.unstructured else [])])


def norm_products(problem: Problem, partition: Partition | Grouping = "neuron", probes: int = 16) -> int:
    """How many products `block_norms` takes by itself: none where structure gives everything."""
    source = source_of(problem)
    chosen, stream = source.partition(partition), Stream(source)
    columns = stream.unstructured
    labels = chosen.labels[stream.order]
    sampled = torch.unique(labels[:columns])
    if columns <= _EXACT_COLUMNS or probes * len(sampled) >= columns:
        return columns
    mixed = bool(torch.isin(sampled, labels[columns:]).any())
    return probes * (chosen.count if mixed else len(sampled))


def _refuse_too_many(blocks: int) -> None:
    """Sums, their mirror images, norms and errors hold about six B x B arrays of float64 at once."""
    size = 6 * 8 * blocks**2
    if size > free_bytes(torch.device("cpu")):
        refuse(
            "the norms of all pairs of blocks must fit in memory",
            f"{blocks} blocks, {size / 1e9:.0f} GB",
            "Use output_block_norms for a vocabulary, a coarser partition, or problem.select(...).",
        )
