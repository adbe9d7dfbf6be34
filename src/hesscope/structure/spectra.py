"""The spectrum of every diagonal block."""

from __future__ import annotations

import torch
from torch import Tensor

from ..curvature import Problem
from ..curvature.gradient_mode import differentiable
from ..errors import refuse
from ..linalg import spectral_density
from ..measure import Array, AtomicMeasure
from ..operators import LinearOperator
from ..operators.content import digest
from ..operators.derived import Derived
from ..operators.finite import need_finite
from ..operators.given import MatrixName
from ..partition import Grouping, Partition
from ..results.blocks import BlockSpectra
from ..rng import Rng
from .exact.activations import Activations
from .exact.output_curvature import DiagonalCurvature, SoftmaxCurvature
from .exact.tiles import Stream, weighted_gram
from .source import source_of

_DENSE = 2500


@differentiable()
def block_spectra(
    matrix_of: Problem | LinearOperator,
    partition: Partition | Grouping = "neuron",
    *,
    matrix: MatrixName | None = None,
    rng: Rng | int | None = None,
) -> BlockSpectra:
    """spec(H_II) of each diagonal block: exact up to 2500 parameters per block, by Lanczos quadrature beyond.

    Neurons of linear layers that run once per example come from weighted Gram matrices, other blocks from one product
    per parameter; bigger blocks cost at most 10 x 80 products each.
    """
    source = source_of(matrix_of, matrix)
    chosen = source.partition(partition)
    stream = Stream(source)
    labels = chosen.labels[stream.order]
    blocks: dict[int, Tensor] = {}
    if stream.layers:
        blocks = _neuron_blocks(stream, labels)
    operator: LinearOperator | None = None
    nodes, weights, exact = [], [], []
    for number in range(chosen.count):
        measure: AtomicMeasure
        small = number in blocks or int(chosen.sizes[number]) <= _DENSE
        if not small or number not in blocks:
            operator = operator or source.products()
            part = Restricted(operator, chosen.indices(number))
            measure = (
                AtomicMeasure.of(_eigenvalues(part.dense(64)))
                if small
                else spectral_density(part, rng=Rng.of(rng).child("block spectra", number))
            )
        else:
            measure = AtomicMeasure.of(_eigenvalues(blocks[number]))
        nodes.append(measure.nodes)
        weights.append(measure.weights)
        exact.append(small)
    ways = {
        "layer structure": len(blocks),
        "one product per parameter": sum(exact) - len(blocks),
        "Lanczos quadrature": chosen.count - sum(exact),
    }
    how = " + ".join(f"{way} ({count} blocks)" for way, count in ways.items() if count)
    found = tuple(nodes), tuple(weights), tuple(exact)
    return BlockSpectra(chosen.names, chosen.layers, *found, source.verified(), how)


class Restricted(Derived):
    """A[I, I] for any set of positions I."""

    def __init__(self, inner: LinearOperator, positions: Tensor) -> None:
        if not inner.symmetric:
            refuse("a diagonal block needs a square, symmetric operator", f"{inner!r}", "")
        self.inner, self.positions = inner, positions

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.positions), len(self.positions)

    @property
    def fingerprint(self) -> str:
        return f"Restricted({self.inner.fingerprint}, {digest(self.positions)})"

    def _apply(self, block: Tensor) -> Tensor:
        full = block.new_zeros(self.inner.shape[1], block.shape[1])
        full[self.positions] = block
        image = self.inner.apply(full[self.inner.layout.local])
        return self.inner.row_layout.gather(image)[self.positions]


def _eigenvalues(matrix: Tensor) -> Array:
    exact = need_finite(matrix.double(), "a block of the matrix")
    values: Array = torch.linalg.eigvalsh((exact + exact.T) / 2).cpu().numpy()
    return values


def _neuron_blocks(stream: Stream, labels: Tensor) -> dict[int, Tensor]:
    """The dense diagonal block of every structured neuron that is a block of its own."""
    seen = stream.activations
    scale = seen.structure.problem.scale
    start = stream.unstructured
    alone = torch.bincount(labels)
    out: dict[int, Tensor] = {}
    for q, layer in enumerate(stream.layers):
        mine = labels[start : start + layer.outputs * layer.width].view(layer.outputs, layer.width)
        start += layer.outputs * layer.width
        single = (mine == mine[:, :1]).all(1) & (alone[mine[:, 0]] == layer.width)
        if not bool(single.any()) or layer.width > _DENSE:
            continue
        left = seen.inputs[q].T.contiguous()
        for first, weights in _own_weights(seen, q):
            for k in range(weights.shape[1]):
                if bool(single[first + k]):
                    block = weighted_gram(left, weights[:, k : k + 1], seen.inputs[q])
                    out[int(mine[first + k, 0])] = block.mul_(scale)
    return out


def _own_weights(seen: Activations, layer: int) -> list[tuple[int, Tensor]]:
    """M_n[k, k] of the neurons of one layer, in chunks: (first neuron, weights of shape `(N, neurons)`)."""
    if layer in seen.hidden:
        out = []
        for rows in seen.rows(layer):
            places = torch.arange(rows.count, device="cpu")
            out.append((rows.first, rows.curvature[layer][:, places, rows.first + places]))
        return out
    curvature = seen.output
    assert curvature is not None
    if isinstance(curvature, SoftmaxCurvature):
        return [(0, curvature.diagonal())]
    if isinstance(curvature, DiagonalCurvature):
        return [(0, curvature.second)]
    return [(k, curvature.row(k, k)[:, :1]) for k in range(curvature.outputs)]
