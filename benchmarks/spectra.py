"""Eigenpairs to a residual, densities to an accuracy, traces to one per cent."""

from __future__ import annotations

import numpy as np
import torch

import hesscope as hs
from hesscope.linalg import Eigenpairs
from hesscope.measure import AtomicMeasure

from .models import lenet, mlp, small_mlp
from .peers import curvlinops_hessian, density_jobs, eigen_jobs
from .timing import Row, interleaved, once


def eigen_rows() -> list[Row]:
    model, x, y = lenet()
    rows = []
    for k, target in ((10, 2.0), (50, 3.0)):
        problem = hs.Problem.of(model, "cross_entropy", (x, y))
        checker = hs.Hessian(problem)

        def worst(values: np.ndarray, vectors: np.ndarray, H: hs.Hessian = checker) -> float:
            V = torch.as_tensor(np.ascontiguousarray(vectors), dtype=torch.float32)
            residual = (H @ V - V * torch.as_tensor(np.ascontiguousarray(values), dtype=torch.float32)).norm(dim=0)
            return float((residual / torch.as_tensor(np.abs(values).copy())).max())

        def ours(k: int = k) -> Eigenpairs:
            # From a fresh problem: building the graph is part of the price.
            return hs.eigenpairs(hs.Hessian(hs.Problem.of(model, "cross_entropy", (x, y))), k=k, tol=1e-3)

        ours()
        ours_seconds, found = once(ours)
        peers: dict[str, float] = {}
        notes = [f"ours: {found.products} products, worst residual {worst(found.values, found.vectors.numpy()):.0e}"]
        for name, job in eigen_jobs(model, [(x, y)], k).items():
            for tol in (1e-3, 1e-4, 1e-5, 1e-6):  # the loosest setting that really reaches the residual
                seconds, (values, vectors) = once(lambda j=job, t=tol: j(t))
                reached = worst(values, vectors)
                if reached <= 1e-3:
                    break
            peers[name] = seconds
            notes.append(f"{name}: {seconds / ours_seconds:.1f}x the time, tol {tol:g}, worst residual {reached:.0e}")
        best = min(peers, key=lambda n: peers[n])
        ratio = peers[best] / ours_seconds
        rows.append(
            Row(
                f"top {k} eigenpairs to residual 1e-3, LeNet5, 1024 examples",
                "1",
                f"{ratio:.1f} ({best})",
                ratio,
                f">= {target:g}x faster",
                ratio >= target,
                "; ".join(notes),
            )
        )
    return rows


def density_rows() -> list[Row]:
    model, x, y = small_mlp()
    H = hs.Hessian(hs.Problem.of(model.double(), "cross_entropy", (x.double(), y)))
    matrix = H.dense().numpy()
    exact = AtomicMeasure.of(np.linalg.eigvalsh(matrix))
    model.float()
    ours, plain, products = [], [], []
    for seed in range(5):
        found = hs.spectral_density(H, probes=10, steps=80, rng=hs.Rng(seed))
        ours.append(exact.wasserstein(AtomicMeasure.of(found.nodes, found.weights)))
        plain.append(exact.wasserstein(_plain_quadrature(matrix, 10, 80, seed)))
        products.append(found.products)
    accuracy = float(np.mean(ours) / np.mean(plain))
    model, x, y = lenet()
    seconds, found = once(
        lambda: hs.spectral_density(hs.Hessian(hs.Problem.of(model, "cross_entropy", (x, y))), probes=10, steps=80)
    )
    # A peer does the same 800 products whatever the data: 80 of them, timed, tell the rest.
    peers = {name: 10 * once(job)[0] for name, job in density_jobs(model, [(x, y)], 1, 80).items()}
    best = min(peers, key=lambda n: peers[n])
    ratio = peers[best] / seconds
    note = (
        f"W1 error against the exact spectrum of a 2,410-parameter MLP, relative to that of plain quadrature with 10 x 80 steps: {accuracy:.2f} "
        f"(with {np.mean(products):.0f} products there, {found.products} on LeNet5)"
    )
    return [
        Row(
            "spectral density as accurate as 10 probes x 80 steps, LeNet5",
            "1",
            f"{ratio:.1f} ({best})",
            ratio,
            ">= 2.5x faster",
            ratio >= 2.5 and accuracy <= 1,
            note,
        )
    ]


def _plain_quadrature(matrix: np.ndarray, probes: int, steps: int, seed: int) -> AtomicMeasure:
    """Stochastic Lanczos quadrature as the peers do it: a fixed number of steps, fully reorthogonalised."""
    generator = np.random.default_rng(seed)
    nodes, weights = [], []
    for _ in range(probes):
        q = generator.standard_normal(len(matrix))
        basis = [q / np.linalg.norm(q)]
        alpha, beta = [], []
        for _ in range(steps):
            z = matrix @ basis[-1]
            alpha.append(z @ basis[-1])
            for _ in range(2):
                z -= np.array(basis).T @ (np.array(basis) @ z)
            beta.append(np.linalg.norm(z))
            basis.append(z / beta[-1])
        values, vectors = np.linalg.eigh(np.diag(alpha) + np.diag(beta[:-1], 1) + np.diag(beta[:-1], -1))
        nodes.append(values)
        weights.append(vectors[0] ** 2 / probes)
    return AtomicMeasure.of(np.concatenate(nodes), np.concatenate(weights))


def trace_rows() -> list[Row]:
    rows = []
    for name, make in (("MLP 784-512-512-10", mlp), ("LeNet5", lenet)):
        model, x, y = make()
        problem = hs.Problem.of(model, "cross_entropy", (x, y))
        exact = hs.trace(hs.Hessian(problem), tol=0.01)
        value = float(exact.value)
        xtrace = _xtrace_seconds(model, x, y, value)
        jobs = {
            "ours": lambda p=problem: hs.trace(hs.Hessian(p), tol=0.01),
            "BackPACK": lambda m=model, a=x, b=y: _backpack_trace(m, a, b),
        }
        seconds = interleaved(jobs, repeats=3)
        ratio = xtrace[0] / seconds["ours"]
        rows.append(
            Row(
                f"trace to 1 %, {name}, against XTrace",
                "1",
                f"{ratio:.0f} (curvlinops XTrace)",
                ratio,
                ">= 30x faster",
                ratio >= 30,
                f"ours is exact ({exact.method}); XTrace took {xtrace[1]} products",
            )
        )
        other = seconds["BackPACK"] / seconds["ours"]
        gap = abs(_backpack_trace(model, x, y) / value - 1)
        rows.append(
            Row(
                f"exact trace, {name}, against BackPACK",
                "1",
                f"{other:.1f} (BackPACK DiagHessian)",
                other,
                ">= 1x",
                other >= 1,
                f"the two agree to {gap:.0e}",
            )
        )
    return rows


def _xtrace_seconds(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, truth: float) -> tuple[float, int]:
    """Seconds and products of the smallest XTrace whose typical error is 1 %: doubled (to 128 at most) until three runs are that good."""
    import curvlinops

    operator = curvlinops_hessian(model, [(x, y)])
    products = 16
    while True:
        errors = []
        torch.manual_seed(0)
        for _ in range(3):
            seconds, value = once(lambda p=products: curvlinops.xtrace(operator, p))
            errors.append(abs(float(value) / truth - 1))
        if np.sqrt(np.mean(np.square(errors))) <= 0.01 or products >= 128:
            return seconds, products
        products *= 2


def _backpack_trace(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    import copy

    from backpack import backpack, extend
    from backpack.extensions import DiagHessian

    net, loss = extend(copy.deepcopy(model)), extend(torch.nn.CrossEntropyLoss())
    with backpack(DiagHessian()):
        loss(net(x), y).backward()
    return sum(float(p.diag_h.sum()) for p in net.parameters())
