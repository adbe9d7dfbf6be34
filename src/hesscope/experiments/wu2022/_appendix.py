"""What the lemmas of Appendix B speak of, measured on one random two-layer network with rectified Gaussian inputs.

Expectations over the input are means over examples in two halves: a product of the two halves' estimates has no bias from
the sampling, so that a difference which tends to 0 is not hidden by the noise of measuring it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from ...rng import Rng

MEAN = float(1 / np.sqrt(2 * np.pi))  # of a rectified normal
VARIANCE = float((np.pi - 1) / (2 * np.pi))
SEEN = 30  # examples of a half in which both units must be on for a mean given that they are
SHARE = float(1 / (1 + 2 / np.pi * np.arcsin(1 / np.pi)))  # E[π]²/E[π²] of the units' probabilities, as in Theorem 4.2


@dataclass(frozen=True)
class Network:
    """Weights, inputs' sums and inner products between the halves, and what the network makes of every example."""

    first: Tensor  # (n, d)
    second: Tensor  # (c, n)
    u: Tensor  # (N, n) before the ReLU
    inputs: Tensor  # (N, |columns|): some coordinates of x
    columns: Tensor
    sums: Tensor  # (N,) of all coordinates
    squares: Tensor  # (N,)
    inner: Tensor  # (N/2, N/2): x of the first half with x of the second

    @property
    def on(self) -> Tensor:
        return (self.u > 0).to(self.u)

    @property
    def z(self) -> Tensor:
        return self.u.clamp_min(0) @ self.second.T

    @property
    def a(self) -> Tensor:
        """A = diag(p) - p pᵀ of every example."""
        p = torch.softmax(self.z, 1)
        return torch.diag_embed(p) - p[:, :, None] * p[:, None, :]

    @property
    def d(self) -> int:
        return self.first.shape[1]

    @property
    def probabilities(self) -> Tensor:
        """π_i = Φ(S_i/(√(π-1) |W_i|)), S_i the row sums."""
        found: Tensor = torch.special.ndtr(self.first.sum(1) / ((torch.pi - 1) ** 0.5 * self.first.norm(dim=1)))
        return found


def draw(rng: Rng, n: int, d: int, c: int, examples: int, columns: int = 64) -> Network:
    """Weights N(0, 1/d) and N(0, 1/n), inputs the positive parts of normal ones."""
    source = rng.torch()
    first = torch.randn(n, d, generator=source, dtype=torch.float64) / d**0.5
    second = torch.randn(c, n, generator=source, dtype=torch.float64) / n**0.5
    chosen = torch.randperm(d, generator=source)[:columns]
    halves = [torch.randn(examples // 2, d, generator=source).clamp_min(0) for _ in range(2)]
    inner = (halves[0] @ halves[1].T).double()
    x = torch.cat(halves)
    u = torch.cat([part.double() @ first.T for part in torch.split(x, 500)])
    sums, squares = x.double().sum(1), (x.double() ** 2).sum(1)
    return Network(first, second, u, x[:, chosen].double(), chosen, sums, squares, inner)


def output_hessians(net: Network) -> tuple[Tensor, Tensor]:
    """M = E[D Wᵀ A W D] of both halves: (2, n, n); and M* of the definition, with D' independent of A."""
    exact, bridge = [], []
    for on, a in zip(net.on.chunk(2), net.a.chunk(2), strict=True):
        inner = torch.einsum("eij,jl,el->eil", a, net.second, on)  # A W D
        exact.append(torch.einsum("it,eil,et->tl", net.second, inner, on) / len(on))
        together = on.T @ on / len(on)
        bridge.append(net.second.T @ a.mean(0) @ net.second * together)
    return torch.stack(exact), torch.stack(bridge)


def product(pair: Tensor) -> float:
    """‖·‖² without the bias of sampling: the inner product of the two halves."""
    return float((pair[0] * pair[1]).sum())


def root(square: float) -> float:
    """With the sign of an unbiased square, which may be negative where it is nearly 0: means over networks need it."""
    return float(np.copysign(np.sqrt(abs(square)), square))


def relative(guess: Tensor, halves: Tensor) -> float:
    """‖guess - truth‖/‖truth‖ without the bias of sampling the truth; see `root`."""
    return root(product(guess - halves) / product(halves))


def layer_hessian_norms(net: Network) -> tuple[float, float]:
    """‖Ȟ‖² and ‖V Ȟ Vᵀ‖² of Ȟ = E[D Wᵀ A W D ⊗ x xᵀ]/d, over pairs of examples from the two halves."""
    (on1, on2), (a1, a2) = net.on.chunk(2), net.a.chunk(2)
    w, d = net.second, net.d
    total, count = 0.0, on1.shape[0] * on2.shape[0]
    for start in range(0, len(on1), 100):
        e = slice(start, start + 100)
        both = torch.einsum("il,kl,el,fl->efik", w, w, on1[e], on2)  # W D_e D_f Wᵀ
        left = torch.einsum("eij,efjk->efik", a1[e], both)
        right = torch.einsum("fij,efkj->efik", a2, both)
        total += float((torch.einsum("efik,efki->ef", left, right) * net.inner[e] ** 2).sum())
    projected = []
    for on, a, sums in zip(net.on.chunk(2), net.a.chunk(2), net.sums.chunk(2), strict=True):
        through = torch.einsum("il,el,jl->eij", w, on, w)
        projected.append(torch.einsum("eij,ejk,ekl,e->il", through, a, through, (sums / d) ** 2) / len(on))
    return total / count / d**2, product(torch.stack(projected))


def rectified(mean: Tensor | float, variance: float) -> tuple[Tensor, Tensor]:
    """Mean and variance of the positive part of a normal variable."""
    m, s = torch.as_tensor(mean, dtype=torch.float64), variance**0.5
    density = torch.exp(-((m / s) ** 2) / 2) / (2 * torch.pi) ** 0.5
    below = torch.special.ndtr(m / s)
    first = m * below + s * density
    second = (m**2 + variance) * below + m * s * density
    return first, second - first**2


def conditional_shift(net: Network, value: float) -> tuple[float, float]:
    """Root mean square change of z, and of E[A], when two units are known to be on and two inputs are fixed at `value`.

    Over all pairs of units that are seen on together (the mean of z in units of its standard deviation, halves multiplied
    against sampling noise), and over pairs of the inputs kept for z itself.
    """
    spread = float(net.z.var(0).mean())
    seen = torch.stack([on.T @ on for on in net.on.chunk(2)]).amin(0) >= SEEN
    off = seen & ~torch.eye(net.u.shape[1], dtype=torch.bool)
    means, curvatures = [], []
    for on, z, a in zip(net.on.chunk(2), net.z.chunk(2), net.a.chunk(2), strict=True):
        both = (on.T @ on).clamp_min(1)
        means.append(torch.einsum("ep,eq,ek->kpq", on, on, z - z.mean(0)) / both)
        flat = (a - a.mean(0)).flatten(1)
        curvatures.append(torch.einsum("ep,eq,ek->kpq", on, on, flat) / both)
    by_units = float((means[0] * means[1]).sum(0)[off].mean()) / spread / z.shape[1]
    of_a = float((curvatures[0] * curvatures[1]).mean(0)[off].mean()) / float(net.a.mean(0).square().mean())
    moved = []
    for k in range(0, min(16, len(net.columns)), 2):
        pair = net.columns[k : k + 2]
        change = (value - net.inputs[:, k : k + 2]) @ net.first[:, pair].T
        moved.append(((net.u + change).clamp_min(0) @ net.second.T - net.z).square().mean() / spread)
    by_inputs = float(torch.stack(moved).mean())
    return root(by_units + by_inputs), root(of_a)


def polynomial_differences(net: Network, rng: Rng, count: int = 2000) -> tuple[float, float]:
    """Root mean square of E[p(A, D, x)] - E[p(A, D', x″)] over random monomials (Lemma B.13) and over products of two of
    them in independent copies (Corollary B.4), over the root mean square of the second term."""
    pick = rng.child("monomials").torch()
    c, n, m = net.second.shape[0], net.u.shape[1], net.inputs.shape[1]
    s, t = torch.randint(c, (2, count), generator=pick)
    i, j = torch.randint(n, (2, count), generator=pick)
    p, q = torch.randint(m, (2, count), generator=pick)
    true, apart = [], []
    for on, a, x in zip(net.on.chunk(2), net.a.chunk(2), net.inputs.chunk(2), strict=True):
        units, inputs = on[:, i] * on[:, j], x[:, p] * x[:, q]
        true.append((a[:, s, t] * units * inputs).mean(0))
        apart.append(a[:, s, t].mean(0) * units.mean(0) * inputs.mean(0))
    one = float(((true[0] - apart[0]) * (true[1] - apart[1])).mean() / (apart[0] * apart[1]).mean())
    pairs = [[values * values.roll(1) for values in group] for group in (true, apart)]
    difference = [a - b for a, b in zip(*pairs, strict=True)]
    two = float((difference[0] * difference[1]).mean() / (pairs[1][0] * pairs[1][1]).mean())
    return root(one), root(two)


def mean_curvature_law(mean: Tensor, variance: float, rng: Rng, draws: int = 100_000) -> Tensor:
    """E[A(z)] for z ~ N(mean, variance I)."""
    noise = torch.randn(draws // 2, len(mean), generator=rng.child("law").torch(), dtype=torch.float64)
    z = mean + variance**0.5 * torch.cat([noise, -noise])
    p = torch.softmax(z, 1)
    return torch.diag(p.mean(0)) - p.T @ p / draws


def chi_square_excess() -> float:
    """The largest Pr/e^(-t) in the two tail bounds of Lemma B.2."""
    worst = 0.0
    for n in (1, 2, 3, 5, 10, 30, 100, 1000, 10_000):
        for t in np.geomspace(1e-3, 60, 200):
            upper = stats.chi2.sf(n + 2 * np.sqrt(n * t) + 2 * t, n)
            lower = stats.chi2.cdf(n - 2 * np.sqrt(n * t), n)
            worst = max(worst, upper * np.exp(t), lower * np.exp(t))
    return worst


def wishart_excess(rng: Rng, draws: int) -> float:
    """How far the frequency of ‖S/n - C‖ beyond Lemma B.6's bound exceeds 2d e^(-θ), in standard errors; the largest."""
    source = rng.child("wishart").numpy()
    worst = -np.inf
    for d, n, scales in ((2, 3, (1.0, 1.0)), (3, 20, (1.0, 0.5, 0.1)), (6, 60, (1.0,) * 6)):
        c = np.array(scales)
        x = source.standard_normal((draws, n, d)) * np.sqrt(c)
        gap = np.abs(np.linalg.eigvalsh(np.einsum("rni,rnj->rij", x, x) / n - np.diag(c))).max(1)
        r = c.sum() / c.max()
        for theta in np.log(2 * d) + np.array([0.05, 0.5, 1.0, 2.0, 4.0]):
            bound = (np.sqrt(2 * theta * (r + 1) / n) + 2 * theta * r / n) * c.max()
            chance = min(1.0, 2 * d * np.exp(-theta))
            error = np.sqrt(chance * (1 - chance) / draws)
            worst = max(worst, float((np.mean(gap >= bound) - chance) / error))
    return worst
