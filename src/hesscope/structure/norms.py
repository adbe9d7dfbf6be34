"""Frobenius norms of all blocks of a curvature matrix."""

from __future__ import annotations

import warnings
from typing import Literal

import torch
from torch import Tensor

from ..arguments import need_count
from ..curvature import Problem
from ..curvature.gradient_mode import differentiable
from ..errors import refuse
from ..linalg.estimate import root_stderr
from ..memory import free_bytes
from ..operators import LinearOperator
from ..partition import Kind, Partition
from ..results.blocks import BlockNorms
from ..rng import Rng
from .activations import Activations
from .gram import PairNorms, softmax_squares
from .output_curvature import DiagonalCurvature, SoftmaxCurvature
from .sampled_norms import sampled_squares
from .source import Matrix, source_of
from .tiles import Stream, Tile, cross_gram

Method = Literal["auto", "exact", "stochastic"]
_EXACT_COLUMNS = 4000


@differentiable()
def block_norms(
    matrix_of: Problem | LinearOperator,
    partition: Partition | Kind = "neuron",
    *,
    matrix: Matrix | None = None,
    method: Method = "auto",
    probes: int = 16,
    rng: Rng | int | None = None,
) -> BlockNorms:
    """‖H_IJ‖_F of every pair of blocks of a problem's Hessian, or of any operator; exact where structure or size allow.

    Linear layers that run once per example cost sᵀ (K ∘ K') s per pair of neurons and no product with a weight. What is
    left is streamed, one product per parameter, up to 4000 parameters ("auto"); beyond, each remaining block costs
    `probes` products, ‖H_IJ‖² = E‖H_IJ z‖², its norms carry a standard error, and a warning says so. Memory: B²
    numbers for B blocks; `output_block_norms` does without for a vocabulary.
    """
    if method not in ("auto", "exact", "stochastic"):
        refuse("method must be 'auto', 'exact' or 'stochastic'", f"{method!r}", "Leave it at 'auto'.")
    need_count("probes", probes, 2, "16 gives about 10 % on a norm.")
    source, seed = source_of(matrix_of, matrix), Rng.of(rng)
    chosen = source.partition(partition)
    _refuse_too_many(chosen.count)
    stream = Stream(source, structured=method != "stochastic")
    work = _Squares(chosen, stream)
    columns = stream.unstructured
    sampled = torch.unique(work.labels[:columns])
    cheaper = probes * len(sampled) < columns
    variance = torch.zeros_like(work.total)
    if method == "stochastic" or (method == "auto" and columns > _EXACT_COLUMNS and cheaper):
        if bool(torch.isin(sampled, work.labels[columns:]).any()):  # a block with both kinds of parameters
            stream = Stream(source, structured=False)
            work = _Squares(chosen, stream)
            sampled = torch.arange(chosen.count)
        if method == "auto":
            warnings.warn(
                f"block norms that touch {columns} parameters outside linear layers are estimated, {probes} probes per "
                "block; see `stderr`. method='exact' takes a product per parameter; method='stochastic' asks for this.",
                stacklevel=2,
            )
        work.total, variance, stream.products = sampled_squares(source.products(), chosen, sampled, probes, seed)
    else:
        for tile in stream.other_tiles():
            work.add(tile)
    if stream.layers:
        work.add_layers()
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
        stream.products,
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


def norm_products(problem: Problem, partition: Partition | Kind = "neuron", probes: int = 16) -> int:
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


class _Squares:
    """Collects squared norms of blocks from tiles, or layer by layer without tiles."""

    def __init__(self, partition: Partition, stream: Stream) -> None:
        self.stream = stream
        self.labels = partition.labels[stream.order]
        self.total = torch.zeros(partition.count, partition.count, dtype=torch.float64)

    def add(self, tile: Tile) -> None:
        """A tile of the upper triangle counts for both halves, its part on the diagonal once."""
        a, (rows, width) = tile.start, tile.values.shape
        square = tile.values.double().square_().cpu()
        by_row = torch.zeros(len(self.total), width, dtype=torch.float64)
        by_row.index_add_(0, self.labels[a : a + rows], square)
        sums = torch.zeros_like(self.total)
        sums.index_add_(1, self.labels[a + rows : a + width], by_row[:, rows:])
        self.total += sums + sums.T
        self.total.index_add_(1, self.labels[a : a + rows], by_row[:, :rows])

    def add_layers(self) -> None:
        """All pairs of structured layers; by Gram matrices where each neuron is a block of its own."""
        seen = self.stream.activations
        start = self.stream.unstructured
        blocks = []
        for layer in self.stream.layers:
            labels = self.labels[start : start + layer.outputs * layer.width].view(layer.outputs, layer.width)
            blocks.append(labels[:, 0])
            if not bool((labels == labels[:, :1]).all()):
                for tile in self.stream.layer_tiles(seen):
                    self.add(tile)
                return
            start += layer.outputs * layer.width
        scale = seen.structure.problem.scale**2
        for p in seen.hidden:
            self._add_hidden(seen, p, blocks, scale)
        if seen.output is not None:
            self._put(blocks[-1], blocks[-1], output_squares(seen).mul_(scale).triu(), 0)
        self.stream.products += seen.products

    def _add_hidden(self, seen: Activations, p: int, blocks: list[Tensor], scale: float) -> None:
        within = PairNorms(seen.inputs[p])
        outputs = seen.structure.layers[p].outputs
        across: dict[int, PairNorms] = {}
        for rows in seen.rows(p):
            here = blocks[p][rows.first : rows.first + rows.count]
            for q, weights in rows.curvature.items():
                if q == p:
                    upper = torch.ones(rows.count, outputs).triu(rows.first).bool()
                    squares = torch.zeros(rows.count, outputs, dtype=torch.float64)
                    squares[upper] = within.squares(weights[:, upper]).cpu()
                elif q not in rows.moved:
                    across.setdefault(q, PairNorms(seen.inputs[p], seen.inputs[q]))
                    squares = across[q].squares(weights.reshape(len(weights), -1)).view(rows.count, -1).cpu()
                else:
                    squares = torch.stack(
                        [_cross_squares(seen, p, q, rows.moved[q], weights, k) for k in range(rows.count)]
                    )
                self._put(here, blocks[q], squares.mul_(scale), rows.first if q == p else None)

    def _put(self, rows: Tensor, columns: Tensor, squares: Tensor, diagonal: int | None = None) -> None:
        """Add squares of neuron pairs and their mirror images; with a `diagonal`, pairs (k, k) have none."""
        if diagonal is not None:
            own = squares.diagonal(diagonal)
            self.total.index_put_((rows, rows), own.clone(), accumulate=True)
            own.zero_()
        part = torch.zeros_like(self.total)
        part.index_put_((rows[:, None], columns[None]), squares, accumulate=True)
        self.total += part + part.T


def _cross_squares(seen: Activations, p: int, q: int, moved: Tensor, weights: Tensor, k: int) -> Tensor:
    layer = seen.structure.layers[q]
    block = cross_gram(seen.inputs[p].T, weights[:, k], seen.inputs[q], seen.slopes[q], moved[:, k])
    return block.view(-1, layer.outputs, layer.width).square_().sum((0, 2), dtype=torch.float64).cpu()


def output_squares(seen: Activations) -> Tensor:
    """‖Σ_n A_n,ij x_n x_nᵀ‖_F² for all pairs of outputs, upper triangle or all of it: `(C, C)`, float64."""
    x, curvature = seen.inputs[-1], seen.output
    assert curvature is not None
    outputs = curvature.outputs
    pairs = PairNorms(x)
    if isinstance(curvature, DiagonalCurvature):
        return torch.diag(pairs.squares(curvature.second)).cpu()
    if isinstance(curvature, SoftmaxCurvature) and pairs.by_entries:
        out = softmax_squares(curvature.p, x).cpu()
        out.diagonal().copy_(pairs.squares(curvature.diagonal()))
        return out
    out = torch.zeros(outputs, outputs, dtype=torch.float64)
    for i in range(outputs):
        out[i, i:] = pairs.squares(curvature.row(i, i)).cpu()
    return out
