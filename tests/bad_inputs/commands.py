"""Command lines with flags, files and folders that cannot be used as given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .files import Trap, a_file, thesis, together
from .given import network
from .row import Row, command

PROBLEM = """
import torch, hesscope as hs

def make():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
    return hs.Problem.of(model, "cross_entropy", (torch.randn(12, 4), torch.arange(12) % 3))

def model():
    return torch.nn.Linear(4, 3)

def nothing():
    pass

def several():
    return {"0": make(), "1": 3}

def empty():
    return {}

def raises():
    return {}["data"]

def leaves():
    raise SystemExit("bye")

def wants(folder):
    return make()

def refuses():
    return hs.Problem.of(model(), "cross", (torch.randn(12, 4), torch.arange(12) % 3))

number = 3
"""


def user() -> None:
    """The user's own file."""
    Path("mine.py").write_text(PROBLEM)


def with_user(*writers: Callable[[], object]) -> Callable[[], None]:
    return together(user, *writers)


def _text(text: str) -> Callable[[], object]:
    return lambda: Path("mine.py").write_text(text)


def bad_line(name: str, arguments: str, must: str, got: str, do: str = r"\w", **changes: Any) -> Row:
    """A command line that ends with exit code 2 and one line."""
    return Row(name, command(*arguments.split()), must, got, do, **{"error": 2, "files": user, **changes})


def bad_flag(name: str, arguments: str, must: str, got: str) -> Row:
    """A command line that its parser refuses, and says where help is."""
    return bad_line(name, arguments, must, got, "--help", flags=True)


def _weights(**arrays: Any) -> Callable[[], None]:
    return with_user(lambda: np.savez("w.npz", **arrays))


def _half_weights() -> None:
    np.savez("w.npz", a=np.ones(50))
    Path("w.npz").write_bytes(Path("w.npz").read_bytes()[:100])


def _before() -> None:
    torch.save({**network(5).state_dict(), "0.weight": torch.ones(2, 2)}, "before.pt")


OUT = "folder|--out|file"

ROWS = [
    bad_flag("nothing", "", "Missing subcommand", "spectrum"),
    bad_flag("command-unknown", "hessian", "Unrecognized", "hessian"),
    bad_flag("flag-unknown", "spectrum mine.py:make --top 3", "Unrecognized", "--top"),
    bad_flag("flag-text", "spectrum mine.py:make --k ten", "--k", "'ten'"),
    bad_flag("flag-fraction", "spectrum mine.py:make --k 2.5", "--k", r"'2\.5'"),
    bad_flag("flag-no-value", "spectrum mine.py:make --k", "--k", "INT|expected|Missing"),
    bad_flag("matrix-unknown", "spectrum mine.py:make --matrix hess", "--matrix", "'hess'"),
    bad_flag("blocks-unknown", "blocks mine.py:make --by row", "--by", "'row'"),
    bad_flag("algorithm-unknown", "plan mine.py:make --algorithm svd", "--algorithm", "'svd'"),
    bad_flag("formats-unknown", "analyze mine.py:make --formats jpg", "--formats", "'jpg'"),
    bad_flag("bound-method-unknown", "bound mine.py:make --method best", "--method", "'best'"),
    bad_flag("size-unknown", "reproduce liao2021.fig1 --size large", "--size", "'large'"),
    bad_line("source-none", "check", "either file.py:make_problem or --preset", "neither", "mlp-digits"),
    bad_line(
        "source-both",
        "check mine.py:make --preset mlp-digits",
        "either file.py:make_problem or --preset",
        "both",
        "mlp-digits",
    ),
    bad_line("source-missing", "check other.py:make", "file of a problem must exist", "'other.py'", "path"),
    bad_line("source-no-function", "check mine.py", "written file.py:function", "'mine.py'", "make_problem"),
    bad_line("source-no-python", "check mine.txt:make", "written file.py:function", "'mine.txt:make'", "make_problem"),
    bad_line("source-no-name", "check mine.py:3", "written file.py:function", "'mine.py:3'", "make_problem"),
    bad_line(
        "source-folder",
        "check mine.py:make",
        "file of a problem must exist",
        "'mine.py'",
        "path",
        files=lambda: Path("mine.py").mkdir(),
    ),
    bad_line(
        "source-syntax",
        "check mine.py:make",
        "file must run",
        "SyntaxError",
        "HESSCOPE_DEBUG",
        files=_text("def make(:\n"),
    ),
    bad_line(
        "source-bytes",
        "check mine.py:make",
        "file must run",
        "SyntaxError",
        "HESSCOPE_DEBUG",
        files=lambda: Path("mine.py").write_bytes(b"x = '\xff'\n"),
    ),
    bad_line(
        "source-import",
        "check mine.py:make",
        "file must run",
        "ModuleNotFoundError.*line 1",
        "HESSCOPE_DEBUG",
        files=_text("import nowhere_at_all\n"),
    ),
    bad_line(
        "source-exits",
        "check mine.py:make",
        "file must run",
        "SystemExit",
        r"\w",
        files=_text("import sys\nsys.exit(3)\n"),
    ),
    bad_line(
        "source-empty", "check mine.py:make", r"must define make\(\)", "no such function", "none", files=_text("")
    ),
    bad_line(
        "function-missing", "check mine.py:problem", r"must define problem\(\)", "no such function", "make, model"
    ),
    bad_line("function-number", "check mine.py:number", r"must define number\(\)", r"\w", "make, model"),
    bad_line(
        "function-raises", "check mine.py:raises", r"raises\(\) must run", "KeyError: 'data' at line", "HESSCOPE_DEBUG"
    ),
    bad_line("function-exits", "check mine.py:leaves", r"leaves\(\) must run", "SystemExit", r"\w"),
    bad_line("function-wants", "check mine.py:wants", r"wants\(\) must run without arguments", "TypeError", r"\w"),
    bad_line("function-refuses", "check mine.py:refuses", "a loss name must be known", "'cross'", "cross_entropy"),
    bad_line(
        "function-gives-model", "check mine.py:model", r"must return a hesscope\.Problem", "Linear", r"Problem\.of"
    ),
    bad_line(
        "function-gives-nothing",
        "check mine.py:nothing",
        r"must return a hesscope\.Problem",
        "NoneType",
        r"Problem\.of",
    ),
    bad_line(
        "function-gives-mixed", "check mine.py:several", r"must return a hesscope\.Problem", "int", r"Problem\.of"
    ),
    bad_line("function-gives-empty", "check mine.py:empty", r"must return a hesscope\.Problem", "dict", r"Problem\.of"),
    bad_line("weights-missing", "plan mine.py:make@w.npz", "weights must be in a file", r"w\.npz", "Check the path"),
    bad_line(
        "weights-name",
        "plan mine.py:make@w.npz",
        "name must be that of a parameter",
        "'fc'",
        r"0\.weight",
        files=_weights(fc=np.ones(3)),
    ),
    bad_line(
        "weights-shape",
        "plan mine.py:make@w.npz",
        r"'0\.weight' must have the shape \(5, 4\)",
        r"\(3,\)",
        "another model",
        files=_weights(**{"0.weight": np.ones(3)}),
    ),
    bad_line(
        "weights-nan",
        "plan mine.py:make@w.npz",
        "finite",
        r"0\.bias",
        r"\w",
        files=_weights(**{"0.bias": np.full(5, np.nan)}),
    ),
    bad_line("weights-empty", "plan mine.py:make@w.npz", "weights must", "w.npz|none", r"\w", files=_weights()),
    bad_line(
        "weights-pickled",
        "plan mine.py:make@w.npz",
        "weights must be an .npz of plain arrays",
        r"w\.npz",
        "numpy.savez",
        files=_weights(a=np.array([Trap()], dtype=object)),
    ),
    bad_line(
        "weights-truncated",
        "plan mine.py:make@w.npz",
        "weights must be an .npz of plain arrays",
        r"w\.npz",
        "numpy.savez",
        files=with_user(_half_weights),
    ),
    bad_line(
        "weights-text",
        "plan mine.py:make@w.npz",
        "weights must be an .npz of plain arrays",
        r"w\.npz",
        "numpy.savez",
        files=with_user(lambda: Path("w.npz").write_text("weights")),
    ),
    bad_line(
        "weights-one-array",
        "plan mine.py:make@w.npy",
        "weights come from one of",
        r"w\.npy",
        "state_dict",
        files=with_user(lambda: np.save("w.npy", np.ones(3))),
    ),
    bad_line("preset-unknown", "check --preset resnet", "a preset must be known", "'resnet'", "mlp-digits"),
    bad_line(
        "preset-data-dir",
        "check --preset lenet-cifar --data-dir nowhere",
        "data folder must exist",
        "'nowhere'",
        "--data-dir",
    ),
    bad_line("k-zero", "spectrum mine.py:make --k 0", "k must be", "k=0", r"\w"),
    bad_line("k-negative", "spectrum mine.py:make --k -3", "k must be", "k=-3", r"\w"),
    bad_line("tol-zero", "spectrum mine.py:make --tol 0", "tol must be > 0", "tol=0", "1e-3"),
    bad_line("tol-nan", "spectrum mine.py:make --tol nan", "tol must be > 0", "tol=nan", "1e-3"),
    bad_line("probes-zero", "spectrum mine.py:make --probes 0", "probes.* must be", "0", r"\w"),
    bad_line("steps-negative", "spectrum mine.py:make --steps -5", "steps must be", "-5", r"\w"),
    bad_line(
        "params-unknown", "spectrum mine.py:make --params fc*", "match at least one parameter", r"'fc\*'", r"0\.weight"
    ),
    bad_line(
        "spectrum-out-file", "spectrum mine.py:make --out mine", OUT, "mine", r"\w", files=with_user(a_file), error=3
    ),
    bad_line(
        "spectrum-out-foreign-state",
        "spectrum mine.py:make --k 3 --out .",
        "resume|folder|state",
        "spectrum-state",
        r"\w",
        files=with_user(lambda: Path("spectrum-state").write_text("mine")),
        error=3,
    ),
    bad_line("blocks-out-file", "blocks mine.py:make --out mine", OUT, "mine", r"\w", files=with_user(a_file), error=3),
    bad_line(
        "blocks-out-unwritable",
        "blocks mine.py:make --out /proc/hesscope",
        "folder|writ",
        "/proc/hesscope",
        r"\w",
        error=3,
    ),
    bad_line(
        "blocks-no-heads", "blocks mine.py:make --by head", "needs attention modules", "Sequential without", "num_heads"
    ),
    bad_line(
        "decouple-layer",
        "decouple mine.py:make --layer fc",
        "layer must be a module of the model",
        "'fc'",
        "Layers here: 0, 2",
    ),
    bad_line("decouple-k-zero", "decouple mine.py:make --k 0", "k must", "k=0", r"\w"),
    bad_line(
        "decouple-out-file",
        "decouple mine.py:make --k 2 --out mine",
        OUT,
        "mine",
        r"\w",
        files=with_user(a_file),
        error=3,
    ),
    bad_line("plan-k-zero", "plan mine.py:make --k 0", "k must be", "0", r"\w"),
    bad_line("analyze-budget", "analyze mine.py:make --budget soon", "a budget must be a time", "'soon'", "5m"),
    bad_line("analyze-k-small", "analyze mine.py:make --k 2", "k must be >= 3", "k=2", "20"),
    bad_line(
        "analyze-out-file", "analyze mine.py:make --out mine", OUT, "mine", r"\w", files=with_user(a_file), error=3
    ),
    bad_line(
        "analyze-out-foreign-state",
        "analyze mine.py:make --out . --no-check --no-block-maps --decouple 0 --formats png",
        "resume|folder|state",
        "state|thesis",
        r"\w",
        files=with_user(thesis, lambda: Path("mine").rename("state")),
        error=3,
    ),
    bad_line("bound-no-init", "bound mine.py:make", "weights at initialisation", "none", "state_dict"),
    bad_line(
        "bound-init-missing",
        "bound mine.py:make --init before.npz",
        "initial weights must exist",
        "'before.npz'",
        "path",
    ),
    bad_line(
        "bound-init-other",
        "bound mine.py:make --init before.pt",
        r"init\['0.weight'\] must have shape",
        r"\(2, 2\)",
        "another model",
        files=with_user(_before),
    ),
    bad_line(
        "bound-init-pickle",
        "bound mine.py:make --init before.pt",
        "initial weights must be",
        "'before.pt'",
        "torch.save",
        files=with_user(lambda: torch.save(Trap(), "before.pt")),
    ),
    bad_line("bound-epochs-zero", "bound mine.py:make --init before.pt --epochs 0", "epochs must be", "0", "Settings"),
    bad_line(
        "bound-delta-one",
        "bound mine.py:make --init before.pt --delta 1",
        "delta must lie strictly between 0 and 1",
        r"1\.0",
        "probability",
    ),
]
