"""How good and how dear are readings of `hs.Monitor`, on real training runs; the truth is a converged Lanczos run.

    HESSCOPE_DATA=... python -m benchmarks.monitor mlp cnn gpt
    HESSCOPE_DATA=... python -m benchmarks.monitor budget mlp cnn gpt

Prints, for every run: products per warm reading, errors against the truth, how many readings called themselves
converged, how many truths their errors covered. With `budget`: the share of the training time that a monitor with
budget="2%" took, by the clock of the loop that calls it.
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import hesscope as hs
from hesscope.step_stability import read_edge
from hesscope.zoo.data import data_dir
from hesscope.zoo.models import SmallGPT, fully_connected, lenet5


@dataclass(frozen=True)
class Training:
    """A network, its optimiser, what it trains on and what the monitor reads on."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    train: tuple[Tensor, Tensor]
    held_out: tuple[Tensor, Tensor]
    batch: int
    loss: Callable[[nn.Module, Tensor, Tensor], Tensor]
    forward: Any = None


def _classes(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(x), y)


def _tokens(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())


def _images(name: str, model: nn.Module, optimizer: torch.optim.Optimizer, held_out: int) -> Training:
    train, test = hs.zoo.load(name, "train", count=4000), hs.zoo.load(name, "test", count=held_out)
    return Training(model, optimizer, (train.x, train.y), (test.x, test.y), 64, _classes)


def mlp_momentum() -> Training:
    model = fully_connected(64, 2, rng=0)
    return _images("mnist", model, torch.optim.SGD(model.parameters(), 0.05, momentum=0.9), 512)


def mlp_adam() -> Training:
    model = fully_connected(64, 2, rng=0)
    return _images("mnist", model, torch.optim.Adam(model.parameters(), 1e-3), 512)


def cnn_momentum() -> Training:
    model = lenet5(rng=0)
    return _images("cifar10", model, torch.optim.SGD(model.parameters(), 0.02, momentum=0.9), 256)


def cnn_adam() -> Training:
    model = lenet5(rng=0)
    return _images("cifar10", model, torch.optim.Adam(model.parameters(), 1e-3), 256)


def gpt_adamw() -> Training:
    place = data_dir()
    if place is None:
        raise SystemExit("gpt reads tinyshakespeare.txt: set HESSCOPE_DATA to its folder")
    text = np.frombuffer((place / "tinyshakespeare.txt").read_bytes(), np.uint8)
    ids = torch.from_numpy(np.unique(text, return_inverse=True)[1]).long()
    rows = ids[: 33 * 8000].view(-1, 33)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = SmallGPT()
    train, test = rows[:7000], rows[7500:7564]
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    flat = lambda m, b: (m(b[0]).flatten(0, 1), b[1].flatten())  # noqa: E731
    return Training(
        model, optimizer, (train[:, :-1], train[:, 1:]), (test[:, :-1], test[:, 1:]), 32, _tokens, forward=flat
    )


RUNS = {
    "mlp-momentum": mlp_momentum,
    "mlp-adam": mlp_adam,
    "cnn-momentum": cnn_momentum,
    "cnn-adam": cnn_adam,
    "gpt-adamw": gpt_adamw,
}


def _train(run: Training, draw: torch.Generator) -> None:
    x, y = run.train
    index = torch.randint(0, len(x), (run.batch,), generator=draw)
    run.optimizer.zero_grad()
    run.loss(run.model, x[index], y[index]).backward()
    run.optimizer.step()


def spent(name: str, seconds: float, budget: str, clock: Callable[[], float] = time.perf_counter) -> str:
    """The share that a monitor took of so many seconds of training, timed outside of it, at the end and at its highest.

    The start is paid back first, so a run must be several times longer than start / budget. Not by `time.process_time`: to
    ask it takes 6 µs, five times in a step that takes a microsecond otherwise.
    """
    run, draw = RUNS[name](), torch.Generator().manual_seed(1)
    trained = ours = 0.0
    shares: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        began = clock()
        monitor = hs.Monitor(
            run.model,
            "cross_entropy",
            run.held_out,
            budget=budget,
            out=Path(folder) / "run.jsonl",
            forward=run.forward,
            clock=clock,
        )
        made = ours = clock() - began
        step = readings = 0
        while trained < seconds:
            now = clock()
            _train(run, draw)
            after = clock()
            readings += monitor.step(step, run.optimizer) is not None
            trained, ours, step = trained + after - now, ours + clock() - after, step + 1
            shares.append((trained, ours / trained))
        own = monitor.run.readings[-1].share
        monitor.close()
    late = [share for at, share in shares if at > seconds / 2]
    return (
        f"{name:13s} budget {budget}: {trained:.0f} s of training in {step} steps, {readings} readings, {made:.2f} s to make; "
        f"share at the end {ours / trained:.2%}, in the second half {min(late):.2%} to {max(late):.2%} "
        f"(its own account: {own or 0:.2%})"
    )


def measure(name: str, every: int, steps: int, products: int) -> str:
    """One line about one run."""
    run = RUNS[name]()
    rows = []
    draw = torch.Generator().manual_seed(1)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        monitor = hs.Monitor(
            run.model,
            "cross_entropy",
            run.held_out,
            every=every,
            budget=None,
            out=Path(folder) / "run.jsonl",
            forward=run.forward,
            products=products,
            slow_every=10**6,
            on_error="raise",
        )
        problem = hs.Problem.of(run.model, "cross_entropy", run.held_out, forward=run.forward, freeze=True)
        top: Any = None
        seen: Any = None
        for step in range(steps + 1):
            _train(run, draw)
            reading = monitor.step(step, run.optimizer)
            if reading is not None:
                here = problem.at(run.model.state_dict())
                top = hs.eigenpairs(here, 1, tol=1e-3, start=None if top is None else top.vectors)
                seen = read_edge(here, run.optimizer, start=seen, tol=1e-3)
                rows.append((reading, float(top.values[0]), seen.sharpness))
        monitor.close()
    return f"{name:13s} every {every:4d}: " + _line([row for row in rows if row[0].warm])


def _line(rows: list[Any]) -> str:
    products = np.array([r.products for r, _, _ in rows])
    said = np.array([r.converged for r, _, _ in rows])
    plain = np.array([abs(r.sharpness - t) / t for r, t, _ in rows])
    other = np.array([abs(r.preconditioned - t) / t for r, _, t in rows])
    bars = np.array([[r.sharpness_error / t, r.preconditioned_error / o] for r, t, o in rows])
    worst = np.maximum(plain, other)
    covered = np.mean(np.stack([plain, other], 1) <= bars + 1e-3)
    return (
        f"{len(rows)} warm readings, {products.mean():.1f} products (most {products.max()}); error of λ_max median "
        f"{np.median(plain):.2%}, of the preconditioned {np.median(other):.2%}; both within 2 %: {(worst <= 0.02).mean():.0%}; "
        f"called converged {said.mean():.0%}, of these within 2 %: {(worst[said] <= 0.02).mean():.0%}; "
        f"errors covered the truth in {covered:.0%}"
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    words = [word for word in sys.argv[1:] if word != "budget"]
    chosen = [name for name in RUNS if not words or any(name.startswith(word) for word in words)]
    if "budget" in sys.argv[1:]:
        for chosen_name in chosen:
            print(spent(chosen_name, 90.0, "10%"), flush=True)
    else:
        for cadence in (10, 50):
            for chosen_name in chosen:
                print(measure(chosen_name, cadence, 40 * cadence, 5), flush=True)
