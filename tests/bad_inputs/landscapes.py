"""Directions that lead nowhere, optimisers of other models, and settings that draw nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from .commands import PROBLEM
from .given import NAN, SIZE, data, hessian, hs, network, of, spoiled
from .row import Row, command


def _spoiled_state(model: nn.Sequential) -> Any:
    optimiser = torch.optim.Adam(model.parameters())
    for p in model.parameters():
        own = p.detach()
        optimiser.state[p] = {"step": torch.tensor(1.0), "exp_avg": spoiled(own, NAN), "exp_avg_sq": own**2}
    return optimiser


def _moved(model: nn.Sequential) -> Any:
    optimiser = torch.optim.Adam(model.parameters())
    nn.functional.cross_entropy(model(data()[0]), data()[1]).backward()
    optimiser.step()
    return optimiser


def _stepped(name: str, make: Any, must: str, got: str, do: str = r"\w") -> Row:
    def call() -> object:
        model = network()
        return hs.landscape(of(model), make(model))

    return Row(name, call, must, got, do)


def _row(name: str, must: str, got: str, do: str = r"\w", **arguments: Any) -> Row:
    def call() -> object:
        made = {key: value() if callable(value) and key == "along" else value for key, value in arguments.items()}
        return hs.landscape(of(), **made)

    return Row(name, call, must, got, do)


ROWS = [
    Row("no problem", lambda: hs.landscape(network()), "needs a Problem", "Sequential"),
    _row("unknown name", "direction by name must be known", "'hessian'", "eigenvectors", along="hessian"),
    _row("a number", "direction must be a name", "int", "eigenvectors", along=3),
    _row("no directions", "needs a direction", "none", along=[]),
    _row("a short vector", f"flat vector of {SIZE}", r"shape \(3,\)", "pack", along=torch.ones(3)),
    _row("a vector of zeros", "lead somewhere", "zero everywhere", along=torch.zeros(SIZE)),
    _row("a vector with nan", "real and finite", "nan", along=spoiled(torch.ones(SIZE), NAN)),
    _row("a complex vector", "real and finite", "complex", along=torch.ones(SIZE, dtype=torch.complex64)),
    _row("the same checkpoint", "lead somewhere", "zero everywhere", "both ends", along=lambda: network().state_dict()),
    _row("a checkpoint of another model", "that of a parameter", "'weight'", along=lambda: nn.Linear(4, 3).state_dict()),
    _row("a problem of another model", "parameters of the problem", "15 parameters", along=lambda: of(nn.Linear(4, 3))),
    _stepped("another model's optimiser", lambda _: torch.optim.Adam(network(1).parameters()), "hold the parameters", "other tensors"),
    _stepped("an optimiser that went on", _moved, "parameters that the optimiser holds now", "another value", "after the last step"),
    _stepped("an optimiser of half the model", lambda m: torch.optim.SGD(m[0].parameters(), lr=0.1), "every parameter", "2.weight", "select"),
    _stepped("a state with nan", _spoiled_state, "state must be finite", "exp_avg"),
    _stepped("an optimiser with a closure", lambda m: torch.optim.LBFGS(m.parameters()), "step from gradients", "LBFGS"),
    _row("a plane of one", "two directions", "1", along="gradient", plane=True),
    _row("a plane of three", "two directions", "3", along=["gradient", "random"], plane=True),
    _row("a flat plane", "not be parallel", "two that are", along=[torch.ones(SIZE), -2 * torch.ones(SIZE)], plane=True),
    _row("plane as text", "plane must be True or False", "'yes'", plane="yes"),
    _row("no reach", "reach must be a positive number", "0", reach=0),
    _row("a reach of nan", "reach must be a positive number", "nan", reach=NAN),
    _row("a negative share", "share must be a positive number", "-0.1", share=-0.1),
    _row("no share", "share must be a positive number", "None", share=None),
    _row("two points", "points must be an integer >= 3", "2", points=2),
    _row("count of none", "count must be an integer >= 1", "0", count=0),
    _row("a seed as text", "rng must be", "'x'", rng="x"),
    Row("eigenpairs without vectors", lambda: hs.landscape(of(), hs.eigenpairs(hessian(), 1).without_vectors()), "come with vectors", r"\(43, 0\)"),
    Row("random filters of biases", lambda: hs.landscape(of(params="*.bias"), "random"), "two or more axes", "0.bias"),
    Row(
        "a checkpoint that is not there",
        command("landscape", "p.py:make", "--to", "7"),
        "along training or to a file of weights",
        "'7'",
        "dict of problems",
        error=2,
        files=lambda: Path("p.py").write_text(PROBLEM),
    ),
    Row(
        "checkpoints of a single problem",
        command("landscape", "p.py:make", "--along", "checkpoints"),
        "needs one",
        "without any",
        "--to",
        error=2,
        files=lambda: Path("p.py").write_text(PROBLEM),
    ),
    Row(
        "a step of no optimiser",
        command("landscape", "p.py:make", "--along", "step"),
        "that of an optimiser",
        "none",
        "--optimizer state.pt",
        error=2,
        files=lambda: Path("p.py").write_text(PROBLEM),
    ),
    Row(
        "an optimiser that nobody asks for",
        command("landscape", "p.py:make", "--optimizer", "SGD:lr=0.1"),
        "belongs to its step",
        "no such direction",
        "--along step",
        error=2,
        files=lambda: Path("p.py").write_text(PROBLEM),
    ),
    _row("the state of another model", "must have one entry per parameter", "1 entries", along={"state": {}, "param_groups": [{"params": [0], "lr": 0.1, "momentum": 0, "dampening": 0, "nesterov": False}]}),
    Row("unknown along", command("landscape", "p.py:make", "--along", "hills"), "hills", "eigenvectors", "checkpoints", error=2, flags=True),
]  # fmt: skip
