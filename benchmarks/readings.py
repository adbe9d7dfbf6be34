"""What one reading of the sharpness along a run costs: from the last reading's eigenvector, against cold starts."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import hesscope as hs

from .models import lenet
from .peers import curvlinops_hessian, eigen_jobs, eigenthings_hessian
from .timing import Row, interleaved, once

READINGS, STEPS, ERROR = 4, 10, 0.02


def rows() -> list[Row]:
    """LeNet5 under SGD, read every ten steps; every contestant may stop as soon as it is within 2 % of the truth."""
    model, x, y = lenet()
    x, y = x[:512], y[:512]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    last: Any = None
    costs: dict[str, list[float]] = {}
    errors, products = [], []
    for reading in range(READINGS + 1):
        for _ in range(STEPS):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        problem = hs.Problem.of(model, "cross_entropy", (x, y))
        truth = float(hs.eigenpairs(problem, 1, tol=1e-3).values[0])

        def ours(at: hs.Problem = problem, start: Any = last) -> Any:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a budget that ran out says so by its error
                return hs.read_edge(at.at(model.state_dict()), optimizer, start=start, tol=0.05, max_products=12)

        seconds, last = once(ours)
        if reading == 0:
            continue  # the first is cold
        gradient = interleaved({"gradient": lambda: F.cross_entropy(model(x), y).backward()}, 3)["gradient"]
        errors.append(abs(last.sharpness / truth - 1))
        products.append(last.top.products)
        costs.setdefault("ours", []).append(seconds / gradient)
        for name, job in _cold(model, x, y, truth).items():
            costs.setdefault(name, []).append(once(job)[0] / gradient)
    means = {name: float(np.mean(values)) for name, values in costs.items()}
    best = min((name for name in means if name != "ours"), key=lambda name: means[name])
    note = "; ".join(f"{name}: {value:.0f} gradients" for name, value in means.items())
    return [
        Row(
            f"a reading of λ_max to {ERROR:.0%} along training, LeNet5, 512 examples, in gradients",
            f"{means['ours']:.0f}",
            f"{means[best]:.0f} ({best})",
            means["ours"],
            "fewer than any cold start",
            means["ours"] < means[best],
            f"{note}; ours used {np.mean(products):.1f} products, worst error {max(errors):.1%}, with its proof of derivatives",
        )
    ]


def _cold(model: Any, x: Any, y: Any, truth: float) -> dict[str, Callable[[], object]]:
    """Each other way at the least work that is within the error, found beforehand."""
    data = [(x, y)]
    jobs: dict[str, Callable[[], object]] = {
        "power iteration with hessian-eigenthings' products": lambda: _power(
            eigenthings_hessian(model, data).matvec, model, truth
        ),
        "power iteration with curvlinops' products": lambda: _power(
            lambda v: curvlinops_hessian(model, data) @ v, model, truth
        ),
    }
    for name, job in eigen_jobs(model, data, 1).items():
        for tol in (1e-3, 1e-4):
            value = float(np.asarray(job(tol)[0])[0])
            if abs(value / truth - 1) <= ERROR:
                break
        jobs[name] = lambda job=job, tol=tol: job(tol)
    return jobs


def _power(product: Callable[[Any], Any], model: Any, truth: float) -> float:
    """Power iteration from a random vector until its Rayleigh quotient is within the error (an oracle says when)."""
    v = torch.randn(sum(p.numel() for p in model.parameters()), generator=torch.Generator().manual_seed(0))
    value = 0.0
    for _ in range(200):
        v = v / v.norm()
        after = product(v)
        value = float(v @ after)
        if abs(value / truth - 1) <= ERROR:
            break
        v = after
    return value
