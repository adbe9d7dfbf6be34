"""The centre of the prior: the weights at initialisation, which must not have seen the training data."""

from __future__ import annotations

import os
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...arguments import shown
from ...curvature import Problem
from ...errors import refuse
from ...operators.tensors import tensor_of

Init = Mapping[str, Any] | str | os.PathLike[str]


def prior_centre(problem: Problem, init: Init | None) -> dict[str, Tensor]:
    """The problem's parameters at initialisation, by name, from a mapping (a state_dict) or a file."""
    if init is None:
        refuse(
            "a PAC-Bayes bound needs the weights at initialisation as the centre of its prior",
            "none",
            "Keep a copy of model.state_dict() before training and pass it as init.",
        )
    if not isinstance(init, Mapping | str | os.PathLike):
        refuse("init must be weights by name, or a file of them", shown(init), "Pass model.state_dict().")
    given = init if isinstance(init, Mapping) else read_weights(init)
    found = {}
    for name, weight in problem.parameters.items():
        if name not in given:
            refuse("init must hold every parameter", f"none for {name!r}", "Pass the whole state_dict.")
        value = _real(name, given[name])
        if value.shape != weight.shape:
            refuse(
                f"init[{name!r}] must have shape {tuple(weight.shape)}", f"{tuple(value.shape)}", "Is it another model?"
            )
        if not bool(torch.isfinite(value).all()):
            refuse("initial weights must be finite", f"nan or infinity in {name!r}", "Check the file.")
        found[name] = value.to(weight)
    if all(torch.equal(found[name], weight) for name, weight in problem.parameters.items()):
        refuse(
            "the prior must not depend on the training data",
            "a prior centred at the trained weights themselves",
            "Pass the weights from before training; or train a prior on a part of the data and bound on the rest.",
        )
    return found


def _real(name: str, value: Any) -> Tensor:
    """One parameter's initial values."""
    try:
        found = tensor_of(value).detach()
    except (TypeError, ValueError, RuntimeError):
        refuse(f"init[{name!r}] must be a tensor or an array", shown(value), "Pass model.state_dict().")
    if found.is_complex():
        refuse(f"init[{name!r}] must be real", str(found.dtype).removeprefix("torch."), "Is it another model?")
    return found


def read_weights(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Named weights from an `.npz` of plain arrays or a torch file of tensors; code in a file is never run."""
    place = Path(path)
    if not place.is_file():
        refuse("the file of initial weights must exist", f"{str(place)!r}", "Check the path.")
    try:
        if place.suffix == ".npz":
            with open(place, "rb") as file, np.load(file, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
        loaded = torch.load(place, map_location="cpu", weights_only=True)
    except (OSError, ValueError, EOFError, RuntimeError, pickle.UnpicklingError, KeyError, zipfile.BadZipFile) as error:
        refuse(
            "initial weights must be an .npz of arrays or a torch file of tensors",
            f"{place.name!r} ({type(error).__name__})",
            "Write them with numpy.savez or torch.save(model.state_dict(), path).",
        )
    if not isinstance(loaded, Mapping):
        refuse("a torch file of weights must hold a state_dict", f"{type(loaded).__name__}", "Save the state_dict.")
    return dict(loaded)
