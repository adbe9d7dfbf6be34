"""What one reading of the sharpness along a run costs: the monitor's, from where its last one ended, against cold starts."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import hesscope as hs

from .models import lenet
from .peers import curvlinops_hessian, eigen_jobs, eigenthings_hessian
from .timing import Row, interleaved, once

READINGS, STEPS, ERROR = 3, 10, 0.02
LONGEST = 60  # products of a power iteration, before it is given up


def rows() -> list[Row]:
    """LeNet5 under SGD, read every ten steps; each cold start may stop as soon as it is within 2 % of the truth."""
    model, x, y = lenet()
    x, y = x[:256], y[:256]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    costs: dict[str, list[float]] = {}
    errors, products, last = [], [], None
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        monitor = hs.Monitor(
            model, "cross_entropy", (x, y), budget=None, out=Path(folder) / "run.jsonl", slow_every=10**6
        )
        for reading in range(READINGS + 1):
            for _ in range(STEPS):
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            seconds, found = once(lambda r=reading: monitor.step(r, optimizer))
            last = hs.eigenpairs(
                hs.Problem.of(model, "cross_entropy", (x, y)), 1, tol=5e-3, start=None if last is None else last.vectors
            )
            truth = float(last.values[0])
            if reading == 0:
                continue  # the first is cold
            gradient = interleaved({"gradient": lambda: F.cross_entropy(model(x), y).backward()}, 5)["gradient"]
            errors.append(abs(found.sharpness / truth - 1))
            products.append(found.products)
            costs.setdefault("ours", []).append(seconds / gradient)
            for name, job in _cold(model, x, y, truth).items():
                costs.setdefault(name, []).append(once(job)[0] / gradient)
        monitor.close()
    means = {name: float(np.mean(values)) for name, values in costs.items()}
    best = min((name for name in means if name != "ours"), key=lambda name: means[name])
    note = "; ".join(f"{name}: {value:.0f} gradients" for name, value in means.items())
    return [
        Row(
            f"a reading of λ_max to {ERROR:.0%} along training, LeNet5, 256 examples, in gradients",
            f"{means['ours']:.0f}",
            f"{means[best]:.0f} ({best})",
            means["ours"],
            "fewer than any cold start",
            means["ours"] < means[best] and max(errors) <= ERROR,
            f"{note}; ours used {np.mean(products):.1f} products, worst error {max(errors):.1%}",
        )
    ]


def _cold(model: Any, x: Any, y: Any, truth: float) -> dict[str, Callable[[], object]]:
    """Each other way at the least work that is within the error, found beforehand."""
    data = [(x, y)]
    curv, things = curvlinops_hessian(model, data), eigenthings_hessian(model, data)
    jobs: dict[str, Callable[[], object]] = {
        "power iteration by hessian-eigenthings": lambda: _power(things.matvec, model, truth),
        "power iteration by curvlinops": lambda: _power(lambda v: curv @ v, model, truth),
    }
    for name, job in eigen_jobs(model, data, 1).items():
        for tol in (1e-3, 1e-4):
            value = float(np.asarray(job(tol)[0])[0])
            if abs(value / truth - 1) <= ERROR:
                break
        jobs[name] = lambda job=job, tol=tol: job(tol)
    return jobs


def _power(product: Callable[[Any], Any], model: Any, truth: float) -> float:
    """Power iteration from a random vector until its Rayleigh quotient is within the error: an oracle stops it."""
    v = torch.randn(sum(p.numel() for p in model.parameters()), generator=torch.Generator().manual_seed(0))
    value = 0.0
    for _ in range(LONGEST):
        v = v / v.norm()
        after = product(v)
        value = float(v @ after)
        if abs(value / truth - 1) <= ERROR:
            break
        v = after
    return value
