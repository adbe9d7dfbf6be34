"""The upper triangle of an exact curvature matrix as a stream of tiles, each computed once and never all held."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice

import torch
from torch import Tensor

from ...operators.finite import need_finite
from ..source import MatrixSource
from .activations import Activations, NeuronRows
from .columns import column_tiles
from .gram import nonzero_entries
from .output_curvature import DiagonalCurvature, OutputCurvature, SoftmaxCurvature
from .stack import LinearLayer, Structure

_PIECE = 32_000_000


@dataclass
class Tile:
    """Rows [start, start + r) by columns [start, start + w) of the matrix in streaming order; beyond are zeros."""

    start: int
    values: Tensor


class Stream:
    """Tiles that cover the upper triangle; `order` holds the flat position of each streamed row and column."""

    def __init__(self, source: MatrixSource, structured: bool = True) -> None:
        self.source, self.products = source, 0
        known = structured and source.operator is None and source.problem is not None
        if known:
            source.need_right()  # structure proves itself by double backward, which must be right itself
        self.structure = Structure.of(source.problem) if known and source.problem is not None else None
        self.order = torch.arange(source.size, device="cpu") if self.structure is None else self.structure.positions()

    @property
    def layers(self) -> tuple[LinearLayer, ...]:
        """The structured layers."""
        return () if self.structure is None else self.structure.layers

    @property
    def activations(self) -> Activations:
        """What the structured layers were given, over all data."""
        assert self.structure is not None
        return Activations(self.structure, "hessian" if self.source.name == "hessian" else "gauss_newton")

    @property
    def unstructured(self) -> int:
        """How many parameters lie outside structured layers; they come first in the streaming order."""
        return self.source.size - sum(layer.outputs * layer.width for layer in self.layers)

    @property
    def hidden_outputs(self) -> int:
        """How many outputs of structured layers cost a product each."""
        known = self.structure is not None and self.structure.has_output
        return sum(layer.outputs for layer in (self.layers[:-1] if known else self.layers))

    @property
    def how(self) -> str:
        """In words, for results."""
        parts = ["layer structure"] if self.layers else []
        return " + ".join([*parts, *(["one product per parameter"] if self.unstructured else [])])

    @property
    def natural(self) -> bool:
        """Whether the streaming order is that of the parameters."""
        return torch.equal(self.order, torch.arange(len(self.order), device="cpu"))

    def __iter__(self) -> Iterator[Tile]:
        yield from self.other_tiles()
        if self.layers:
            for tile in self.layer_tiles(self.activations):
                need_finite(tile.values, "the matrix")
                yield tile

    def other_tiles(self, skip: int = 0) -> Iterator[Tile]:
        """The rows of everything that is not a structured layer, by products, but for the first `skip` tiles."""
        if self.unstructured:
            for start, values in column_tiles(self.source, self.structure, self.order, skip):
                self.products += len(values)
                yield Tile(start, values)

    def layer_tiles(self, seen: Activations, skip: int = 0) -> Iterator[Tile]:
        """The rows of the structured layers, neuron by neuron, from weighted Gram matrices, but for the first `skip`."""
        start = self.unstructured
        scale = seen.structure.problem.scale
        for p in seen.hidden:
            layer, left_out = self.layers[p], min(skip, self.layers[p].outputs)
            skip -= left_out
            for rows in seen.rows(p, left_out):
                for k in range(max(0, left_out - rows.first), rows.count):
                    yield Tile(start + (rows.first + k) * layer.width, _neuron_tile(seen, rows, k).mul_(scale))
            start += layer.outputs * layer.width
        if seen.output is not None:
            for offset, values in islice(_output_tiles(seen), skip, None):
                yield Tile(start + offset, values().mul_(scale))


def _neuron_tile(seen: Activations, rows: NeuronRows, k: int) -> Tensor:
    """Xᵀ [diag(M_kj) X_q + diag(δ_j) R_k] for one neuron k and all neurons j from it on."""
    live = _live_examples([value[:, k] for value in (*rows.curvature.values(), *rows.moved.values())])
    left = seen.inputs[rows.layer][live].T
    pieces = []
    for q in sorted(rows.curvature):
        weights = rows.curvature[q][:, k][live]
        if q == rows.layer:
            pieces.append(weighted_gram(left, weights[:, rows.first + k :], seen.inputs[q][live]))
            continue
        moved = rows.moved[q][:, k][live] if q in rows.moved else None
        pieces.append(cross_gram(left, weights, seen.inputs[q][live], seen.output_gradients[q][live], moved))
    return torch.cat(pieces, 1)


def _live_examples(values: list[Tensor]) -> Tensor | slice:
    """The examples in which a neuron takes part: about half of them behind a ReLU, which halves the work."""
    live = torch.stack([value.abs().amax(1) for value in values]).amax(0) > 0
    share = float(live.double().mean())
    # A dead neuron keeps its examples: they give the zeros of its tile.
    return slice(None) if share > 0.8 or share == 0 else torch.nonzero(live).squeeze(1)


def weighted_gram(left: Tensor, weights: Tensor, x: Tensor) -> Tensor:
    """left · [weights_nj x_nb]: shape `(rows of left, j b)`, in pieces of bounded memory."""
    outputs, width = weights.shape[1], x.shape[1]
    out = left.new_empty(left.shape[0], outputs * width)
    shaped = out.view(left.shape[0], outputs, width)
    # Behind rectifiers most products are with zero: one column at a time then needs few of the examples.
    if width <= 64 <= outputs and _sparse(x):
        for b in range(width):
            live = torch.nonzero(x[:, b]).squeeze(1)
            shaped[:, :, b] = left[:, live] @ (weights[live] * x[live, b, None])
        return out
    if outputs <= 64 <= width and _sparse(weights):
        for j in range(outputs):
            live = torch.nonzero(weights[:, j]).squeeze(1)
            shaped[:, j] = left[:, live] @ (weights[live, j, None] * x[live])
        return out
    per = max(1, _PIECE // (len(x) * width))
    for start in range(0, outputs, per):
        right = weights[:, start : start + per, None] * x[:, None, :]
        out[:, start * width : (start + per) * width] = left @ right.view(len(x), -1)
    return out


def _sparse(values: Tensor) -> bool:
    return float((values[:4096] != 0).double().mean()) < 0.7


def cross_gram(left: Tensor, weights: Tensor, x: Tensor, gradients: Tensor, moved: Tensor | None) -> Tensor:
    """left · [weights_nj x_nb + gradients_nj moved_nb], using factors where weights are a product or moves are few."""
    outputs, width = weights.shape[1], x.shape[1]
    factors = _rank_one(weights)
    if factors is None:
        out = weighted_gram(left, weights, x)
    else:
        out = (factors[1][None, :, None] * ((left * factors[0]) @ x)[:, None, :]).reshape(left.shape[0], -1)
    if moved is None:
        return out
    shaped = out.view(left.shape[0], outputs, width)
    live = torch.nonzero((moved != 0).any(0)).squeeze(1)
    if len(live) <= max(2, width // 4):
        for b in live.tolist():
            shaped[:, :, b] += (left * moved[:, b]) @ gradients
        return out
    return out.add_(weighted_gram(left, gradients, moved))


def _rank_one(weights: Tensor) -> tuple[Tensor, Tensor] | None:
    """(a, b) with weights = a bᵀ to rounding, as for squared error behind a piecewise-linear network."""
    place = int(weights.abs().argmax())
    n, j = divmod(place, weights.shape[1])
    peak = weights[n, j]
    if not bool(peak):
        return weights[:, j], weights[n]
    a, b = weights[:, j], weights[n] / peak
    sample = slice(None, None, max(1, len(weights) // 64))
    tolerance = 8 * torch.finfo(weights.dtype).eps * float(peak.abs())
    if float((weights[sample] - a[sample, None] * b).abs().max()) > tolerance:
        return None
    return (a, b) if float((weights - a[:, None] * b).abs().max()) <= tolerance else None


def _output_tiles(seen: Activations) -> Iterator[tuple[int, Callable[[], Tensor]]]:
    """Σ_n A_n ⊗ x_n x_nᵀ of the output layer, as (offset in the layer, what computes the rows from the diagonal on)."""
    x, curvature = seen.inputs[-1], seen.output
    assert curvature is not None
    width = x.shape[1]
    left = x.T.contiguous()
    if isinstance(curvature, DiagonalCurvature):
        shared = weighted_gram(left, curvature.second[:, :1], x) if curvature.same else None
        for j in range(curvature.outputs):
            own = partial(weighted_gram, left, curvature.second[:, j : j + 1], x)
            yield j * width, own if shared is None else shared.clone
        return
    if not isinstance(curvature, SoftmaxCurvature):
        for j in range(curvature.outputs):
            yield j * width, partial(_row_tile, curvature, x, left, j)
        return
    step = max(1, min(curvature.outputs, -(-curvature.outputs // 4), _PIECE // (curvature.outputs * width * width)))
    for first in range(0, curvature.outputs, step):
        last = min(curvature.outputs, first + step)
        yield first * width, partial(_softmax_tile, curvature, x, left, first, last)


def _row_tile(curvature: OutputCurvature, x: Tensor, left: Tensor, j: int) -> Tensor:
    return weighted_gram(left, curvature.row(j, j), x)


def _softmax_tile(curvature: SoftmaxCurvature, x: Tensor, left: Tensor, first: int, last: int) -> Tensor:
    """-Σ_n p_ni p_nj x_n x_nᵀ for classes i in [first, last) and j in [first, C), the diagonal blocks computed apart."""
    width, count, rest = x.shape[1], last - first, curvature.outputs - first
    values = x.new_empty(count, width, rest, width)
    for a in range(width):
        for b in range(a, width):
            live, entry = nonzero_entries(x[:, a] * x[:, b])
            p = curvature.p[live, first:]
            block = (p[:, :count] * -entry[:, None]).T @ p
            values[:, a, :, b] = block
            values[:, b, :, a] = block
    flat = values.view(count * width, rest * width)
    blocks = weighted_gram(left, curvature.diagonal(first, last), x).view(width, count, width)
    for j in range(count):
        place = slice(j * width, (j + 1) * width)
        flat[place, place] = blocks[:, j]
    return flat
