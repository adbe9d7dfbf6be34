"""How large the Hessian's blocks are at random initialisation, in the limit of wide inputs and many examples.

X is d x N with standard normal entries, d/N -> γ; weights are LeCun-initialised, without biases; the hidden layer is a
ReLU. The loss is the mean over examples of the cross-entropy, or of the squared error summed over outputs (no 1/2).
Blocks belong to classes (linear model, output layer) or to hidden units. Reference: Dong, Zhang, Yao & Sun (2025),
Theorems 1 and 2, with the corrections of docs/errata/dong.md; derivations in docs/theory/block_structure.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import e

import numpy as np

from ...arguments import as_float, is_count, shown
from ...errors import refuse
from ...measure import Array
from ...result import Result
from ...rng import Rng
from .hidden_weights import MeanAndError, one_example, two_examples
from .logit_pairs import LogitPair
from .overlaps import RectifiedPairs, controlled_mean, overlap_moments
from .pair_table import interpolate_pairs
from .softmax_moments import SoftmaxMoments

_DRAWS = 40_000  # keeps every standard error below 0.35 % at three hidden units, far below at more
_CONTROLS = (-1.0, 0.0, 1.0, 2.0)


@dataclass(frozen=True)
class LargeClassLimit(Result):
    """As C -> ∞: diagonal ~ `diagonal` C^`diagonal_power`, off-diagonal likewise."""

    diagonal: float
    diagonal_power: int
    off_diagonal: float
    off_diagonal_power: int

    @property
    def ratio(self) -> float:
        """lim C^k off-diagonal / diagonal, with k = diagonal_power - off_diagonal_power."""
        return self.off_diagonal / self.diagonal


@dataclass(frozen=True)
class BlockLimit(Result):
    """Limits of the squared Frobenius norms of a diagonal and an off-diagonal block, as (value, standard error)."""

    diagonal: MeanAndError
    off_diagonal: MeanAndError
    large_class_limit: LargeClassLimit

    @property
    def ratio(self) -> MeanAndError:
        """Off-diagonal over diagonal squared norm, (value, standard error)."""
        value = self.off_diagonal[0] / self.diagonal[0]
        relative = np.hypot(self.off_diagonal[1] / self.off_diagonal[0], self.diagonal[1] / self.diagonal[0])
        return value, float(value * relative)


def linear_cross_entropy(ratio: float, classes: int) -> BlockLimit:
    """lim ||H_ij||²_F / d = γ E[g²] + (E g)², g = p_i(1 - p_i) or -p_i p_j, p = softmax of C standard normals.

    Exact by quadrature for any C >= 2, in milliseconds; one network is enough to see it, since it self-averages.

    >>> limit = linear_cross_entropy(1.0, 1000)
    >>> round(limit.diagonal[0] * 1000**2, 3), round(limit.large_class_limit.diagonal, 3)
    (3.655, 3.718)
    """
    check_setting(ratio, classes)
    softmax = SoftmaxMoments(classes, 1.0)
    second, third, fourth = (softmax.expect((0, q)) / classes for q in (2, 3, 4))
    pairs = classes * (classes - 1.0)
    product = (1.0 - classes * second) / pairs
    squared_product = softmax.expect_distinct((0, 2), (0, 2)) / pairs
    return BlockLimit(
        (ratio * (second - 2 * third + fourth) + (1 / classes - second) ** 2, 0.0),
        (ratio * squared_product + product**2, 0.0),
        LargeClassLimit(1 + ratio * e, -2, 1 + ratio * e**2, -4),
    )


def hidden_cross_entropy(ratio: float, classes: int, hidden: int, rng: Rng | int | None = None) -> BlockLimit:
    """lim E||H_ij||²_F / d = γ E[η²] + E_V[(E[η | V])²], i, j hidden units, η the example's weight in the block.

    The mean over output weights V, which stay random in the limit: compare it with the mean over many networks, never
    with one. The first term is exact by quadrature, the second averages exact inner expectations over 40 000 draws of
    pairs of examples: about 2 s and below 0.35 % for any C >= 2 and m >= 3.
    """
    check_setting(ratio, classes, hidden)
    single, single_off = one_example(classes, hidden)
    double, double_off = two_examples(classes, hidden, _DRAWS, _source(rng, "hidden_cross_entropy"))
    m = hidden
    zeroth, first, _ = overlap_moments(1 / m)
    spread = (m - 1) ** 2 / (2**m * (m - 2) ** 3 * m) * (np.sqrt(m / (m - 2)) + 1) ** (m - 2)
    shared = (first / m**2 + zeroth / m) ** 2 * (0.75 + zeroth) ** (m - 2)
    return BlockLimit(
        (ratio * single + double[0], double[1]),
        (ratio * single_off + double_off[0], double_off[1]),
        LargeClassLimit((1 + 2 * ratio) / (4 * m**2), 0, float(ratio * spread + shared), -1),
    )


def hidden_mse(ratio: float, classes: int, hidden: int) -> BlockLimit:
    """lim E||H_ij||²_F / d = (C² + 2C)(1 + 2γ)/m² for i = j, C(1 + 4γ)/(4m²) otherwise: exact for every C.

    The blocks are 2 (V^T V)_ij times a Gram matrix of the examples that both units pass; V^T V does not self-average.
    """
    check_setting(ratio, classes, hidden)
    own, shared = (1 + 2 * ratio) / hidden**2, (1 + 4 * ratio) / (4 * hidden**2)
    return BlockLimit(
        (own * (classes**2 + 2 * classes), 0.0), (shared * classes, 0.0), LargeClassLimit(own, 2, shared, 1)
    )


def output_cross_entropy(classes: int, hidden: int, rng: Rng | int | None = None) -> BlockLimit:
    """lim E||H_ij||²_F = E[(a·b)² w w'], w = p_i(1 - p_i) or -p_i p_j on two examples with hidden values a and b.

    The blocks are m x m, so nothing is divided by d, and γ drops out. Exact inner expectations averaged over 40 000
    draws of (a, b): below 0.35 % in about 1 s for any C >= 2 and m >= 3.
    """
    check_setting(1.0, classes, hidden)
    m, c = hidden, float(classes)
    pairs = RectifiedPairs.draw(m, 2.0, _DRAWS, _source(rng, "output_cross_entropy"))
    sizes = np.array([c, c * (c - 1)])

    def measure(pair: LogitPair) -> Array:
        return np.asarray(np.array(pair.parts((0, 0, 2))[:2]) / sizes)

    products = interpolate_pairs(classes, measure, np.arange(2), pairs.coordinates)
    square = pairs.weights * (m * pairs.overlap) ** 2
    controls = np.stack([square * np.exp(kappa * pairs.overlap) for kappa in _CONTROLS], axis=1)
    means = np.array([_squared_overlap(m, kappa) for kappa in _CONTROLS])
    diagonal, off_diagonal = (controlled_mean(square * products[:, k], controls, means) for k in (0, 1))
    return BlockLimit(
        diagonal, off_diagonal, LargeClassLimit(_squared_overlap(m, 1.0), -2, _squared_overlap(m, 2.0), -4)
    )


def _squared_overlap(hidden: int, kappa: float) -> float:
    """E[(a·b)² e^(κ a·b / m)]: m a_k2 b_k^(m-1) + m(m-1) a_k1² b_k^(m-2) in the paper's constants."""
    zeroth, first, second = overlap_moments(kappa / hidden)
    mass = 0.75 + zeroth
    return hidden * (second * mass + (hidden - 1) * first**2) * mass ** (hidden - 2)


def _source(rng: Rng | int | None, name: str) -> Rng:
    return Rng().child(name) if rng is None else Rng.of(rng)


def check_setting(ratio: float, classes: int, hidden: int = 3) -> None:
    """Refuse what the theorems do not cover."""
    found = as_float(ratio)
    if found is None or not 0 < found < np.inf:
        refuse("ratio = d/N must be positive and finite", shown(ratio), "Pass the limit of inputs over examples.")
    if not is_count(classes, 2):
        refuse("classes must be an integer of at least 2", shown(classes), "One class has nothing to classify.")
    if not is_count(hidden, 3):
        refuse(
            "hidden must be an integer of at least 3",
            shown(hidden),
            "At 2 hidden units the limits of many classes are infinite; measure such a network instead.",
        )
