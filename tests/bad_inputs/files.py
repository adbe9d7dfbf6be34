"""Files that are damaged, foreign or not there, and folders that hold what is the user's own."""

from __future__ import annotations

import importlib
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .given import NAN, hessian, hs, large, network, problem
from .row import Row

report: Any = importlib.import_module("hesscope.report")
base: Any = importlib.import_module("hesscope.experiments.base")


class Trap:
    """Writes a file when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("open('trap', 'w').write('run')",)


def saved() -> None:
    """A result in order: `found.json` and `found.npz`."""
    hs.eigenpairs(hessian(), 2).save("found")


def _with_json(text: str) -> Any:
    def write() -> None:
        saved()
        Path("found.json").write_text(text)

    return write


def _with_result(**body: Any) -> Any:
    return _with_json(json.dumps({"format": 1, "result": body}))


def truncated() -> None:
    saved()
    Path("found.json").write_text(Path("found.json").read_text()[:-60])


def _truncated_arrays() -> None:
    saved()
    whole = Path("found.npz").read_bytes()
    Path("found.npz").write_bytes(whole[: len(whole) // 2])


def _without_arrays() -> None:
    saved()
    Path("found.npz").unlink()


def pickled_arrays() -> None:
    saved()
    np.savez("found.npz", a0=np.array([Trap()], dtype=object))


def _pickle() -> None:
    saved()
    Path("found.npz").write_bytes(pickle.dumps(Trap()))


def _foreign_arrays() -> None:
    saved()
    np.savez("found.npz", weights=np.ones(3))


def _paths_in_archive() -> None:
    saved()
    with zipfile.ZipFile("found.npz", "a") as archive:
        archive.writestr("../outside.npy", b"x")


def binary() -> None:
    Path("found.json").write_bytes(bytes(range(256)))
    np.savez("found.npz", a0=np.ones(2))


def thesis() -> None:
    """A folder of the user's own."""
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("three years of work")
    Path("mine/notes").mkdir()
    Path("mine/notes/1.txt").write_text("remember this")


def a_file() -> None:
    Path("mine").write_text("not a folder")


def _foreign_header() -> None:
    thesis()
    Path("mine/belongs-to.json").write_text('"someone else"')


def _other_run() -> None:
    hs.eigenpairs(large(), 3, resume="mine")


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


def _load() -> Any:
    return hs.Result.load("found")


def _config(**changes: Any) -> Any:
    return hs.analyze(problem(), report.AnalyzeConfig(**changes))


def _mnist() -> None:
    Path("mine").mkdir()
    for part in ("train", "t10k"):
        for kind in ("images-idx3", "labels-idx1"):
            Path(f"mine/{part}-{kind}-ubyte.gz").write_bytes(b"not gzip")


def _cifar() -> None:
    Path("mine").mkdir()
    np.savez("mine/cifar10_10k_2k.npz", pictures=np.ones(3))


CLAIM = {"statement": "s", "source": "s", "expected": "e", "got": "g", "holds": True}

ROWS = [
    Row("load-missing", lambda: hs.Result.load("nowhere"), "result file must exist", "nowhere", "path"),
    Row("load-folder", lambda: hs.Result.load("mine"), "result file must exist", "mine", r"\w", files=thesis),
    Row("load-number", lambda: hs.Result.load(3), "path", "3|int", r"\w"),
    Row("load-none", lambda: hs.Result.load(None), "path", "None", r"\w"),
    Row("load-truncated", _load, "complete JSON", r"'found\.json'", "truncated", files=truncated),
    Row("load-empty", _load, "complete JSON", r"'found\.json'", "truncated", files=_with_json("")),
    Row("load-binary", _load, "complete JSON", r"'found\.json'", r"\w", files=binary),
    Row("load-list", _load, "must have format", r"'found\.json'", "Hesscope", files=_with_json("[]")),
    Row("load-other-format", _load, "must have format", r"'found\.json'", "Hesscope", files=_with_json('{"format": 99}')),
    Row("load-no-result", _load, "describe a known result", "'found'", "Hesscope", files=_with_json('{"format": 1}')),
    Row("load-deep", _load, "nest|describe|JSON", "found", r"\w", files=_with_json('{"format": 1, "result": ' + "[" * 100_000 + "]" * 100_000 + "}")),
    Row("load-unknown-kind", _load, "describe a known result", "'os.system'", "Hesscope", files=_with_result(**{"$kind": "os.system", "fields": {}})),
    Row("load-missing-field", _load, "describe a known result", "'found'", "Hesscope", files=_with_result(**{"$kind": "Claim", "fields": {}})),
    Row("load-missing-array", _load, "describe a known result", "a9", "Hesscope", files=_with_result(**{"$array": "a9"})),
    Row("load-no-arrays", _load, r"needs its \.npz", r"found\.npz", "together", files=_without_arrays),
    Row("load-truncated-arrays", _load, r"\.npz of a result must", r"'found\.npz'", "again", files=_truncated_arrays),
    Row("load-pickled-arrays", _load, "pickled objects are never loaded", r"'found\.npz'", "again", files=pickled_arrays),
    Row("load-pickle", _load, "pickled objects are never loaded", r"'found\.npz'", "again", files=_pickle),
    Row("load-foreign-arrays", _load, "describe a known result|only a0.npy", "a0|weights", r"\w", files=_foreign_arrays),
    Row("load-paths-in-archive", lambda: report.load_result("found.json"), "holds only a0.npy", r"'\.\./outside\.npy'", "nothing was unpacked", files=_paths_in_archive),
    Row("load-other-class", lambda: hs.Plan.load("found"), "expected a Plan", "Eigenpairs in 'found'", r"Result\.load", files=saved),
    Row("load-wrong-extension", lambda: hs.Result.load("notes.txt"), "result file must exist|result file", r"notes\.txt", r"\w", files=lambda: Path("notes.txt").write_text("hello")),
    Row("save-below-a-file", lambda: hs.eigenpairs(hessian(), 2).save("mine/found"), "folder", "mine", r"\w", files=a_file),
    Row("save-onto-a-folder", lambda: hs.eigenpairs(hessian(), 2).save("mine"), "folder|file", "mine", r"\w", files=lambda: [thesis(), Path("mine.json").mkdir()]),
    Row("save-unwritable", lambda: hs.eigenpairs(hessian(), 2).save("/proc/hesscope/found"), "write|folder", "/proc/hesscope", r"\w"),
    Row("save-none", lambda: hs.eigenpairs(hessian(), 2).save(None), "path", "None", r"\w"),
    Row("save-object", lambda: base.Outcome("n", {}, {"x": np.array([Trap()])}, ()).save("found"), "plain numbers", "object", "Convert"),
    Row("save-set", lambda: base.Outcome("n", {}, {"x": {1, 2}}, ()).save("found"), "a result holds numbers", "set", r"\w"),
    Row("resume-file", lambda: hs.eigenpairs(large(), 3, resume="mine"), "resume.*folder", "mine", r"\w", files=a_file),
    Row("resume-number", lambda: hs.eigenpairs(large(), 3, resume=3), "resume", "3|int", r"\w"),
    Row("resume-foreign", lambda: hs.eigenpairs(large(), 3, resume="mine"), "resume.*folder", "mine|thesis", r"\w", files=thesis),
    Row("resume-unwritable", lambda: hs.eigenpairs(large(), 3, resume="/proc/hesscope"), "resume|folder|write", "/proc/hesscope", r"\w"),
    Row("resume-other-arguments", lambda: hs.eigenpairs(large(), 4, resume="mine"), "same arguments", "4", "another folder", files=_other_run),
    Row("resume-other-algorithm", lambda: hs.spectral_density(large(), 2, 20, resume="mine"), "same algorithm", "spectral_density", "another folder", files=_other_run),
    Row("resume-other-operator", lambda: hs.eigenpairs(2.0 * large(), 3, resume="mine"), "same operator", "Sum", "another folder", files=_other_run),
    Row("resume-damaged-header", lambda: hs.eigenpairs(large(), 3, resume="mine"), "header of a run must be complete", "damaged", "Delete", files=_damaged_header),
    Row("resume-damaged-state", lambda: hs.eigenpairs(large(), 3, resume="mine"), "state of a run must be complete", "damaged", "Delete", files=_damaged_state),
    Row("resume-lost-vectors", lambda: hs.eigenpairs(large(), 3, resume="mine"), "state of a run must be complete", "missing", "Delete", files=_lost_vectors),
    Row("resume-density-file", lambda: hs.spectral_density(large(), 2, 20, resume="mine"), "resume.*folder", "mine", r"\w", files=a_file),
    Row("resume-density-foreign", lambda: hs.spectral_density(large(), 2, 20, resume="mine"), "resume.*folder", "mine|thesis", r"\w", files=thesis),
    Row("analyze-resume-foreign", lambda: hs.analyze(problem(), resume="mine"), "resume.*folder", "mine|thesis", r"\w", files=thesis),
    Row("analyze-resume-foreign-header", lambda: hs.analyze(problem(), resume="mine"), "resume", "mine|thesis", r"\w", files=_foreign_header),
    Row("analyze-resume-file", lambda: hs.analyze(problem(), resume="mine"), "resume.*folder", "mine", r"\w", files=a_file),
    Row("analyze-operator", lambda: hs.analyze(hessian()), "Problem", "Hessian", r"\w"),
    Row("analyze-config-dict", lambda: hs.analyze(problem(), {"k": 5}), "config must be", "dict", "AnalyzeConfig"),
    Row("analyze-k-small", lambda: _config(k=2), "k must be >= 3", "k=2", "20"),
    Row("analyze-k-text", lambda: _config(k="ten"), "k must be", "ten", r"\w"),
    Row("analyze-smallest-zero", lambda: _config(smallest=0), "smallest >= 1", "smallest=0", "3"),
    Row("analyze-tol-nan", lambda: _config(tol=NAN), "tol must be > 0", "nan", r"\w"),
    Row("analyze-trace-tol-zero", lambda: _config(trace_tol=0.0, check=False, block_maps=False), "tol.* must be > 0", r"0\.0", r"\w"),
    Row("analyze-probes-zero", lambda: _config(probes=0, check=False, block_maps=False), "probes.* must be", "0", r"\w"),
    Row("analyze-steps-zero", lambda: _config(steps=0, check=False, block_maps=False), "steps must be", "0", r"\w"),
    Row("analyze-decouple-negative", lambda: _config(decouple=-1, check=False, block_maps=False), "decouple must be", "-1", r"\w"),
    Row("analyze-seed-text", lambda: _config(seed="x", check=False), "seed must be", "'x'", r"\w"),
    Row("analyze-checkpoints-list", lambda: hs.analyze(problem(), report.AnalyzeConfig(check=False, block_maps=False), checkpoints=[problem()]), "checkpoints must be", "list", r"\w"),
    Row("analyze-checkpoints-models", lambda: hs.analyze(problem(), report.AnalyzeConfig(check=False, block_maps=False), checkpoints={"0": network()}), "checkpoint|Problem", "Sequential", r"\w"),
    Row("analyze-watch-number", lambda: hs.analyze(problem(), report.AnalyzeConfig(check=False, block_maps=False), watch=3), "watch must be", "3|int", r"\w"),
    Row("report-nothing", lambda: report.write_report({}, "page.html"), "at least one result", "none", "analyze"),
    Row("report-no-result", lambda: report.write_report({"a": 3}, "page.html"), "result", "int|3", r"\w"),
    Row("report-onto-a-folder", lambda: report.write_report(hs.eigenpairs(hessian(), 2), "mine"), "file|folder", "mine", r"\w", files=thesis),
    Row("report-below-a-file", lambda: report.write_report(hs.eigenpairs(hessian(), 2), "mine/page.html"), "folder", "mine", r"\w", files=a_file),
    Row("zoo-damaged-mnist", lambda: hs.zoo.load("mnist", folder="mine"), "mnist|data file", "train-", r"\w", files=_mnist),
    Row("zoo-foreign-cifar", lambda: hs.zoo.load("cifar10", folder="mine"), "cifar10|data file", "cifar10_10k_2k.npz|x_train", r"\w", files=_cifar),
    Row("zoo-folder-is-a-file", lambda: hs.zoo.load("mnist", folder="mine"), "data folder must exist", "'mine'", "HESSCOPE_DATA", files=a_file),
    Row("state-as-weights", lambda: problem().at(torch.load("mine", weights_only=True)), "parameter", "'epoch'", r"0\.weight", files=lambda: torch.save({"epoch": torch.ones(1)}, "mine")),
]
