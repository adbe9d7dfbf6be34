"""What is found of blocks: norms, spectra, pictures and scores of them, and all of these along training."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import refuse
from ..measure import Array, AtomicMeasure
from ..result import Result


@dataclass(frozen=True, eq=False)
class BlockNorms(Result):
    """‖H_IJ‖_F for all blocks I, J: `norms` and `stderr` are `(B, B)`; stderr is 0 where a norm is exact.

    `partition` says what a block is ("layer", "neuron", ...; "own" for blocks of the caller's).
    """

    _pictured = True

    norms: Array
    stderr: Array
    names: tuple[str, ...]
    layers: tuple[str, ...]
    sizes: Array
    matrix: str
    exact: bool
    products: int
    partition: str = "own"
    method: str = ""
    check: str = "unchecked"

    def table(self) -> dict[str, Any]:
        """‖H_IJ‖, one row and one column for each block."""
        return {"block": self.names, **{name: self.norms[:, j] for j, name in enumerate(self.names)}}

    @property
    def letter(self) -> str:
        """G for a Gauss-Newton matrix, H else."""
        return "G" if self.matrix == "gauss_newton" else "H"

    @property
    def ratio(self) -> float:
        """Mean off-diagonal norm over mean diagonal norm, over blocks of the same layer."""
        same = np.equal.outer(np.array(self.layers), np.array(self.layers))
        return _ratio(self.norms, same)

    @property
    def cross_ratio(self) -> float:
        """The same over blocks of different layers: mean ‖H_IJ‖ / √(‖H_II‖ ‖H_JJ‖)."""
        other = np.not_equal.outer(np.array(self.layers), np.array(self.layers))
        relative = self.relative[other]
        return float(np.nanmean(relative)) if relative.size and not np.isnan(relative).all() else 0.0

    @property
    def relative(self) -> Array:
        """‖H_IJ‖ / √(‖H_II‖ ‖H_JJ‖); NaN where a diagonal block is zero."""
        diagonal = np.sqrt(np.diagonal(self.norms))
        scale = np.outer(diagonal, diagonal)
        return np.asarray(np.divide(self.norms, scale, out=np.full_like(self.norms, np.nan), where=scale > 0))

    @property
    def largest_ratio(self) -> float:
        """max over I ≠ J of the relative norm, over blocks of the same layer."""
        same = np.equal.outer(np.array(self.layers), np.array(self.layers)) & ~np.eye(len(self.names), dtype=bool)
        values = self.relative[same]
        return float(np.nanmax(values)) if values.size and not np.isnan(values).all() else 0.0

    @property
    def layer_ratios(self) -> dict[str, float]:
        """`ratio` of each layer that has more than one block."""
        layers = np.array(self.layers)
        out = {}
        for layer in dict.fromkeys(self.layers):
            inside = layers == layer
            if inside.sum() > 1:
                out[layer] = _ratio(self.norms[np.ix_(inside, inside)], np.ones((inside.sum(),) * 2, dtype=bool))
        return out

    @property
    def diagonal_share(self) -> float:
        """Σ_I ‖H_II‖² / ‖H‖²: 1 for a block-diagonal matrix, NaN where a norm is."""
        square = self.norms**2
        total = square.sum()
        return 1.0 if total == 0 else float(np.trace(square) / total)

    @property
    def off_diagonal_share(self) -> float:
        """Σ_{I≠J} ‖H_IJ‖² / ‖H‖²: 0 for a block-diagonal matrix."""
        return 1.0 - self.diagonal_share

    def by_layer(self) -> BlockNorms:
        """The norms between whole layers: ‖H_LM‖² = Σ ‖H_IJ‖² over the blocks I of L and J of M; of exact norms only."""
        if not self.exact:
            refuse(
                "norms that are to be added must be exact", "estimates, whose errors are correlated", "Measure anew."
            )
        layers = list(dict.fromkeys(self.layers))
        member = np.equal.outer(np.array(layers), np.array(self.layers)).astype(float)
        return replace(
            self,
            norms=np.sqrt(member @ self.norms**2 @ member.T),
            stderr=np.zeros((len(layers), len(layers))),
            names=tuple(layers),
            layers=tuple(layers),
            sizes=member @ self.sizes,
            products=0,
            partition="layer",
        )


@dataclass(frozen=True, eq=False)
class HeatMap(Result):
    """|H| reduced to `pixels` x `pixels`; `bounds[t]` is where tensor t begins, in pixels."""

    _pictured = True

    image: Array
    bounds: Array
    names: tuple[str, ...]
    size: int
    reduce: str
    check: str = "unchecked"
    method: str = ""


@dataclass(frozen=True, eq=False)
class BlockSpectra(Result):
    """Eigenvalues of each diagonal block (ascending), or quadrature nodes with weights where a block is too big."""

    _pictured = True

    names: tuple[str, ...]
    layers: tuple[str, ...]
    nodes: tuple[Array, ...]
    weights: tuple[Array, ...]
    exact: tuple[bool, ...]
    check: str = "unchecked"
    method: str = ""

    def table(self) -> dict[str, Any]:
        return {
            "block": self.names,
            "layer": self.layers,
            "smallest": [float(nodes[0]) for nodes in self.nodes],
            "largest": self.largest(),
            "mean": [float(n @ w / w.sum()) for n, w in zip(self.nodes, self.weights, strict=True)],
            "exact": list(self.exact),
        }

    def of(self, block: int | str) -> AtomicMeasure:
        """The spectrum of one block as a probability measure."""
        number = self.names.index(block) if isinstance(block, str) else block
        return AtomicMeasure.of(self.nodes[number], self.weights[number])

    def largest(self) -> Array:
        """λ_max of each block."""
        return np.array([nodes[-1] for nodes in self.nodes])


@dataclass(frozen=True)
class CirculantScore(Result):
    """How much of H_wv lies in its stripes: in block (neuron i, output j), the column of input i."""

    share: float  # ‖stripes‖² / ‖H_wv‖²
    chance: float  # the same for a matrix without structure: 1 / inputs of the later layer
    cross: float  # ‖H_wv‖
    hidden: float  # ‖H_ww‖
    output: float  # ‖H_vv‖
    check: str = "unchecked"
    method: str = ""

    @property
    def score(self) -> float:
        """0 without structure, 1 for a block-circulant H_wv."""
        return (self.share - self.chance) / (1 - self.chance)

    @property
    def cross_share(self) -> float:
        """2 ‖H_wv‖² / ‖H‖²: what the two cross-layer parts hold of the whole."""
        cross = 2 * self.cross**2
        return cross / (cross + self.hidden**2 + self.output**2)


@dataclass(frozen=True, eq=False)
class OutputNorms(Result):
    """‖H_cc‖_F of all classes, the norms of chosen pairs, and the exact size of all off-diagonal blocks together.

    `off_diagonal[c]` is the root mean square of ‖H_cj‖_F over all j ≠ c: exact, though no pair is formed.
    """

    diagonal: Array
    off_diagonal: Array
    pairs: NDArray[np.int64]
    pair_norms: Array
    rows: int
    check: str = "unchecked"
    method: str = ""

    def table(self) -> dict[str, Any]:
        classes = list(range(self.diagonal.size))
        return {"class": classes, "own block": self.diagonal, "other blocks (rms)": self.off_diagonal}

    @property
    def ratio(self) -> float:
        """RMS of all C (C - 1) off-diagonal norms over the RMS of the C diagonal ones."""
        return float(np.sqrt(np.mean(self.off_diagonal**2) / np.mean(self.diagonal**2)))

    @property
    def diagonal_share(self) -> float:
        """Σ_c ‖H_cc‖² / ‖H‖²."""
        on = float((self.diagonal**2).sum())
        return on / (on + float((self.off_diagonal**2).sum()) * (self.diagonal.size - 1))


def _ratio(norms: Array, where: NDArray[np.bool_]) -> float:
    off = where & ~np.eye(len(norms), dtype=bool)
    diagonal = np.diagonal(norms).mean()
    return float(norms[off].mean() / diagonal) if off.any() and diagonal > 0 else 0.0
