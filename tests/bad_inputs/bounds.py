"""Bounds for problems that have none, from weights that are not those before training."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hesscope.errors import FileError

from .files import Trap, a_file, thesis
from .given import NAN, data, function_loss, hessian, hs, inputs, labels, network, of, problem
from .row import Row

pac = hs.pacbayes
WEIGHTS = "initial weights must be"


@cache
def _before() -> dict[str, torch.Tensor]:
    return dict(network(seed=5).state_dict())


def _optimize(init: Any = None, **settings: Any) -> Any:
    """One cheap epoch where nothing is wrong."""
    usual = {"method": "base", "epochs": 1, "batch_draws": 2, "draws": 2}
    return pac.optimize(problem(), _before() if init is None else init, **{**usual, **settings})


def _damaged_npz() -> None:
    np.savez("before.npz", **{name: weight.numpy() for name, weight in _before().items()})
    whole = Path("before.npz").read_bytes()
    Path("before.npz").write_bytes(whole[: len(whole) // 2])


ROWS = [
    Row("init-none", lambda: pac.optimize(problem(), None), "weights at initialisation", "none", "state_dict"),
    Row("init-missing-file", lambda: _optimize("nowhere.npz"), "must exist", "'nowhere.npz'", "path"),
    Row("init-damaged", lambda: _optimize("before.npz"), WEIGHTS, "'before.npz'", "numpy.savez", files=_damaged_npz),
    Row(
        "init-empty-file",
        lambda: _optimize("before.npz"),
        WEIGHTS,
        "'before.npz'",
        "numpy.savez",
        files=lambda: Path("before.npz").write_bytes(b""),
    ),
    Row(
        "init-text",
        lambda: _optimize("before.pt"),
        WEIGHTS,
        "'before.pt'",
        "torch.save",
        files=lambda: Path("before.pt").write_text("weights"),
    ),
    Row(
        "init-pickle",
        lambda: _optimize("before.pt"),
        WEIGHTS,
        "'before.pt'",
        "torch.save",
        files=lambda: torch.save(Trap(), "before.pt"),
    ),
    Row(
        "init-pickled-arrays",
        lambda: _optimize("before.npz"),
        WEIGHTS,
        "'before.npz'",
        "numpy.savez",
        files=lambda: np.savez("before.npz", a=np.array([Trap()], dtype=object)),
    ),
    Row(
        "init-no-dict",
        lambda: _optimize("before.pt"),
        "must hold a state_dict",
        "Tensor",
        "state_dict",
        files=lambda: torch.save(torch.ones(3), "before.pt"),
    ),
    Row("init-folder", lambda: _optimize("mine"), "must exist", "'mine'", "path", files=thesis),
    Row("init-number", lambda: _optimize(3), "init must be", "3|int", "state_dict"),
    Row("init-model", lambda: _optimize(network(5)), "init must be", "Sequential", r"state_dict"),
    Row("init-list", lambda: _optimize([torch.ones(3)]), "init must be", "list", "state_dict"),
    Row(
        "init-incomplete",
        lambda: _optimize({"0.weight": torch.ones(5, 4)}),
        "init must hold every parameter",
        "'0.bias'",
        "state_dict",
    ),
    Row(
        "init-other-model",
        lambda: _optimize({**_before(), "0.weight": torch.ones(3, 3)}),
        r"init\['0.weight'\] must have shape \(5, 4\)",
        r"\(3, 3\)",
        "another model",
    ),
    Row(
        "init-nan",
        lambda: _optimize({**_before(), "0.weight": torch.full((5, 4), NAN)}),
        "initial weights must be finite",
        r"0\.weight",
        r"\w",
    ),
    Row(
        "init-strings",
        lambda: _optimize({**_before(), "0.weight": "random"}),
        r"init\['0.weight'\]",
        "'random'|str",
        r"\w",
    ),
    Row(
        "init-complex",
        lambda: _optimize({**_before(), "0.weight": torch.ones(5, 4, dtype=torch.complex64)}),
        r"init\['0.weight'\].*real|real",
        "complex64",
        r"\w",
    ),
    Row(
        "init-trained",
        lambda: _optimize(problem().parameters),
        "must not depend on the training data",
        "trained weights",
        "before training",
    ),
    Row("method-unknown", lambda: _optimize(method="best"), "method must be known", "'best'", "local"),
    Row("setting-unknown", lambda: _optimize(epoch=3), "fields of hs.pacbayes.Settings", "'epoch'", "epochs"),
    Row(
        "settings-dict",
        lambda: pac.optimize(problem(), _before(), "base", {"epochs": 1}),
        "settings must be",
        "dict",
        "Settings",
    ),
    Row("delta-zero", lambda: _optimize(delta=0.0), "delta must lie strictly between 0 and 1", r"0\.0", "probability"),
    Row(
        "delta-one",
        lambda: _optimize(delta_mc=1.0),
        "delta_mc must lie strictly between 0 and 1",
        r"1\.0",
        "probability",
    ),
    Row(
        "delta-text", lambda: _optimize(delta="5 %"), "delta must lie strictly between 0 and 1", "'5 %'", "probability"
    ),
    Row("deltas-sum", lambda: _optimize(delta=0.6, delta_mc=0.6), r"delta \+ delta_mc must be below 1", r"1\.2", r"\w"),
    Row("epochs-zero", lambda: _optimize(epochs=0), "epochs must be", "0", "Settings"),
    Row("epochs-fraction", lambda: _optimize(epochs=1.5), "epochs must be", r"1\.5", "Settings"),
    Row("epochs-text", lambda: _optimize(epochs="many"), "epochs must be", "'many'", "Settings"),
    Row("batch-size-fraction", lambda: _optimize(batch_size=2.5), "batch_size must be", r"2\.5", "Settings"),
    Row("draws-nan", lambda: _optimize(draws=NAN), "draws must be", "nan", "Settings"),
    Row("rate-negative", lambda: _optimize(rate=-1.0), "learning rates must be positive", r"-1\.0", "1e-3"),
    Row("rate-nan", lambda: _optimize(scale_rate=NAN), "learning rates must be positive", "nan", "1e-3"),
    Row("newton-rate-zero", lambda: _optimize(newton_rate=0.0), "learning rates must be positive", r"0\.0", "1e-3"),
    Row("precision-zero", lambda: _optimize(precision=0.0), "precision and ceiling must be positive", r"0\.0", r"\w"),
    Row("ceiling-nan", lambda: _optimize(ceiling=NAN), "precision and ceiling must be positive", "nan", r"\w"),
    Row("seed-text", lambda: _optimize(seed="x"), "seed must be an integer", "'x'", r"\w"),
    Row("bound-operator", lambda: pac.optimize(hessian(), _before()), "Problem", "Hessian", r"\w"),
    Row(
        "bound-regression",
        lambda: pac.optimize(of(loss="mse", batch=(inputs(), torch.zeros(12, 3))), _before()),
        "classification error",
        "another loss",
        "cross_entropy",
    ),
    Row(
        "bound-function",
        lambda: pac.optimize(of(loss=function_loss), _before()),
        "classification error",
        "another loss",
        "cross_entropy",
    ),
    Row("bound-test-arrays", lambda: _optimize(test=(inputs().numpy(), labels().numpy())), "tensor", "ndarray", r"\w"),
    Row("bound-test-number", lambda: _optimize(test=3), "data must be", "int", r"\(inputs, targets\)"),
    Row("bound-watch-number", lambda: _optimize(watch=3), "watch must be", "3|int", r"\w"),
    Row("bound-resume-file", lambda: _optimize(resume="mine"), "folder", "mine", r"\w", files=a_file, error=FileError),
    Row(
        "bound-resume-foreign",
        lambda: _optimize(resume="mine"),
        "folder",
        "mine|thesis",
        r"\w",
        files=thesis,
        error=FileError,
    ),
    Row("split-zero", lambda: pac.split(problem(), 0), "examples on both sides of 12", "0", "half"),
    Row("split-all", lambda: pac.split(problem(), 12), "examples on both sides of 12", "12", "half"),
    Row("split-fraction", lambda: pac.split(problem(), 2.5), "examples on both sides|count", r"2\.5", r"\w"),
    Row("split-text", lambda: pac.split(problem(), "half"), "examples on both sides|count", "'half'", r"\w"),
    Row("split-data", lambda: pac.split(data(), 3), "Problem", "tuple", r"\w"),
    Row("settings-check-text", lambda: pac.Settings(refresh="often").check(), "refresh must be", "'often'", "Settings"),
]
