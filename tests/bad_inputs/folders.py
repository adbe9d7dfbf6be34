"""Folders that hold what is the user's own, runs that cannot go on, and analyses that cannot begin."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hesscope.errors import FileError

from .files import a_file, thesis
from .given import NAN, hessian, hs, large, network, problem
from .row import Row

report: Any = importlib.import_module("hesscope.report")


def _foreign_header() -> None:
    thesis()
    Path("mine/belongs-to.json").write_text('"someone else"')


def _again(k: int = 1, **settings: Any) -> Any:
    """A short run that keeps its state in `mine`."""
    return hs.eigenpairs(large(), k, tol=0.3, **{"resume": "mine", **settings})


def _other_run() -> None:
    _again()


def _damaged_header() -> None:
    _other_run()
    for header in Path("mine").glob("header-*.json"):
        header.write_text("{")


def _damaged_state() -> None:
    _other_run()
    for state in Path("mine").glob("state-*.npz"):
        state.write_bytes(b"PK")


def _lost_vectors() -> None:
    _other_run()
    for vector in Path("mine").glob("vector-*.npy"):
        vector.unlink()


def _config(**changes: Any) -> Any:
    """An analysis of little more than eigenvalues."""
    return hs.analyze(problem(), _cheap(**changes))


def _cheap(**changes: Any) -> Any:
    return report.AnalyzeConfig(**{"check": False, "block_maps": False, "decouple": 0, **changes})


def _mnist() -> None:
    Path("mine").mkdir()
    for part in ("train", "t10k"):
        for kind in ("images-idx3", "labels-idx1"):
            Path(f"mine/{part}-{kind}-ubyte.gz").write_bytes(b"not gzip")


def _cifar() -> None:
    Path("mine").mkdir()
    np.savez("mine/cifar10_10k_2k.npz", pictures=np.ones(3))


ROWS = [
    Row("resume-file", lambda: _again(), "folder", "mine", r"\w", files=a_file, error=FileError),
    Row("resume-number", lambda: hs.eigenpairs(large(), 3, resume=3), "resume", "3|int", r"\w"),
    Row("resume-norms-number", lambda: hs.block_norms(problem(), "layer", resume=3), "resume", "3|int", r"\w"),
    Row("resume-factors-number", lambda: hs.decouple(problem(), "0", resume=3), "resume", "3|int", r"\w"),
    Row("resume-foreign", lambda: _again(), "folder", "mine|thesis", r"\w", files=thesis, error=FileError),
    Row(
        "resume-unwritable",
        lambda: hs.eigenpairs(large(), 3, resume="/proc/hesscope"),
        "writ|folder",
        "/proc/hesscope",
        r"\w",
        error=FileError,
    ),
    Row(
        "resume-other-arguments",
        lambda: hs.eigenpairs(large(), 4, resume="mine"),
        "same arguments",
        "4",
        "another folder",
        files=_other_run,
        error=FileError,
    ),
    Row(
        "resume-other-algorithm",
        lambda: hs.spectral_density(large(), 2, steps=20, resume="mine"),
        "same algorithm",
        "spectral_density",
        "another folder",
        files=_other_run,
        error=FileError,
    ),
    Row(
        "resume-other-operator",
        lambda: hs.eigenpairs(2.0 * large(), 3, resume="mine"),
        "same operator",
        "Sum",
        "another folder",
        files=_other_run,
        error=FileError,
    ),
    Row(
        "resume-damaged-header",
        lambda: _again(),
        "header of a run must be complete",
        "damaged",
        "Delete",
        files=_damaged_header,
        error=FileError,
    ),
    Row(
        "resume-damaged-state",
        lambda: _again(),
        "state of a run must be complete",
        "damaged",
        "Delete",
        files=_damaged_state,
        error=FileError,
    ),
    Row(
        "resume-lost-vectors",
        lambda: _again(),
        "state of a run must be complete",
        "missing",
        "Delete",
        files=_lost_vectors,
        error=FileError,
    ),
    Row(
        "resume-density-file",
        lambda: hs.spectral_density(large(), 2, steps=20, resume="mine"),
        "folder",
        "mine",
        r"\w",
        files=a_file,
        error=FileError,
    ),
    Row(
        "resume-density-foreign",
        lambda: hs.spectral_density(large(), 2, steps=20, resume="mine"),
        "folder",
        "mine|thesis",
        r"\w",
        files=thesis,
        error=FileError,
    ),
    Row(
        "analyze-resume-foreign",
        lambda: hs.analyze(problem(), _cheap(), resume="mine"),
        "folder",
        "mine|thesis",
        r"\w",
        files=thesis,
        error=FileError,
    ),
    Row(
        "analyze-resume-foreign-header",
        lambda: hs.analyze(problem(), _cheap(), resume="mine"),
        "folder",
        "mine|thesis",
        r"\w",
        files=_foreign_header,
        error=FileError,
    ),
    Row(
        "analyze-resume-file",
        lambda: hs.analyze(problem(), _cheap(), resume="mine"),
        "folder",
        "mine",
        r"\w",
        files=a_file,
        error=FileError,
    ),
    Row("analyze-operator", lambda: hs.analyze(hessian()), "Problem", "Hessian", r"\w"),
    Row("analyze-config-dict", lambda: hs.analyze(problem(), {"k": 5}), "config must be", "dict", "AnalyzeConfig"),
    Row("analyze-k-small", lambda: _config(k=2), "k must be >= 3", "k=2", "20"),
    Row(
        "analyze-budget-words",
        lambda: hs.analyze(problem(), budget="five minutes"),
        "a budget must be a time",
        "five",
        "'5m'",
    ),
    Row(
        "analyze-budget-unit",
        lambda: hs.analyze(problem(), budget="5 parsecs"),
        "a budget must be a time",
        "parsecs",
        "'5m'",
    ),
    Row(
        "analyze-budget-dots",
        lambda: hs.analyze(problem(), budget="5.5.5m"),
        "a budget must be a time",
        "5.5.5",
        "'5m'",
    ),
    Row("analyze-budget-zero", lambda: hs.analyze(problem(), budget=0), "a budget must be a time", "0", "'5m'"),
    Row("analyze-budget-nan", lambda: hs.analyze(problem(), budget=NAN), "a budget must be a time", "nan", "'5m'"),
    Row(
        "analyze-on-plan-text", lambda: hs.analyze(problem(), on_plan="print"), "on_plan must be a function", "'print'"
    ),
    Row("analyze-probes-text", lambda: _config(probes="x"), "probes must be", "'x'", r"\w"),
    Row("analyze-k-text", lambda: _config(k="ten"), "k must be", "ten", r"\w"),
    Row("analyze-smallest-zero", lambda: _config(smallest=0), "smallest >= 1", "smallest=0", "3"),
    Row("analyze-tol-nan", lambda: _config(tol=NAN), "tol must be > 0", "nan", r"\w"),
    Row(
        "analyze-trace-tol-zero",
        lambda: _config(trace_tol=0.0),
        "tol.* must be > 0",
        r"0\.0",
        r"\w",
    ),
    Row("analyze-probes-zero", lambda: _config(probes=0), "probes.* must be", "0", r"\w"),
    Row("analyze-steps-zero", lambda: _config(steps=0), "steps must be", "0", r"\w"),
    Row(
        "analyze-decouple-negative",
        lambda: _config(decouple=-1),
        "decouple must be",
        "-1",
        r"\w",
    ),
    Row("analyze-seed-text", lambda: _config(seed="x"), "seed must be", "'x'", r"\w"),
    Row(
        "analyze-checkpoints-list",
        lambda: hs.analyze(problem(), _cheap(), checkpoints=[problem()]),
        "checkpoints must be",
        "list",
        r"\w",
    ),
    Row(
        "analyze-checkpoints-of-another-network",
        lambda: hs.analyze(problem(), _cheap(), checkpoints={"end": problem().select("0.*")}),
        "checkpoints must have the parameters",
        "'end'",
        r"problem\.at",
    ),
    Row(
        "analyze-checkpoints-models",
        lambda: hs.analyze(problem(), _cheap(), checkpoints={"0": network()}),
        "checkpoint|Problem",
        "Sequential",
        r"\w",
    ),
    Row(
        "analyze-watch-number",
        lambda: hs.analyze(problem(), _cheap(), watch=3),
        "watch must be",
        "3|int",
        r"\w",
    ),
    Row("report-nothing", lambda: report.write_report({}, "page.html"), "at least one result", "none", "analyze"),
    Row("report-no-result", lambda: report.write_report({"a": 3}, "page.html"), "result", "int|3", r"\w"),
    Row(
        "report-onto-a-folder",
        lambda: report.write_report(hs.eigenpairs(hessian(), 2), "mine"),
        "file|folder",
        "mine",
        r"\w",
        files=thesis,
        error=FileError,
    ),
    Row(
        "report-below-a-file",
        lambda: report.write_report(hs.eigenpairs(hessian(), 2), "mine/page.html"),
        "writ|folder",
        "mine",
        r"\w",
        files=a_file,
        error=FileError,
    ),
    Row(
        "zoo-damaged-mnist",
        lambda: hs.zoo.load("mnist", folder="mine"),
        "mnist|data file",
        "train-",
        r"\w",
        files=_mnist,
    ),
    Row(
        "zoo-foreign-cifar",
        lambda: hs.zoo.load("cifar10", folder="mine"),
        "cifar10|data file",
        "cifar10_10k_2k.npz|x_train",
        r"\w",
        files=_cifar,
    ),
    Row(
        "zoo-folder-is-a-file",
        lambda: hs.zoo.load("mnist", folder="mine"),
        "data folder must exist",
        "'mine'",
        "HESSCOPE_DATA",
        files=a_file,
    ),
    Row(
        "state-as-weights",
        lambda: problem().at(torch.load("mine", weights_only=True)),
        "parameter",
        "'epoch'",
        r"0\.weight",
        files=lambda: torch.save({"epoch": torch.ones(1)}, "mine"),
    ),
]
