"""Squared norms of blocks, collected tile by tile or layer by layer, with what a stopped run has already."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..linalg.resuming.checkpoint import Arrays
from ..linalg.resuming.steps import Steps
from ..partition import Partition
from ..rng import Rng
from .exact.activations import Activations
from .exact.gram import PairNorms, softmax_squares
from .exact.output_curvature import DiagonalCurvature, SoftmaxCurvature
from .exact.tiles import Stream, Tile, cross_gram
from .sampled.sampled_norms import SampledSquares
from .sampled.shared_norms import SharedNorms


class Squares:
    """Collects squared norms of blocks from tiles, or layer by layer without tiles."""

    def __init__(self, partition: Partition, stream: Stream, steps: Steps | None = None) -> None:
        self.stream, self.steps = stream, steps or Steps(None)
        self.labels = partition.labels[stream.order]
        empty = np.zeros((partition.count, partition.count))
        self.total = torch.from_numpy(self.steps.found.get("total", empty.copy()))
        self.variance = torch.from_numpy(self.steps.found.get("variance", empty))
        stream.products = int(self.steps.found.get("products", 0))

    def state(self) -> Arrays:
        """What a run that goes on needs."""
        return {"total": self.total.numpy(), "variance": self.variance.numpy(), "products": self.stream.products}

    def add_columns(self) -> None:
        """Everything outside structured layers, by products."""
        for tile in self.stream.other_tiles(self.steps.done("columns")):
            self.add(tile)
            self.steps.made("columns", self.state)

    def add_sampled(self, partition: Partition, columns: Tensor, probes: int, rng: Rng) -> None:
        """The norms of chosen columns of blocks from random products, in place of `add_columns`."""
        if not self.steps.done("sampled"):
            sampled = SampledSquares(self.stream.source.products(), partition, probes, rng, self.steps)
            self.total, self.variance, self.stream.products = sampled.of(columns)
            self.steps.made("sampled", self.state)

    def add_shared(self, partition: Partition, draws: int, rng: Rng) -> None:
        """All norms from random gradients that the blocks share."""
        if not self.steps.done("shared"):
            self.total, self.variance = SharedNorms(self.stream.source, partition, draws, rng).squares()
            self.stream.products = draws
            self.steps.made("shared", self.state)

    def add(self, tile: Tile) -> None:
        """A tile of the upper triangle counts for both halves, its part on the diagonal once."""
        a, (rows, width) = tile.start, tile.values.shape
        square = tile.values.double().square_().cpu()
        by_row = torch.zeros(len(self.total), width, dtype=torch.float64, device="cpu")
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
                for tile in self.stream.layer_tiles(seen, self.steps.done("layers")):
                    self.add(tile)
                    self.steps.made("layers", self.state)
                return
            start += layer.outputs * layer.width
        scale = seen.structure.problem.scale**2
        done = self.steps.done("layers")  # neurons, then the output layer
        for p in seen.hidden:
            self._add_hidden(seen, p, blocks, scale, min(done, self.stream.layers[p].outputs))
            done -= min(done, self.stream.layers[p].outputs)
        if seen.output is not None and not done:
            self._put(blocks[-1], blocks[-1], output_squares(seen).mul_(scale).triu(), 0)
            self.steps.made("layers", self.state)

    def _add_hidden(self, seen: Activations, p: int, blocks: list[Tensor], scale: float, skip: int) -> None:
        within = PairNorms(seen.inputs[p])
        outputs = seen.structure.layers[p].outputs
        across: dict[int, PairNorms] = {}
        for rows in seen.rows(p, skip):
            here = blocks[p][rows.first : rows.first + rows.count]
            for q, weights in rows.curvature.items():
                if q == p:
                    upper = torch.ones(rows.count, outputs, dtype=torch.bool, device="cpu").triu(rows.first)
                    squares = torch.zeros(rows.count, outputs, dtype=torch.float64, device="cpu")
                    squares[upper] = within.squares(weights[:, upper]).cpu()
                elif q not in rows.moved:
                    across.setdefault(q, PairNorms(seen.inputs[p], seen.inputs[q]))
                    squares = across[q].squares(weights.reshape(len(weights), -1)).view(rows.count, -1).cpu()
                else:
                    squares = torch.stack(
                        [_cross_squares(seen, p, q, rows.moved[q], weights, k) for k in range(rows.count)]
                    )
                self._put(here, blocks[q], squares.mul_(scale), rows.first if q == p else None)
            self.steps.made("layers", self.state, rows.count)

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
    block = cross_gram(seen.inputs[p].T, weights[:, k], seen.inputs[q], seen.output_gradients[q], moved[:, k])
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
    out = torch.zeros(outputs, outputs, dtype=torch.float64, device="cpu")
    for i in range(outputs):
        out[i, i:] = pairs.squares(curvature.row(i, i)).cpu()
    return out
