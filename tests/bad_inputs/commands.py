"""Command lines with flags, files and folders that cannot be used as given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .files import Trap, a_file, binary, pickled_arrays, saved, thesis, truncated
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


def _and(*writers: Callable[[], object]) -> Callable[[], None]:
    def write() -> None:
        user()
        for writer in writers:
            writer()

    return write


def _text(text: str) -> Callable[[], object]:
    return lambda: Path("mine.py").write_text(text)


def _cli(name: str, arguments: str, must: str, got: str, do: str = r"\w", **changes: Any) -> Row:
    """A command line that ends with exit code 2 and one line."""
    return Row(name, command(*arguments.split()), must, got, do, **{"error": 2, "files": user, **changes})


def _flag(name: str, arguments: str, must: str, got: str) -> Row:
    """A command line that its parser refuses, and says where help is."""
    return _cli(name, arguments, must, got, "--help", flags=True)


def _weights(**arrays: Any) -> Callable[[], None]:
    return _and(lambda: np.savez("w.npz", **arrays))


def _half_weights() -> None:
    np.savez("w.npz", a=np.ones(50))
    Path("w.npz").write_bytes(Path("w.npz").read_bytes()[:100])


def _before() -> None:
    torch.save({**network(5).state_dict(), "0.weight": torch.ones(2, 2)}, "before.pt")


OUT = "folder|--out|file"

ROWS = [
    _flag("nothing", "", "Missing subcommand", "spectrum"),
    _flag("command-unknown", "hessian", "Unrecognized", "hessian"),
    _flag("flag-unknown", "spectrum mine.py:make --top 3", "Unrecognized", "--top"),
    _flag("flag-text", "spectrum mine.py:make --k ten", "--k", "'ten'"),
    _flag("flag-fraction", "spectrum mine.py:make --k 2.5", "--k", r"'2\.5'"),
    _flag("flag-no-value", "spectrum mine.py:make --k", "--k", "INT|expected|Missing"),
    _flag("matrix-unknown", "spectrum mine.py:make --matrix hess", "--matrix", "'hess'"),
    _flag("blocks-unknown", "blocks mine.py:make --by row", "--by", "'row'"),
    _flag("algorithm-unknown", "plan mine.py:make --algorithm svd", "--algorithm", "'svd'"),
    _flag("formats-unknown", "analyze mine.py:make --formats jpg", "--formats", "'jpg'"),
    _flag("bound-method-unknown", "bound mine.py:make --method best", "--method", "'best'"),
    _flag("size-unknown", "reproduce liao2021.fig1 --size large", "--size", "'large'"),
    _flag("theory-unknown", "theory gpt", "blocks", "gpt"),
    _flag("theory-case-unknown", "theory blocks --case conv", "--case", "'conv'"),
    _flag("compare-one", "compare mine.py:make", "compare", "required|Missing"),
    _flag("show-nothing", "show", "Missing", "PATH"),
    _cli("source-none", "check", "either file.py:make_problem or --preset", "neither", "mlp-digits"),
    _cli("source-both", "check mine.py:make --preset mlp-digits", "either file.py:make_problem or --preset", "both", "mlp-digits"),
    _cli("source-missing", "check other.py:make", "file of a problem must exist", "'other.py'", "path"),
    _cli("source-no-function", "check mine.py", "written file.py:function", "'mine.py'", "make_problem"),
    _cli("source-no-python", "check mine.txt:make", "written file.py:function", "'mine.txt:make'", "make_problem"),
    _cli("source-no-name", "check mine.py:3", "written file.py:function", "'mine.py:3'", "make_problem"),
    _cli("source-folder", "check mine.py:make", "file of a problem must exist", "'mine.py'", "path", files=lambda: Path("mine.py").mkdir()),
    _cli("source-syntax", "check mine.py:make", "file must run", "SyntaxError", "HESSCOPE_DEBUG", files=_text("def make(:\n")),
    _cli("source-bytes", "check mine.py:make", "file must run", "SyntaxError", "HESSCOPE_DEBUG", files=lambda: Path("mine.py").write_bytes(b"x = '\xff'\n")),
    _cli("source-import", "check mine.py:make", "file must run", "ModuleNotFoundError.*line 1", "HESSCOPE_DEBUG", files=_text("import nowhere_at_all\n")),
    _cli("source-exits", "check mine.py:make", "file must run", "SystemExit", r"\w", files=_text("import sys\nsys.exit(3)\n")),
    _cli("source-empty", "check mine.py:make", r"must define make\(\)", "no such function", "none", files=_text("")),
    _cli("function-missing", "check mine.py:problem", r"must define problem\(\)", "no such function", "make, model"),
    _cli("function-number", "check mine.py:number", r"must define number\(\)", r"\w", "make, model"),
    _cli("function-raises", "check mine.py:raises", r"raises\(\) must run", "KeyError: 'data' at line", "HESSCOPE_DEBUG"),
    _cli("function-exits", "check mine.py:leaves", r"leaves\(\) must run", "SystemExit", r"\w"),
    _cli("function-wants", "check mine.py:wants", r"wants\(\) must run without arguments", "TypeError", r"\w"),
    _cli("function-refuses", "check mine.py:refuses", "a loss name must be known", "'cross'", "cross_entropy"),
    _cli("function-gives-model", "check mine.py:model", r"must return a hesscope\.Problem", "Linear", r"Problem\.of"),
    _cli("function-gives-nothing", "check mine.py:nothing", r"must return a hesscope\.Problem", "NoneType", r"Problem\.of"),
    _cli("function-gives-mixed", "check mine.py:several", r"must return a hesscope\.Problem", "int", r"Problem\.of"),
    _cli("function-gives-empty", "check mine.py:empty", r"must return a hesscope\.Problem", "dict", r"Problem\.of"),
    _cli("weights-missing", "check mine.py:make@w.npz", "weights must be an .npz", r"w\.npz", "numpy.savez"),
    _cli("weights-name", "check mine.py:make@w.npz", "a parameter of the same shape", "'fc'", r"0\.weight", files=_weights(fc=np.ones(3))),
    _cli("weights-shape", "check mine.py:make@w.npz", "a parameter of the same shape", r"'0\.weight' with shape \(3,\)", r"0\.weight", files=_weights(**{"0.weight": np.ones(3)})),
    _cli("weights-nan", "check mine.py:make@w.npz", "finite", r"0\.bias", r"\w", files=_weights(**{"0.bias": np.full(5, np.nan)})),
    _cli("weights-empty", "check mine.py:make@w.npz", "weights must", "w.npz|none", r"\w", files=_weights()),
    _cli("weights-pickled", "check mine.py:make@w.npz", "weights must be an .npz of plain arrays", r"w\.npz", "numpy.savez", files=_weights(a=np.array([Trap()], dtype=object))),
    _cli("weights-truncated", "check mine.py:make@w.npz", "weights must be an .npz of plain arrays", r"w\.npz", "numpy.savez", files=_and(_half_weights)),
    _cli("weights-text", "check mine.py:make@w.npz", "weights must be an .npz of plain arrays", r"w\.npz", "numpy.savez", files=_and(lambda: Path("w.npz").write_text("weights"))),
    _cli("weights-one-array", "check mine.py:make@w.npy", "weights must be an .npz of plain arrays", r"w\.npy", "numpy.savez", files=_and(lambda: np.save("w.npy", np.ones(3)))),
    _cli("preset-unknown", "check --preset resnet", "a preset must be known", "'resnet'", "mlp-digits"),
    _cli("preset-data-dir", "check --preset lenet-cifar --data-dir nowhere", "data folder must exist", "'nowhere'", "--data-dir"),
    _cli("k-zero", "spectrum mine.py:make --k 0", "k must be", "k=0", r"\w"),
    _cli("k-negative", "spectrum mine.py:make --k -3", "k must be", "k=-3", r"\w"),
    _cli("tol-zero", "spectrum mine.py:make --tol 0", "tol must be > 0", "tol=0", "1e-3"),
    _cli("tol-nan", "spectrum mine.py:make --tol nan", "tol must be > 0", "tol=nan", "1e-3"),
    _cli("probes-zero", "spectrum mine.py:make --probes 0", "probes.* must be", "0", r"\w"),
    _cli("steps-negative", "spectrum mine.py:make --steps -5", "steps must be", "-5", r"\w"),
    _cli("params-unknown", "spectrum mine.py:make --params fc*", "match at least one parameter", r"'fc\*'", r"0\.weight"),
    _cli("spectrum-out-file", "spectrum mine.py:make --out mine", OUT, "mine", r"\w", files=_and(a_file)),
    _cli("spectrum-out-foreign-state", "spectrum mine.py:make --k 3 --out .", "resume|folder|state", "spectrum-state", r"\w", files=_and(lambda: Path("spectrum-state").write_text("mine"))),
    _cli("blocks-out-file", "blocks mine.py:make --out mine", OUT, "mine", r"\w", files=_and(a_file)),
    _cli("blocks-out-unwritable", "blocks mine.py:make --out /proc/hesscope", "folder|write", "/proc/hesscope", r"\w"),
    _cli("blocks-no-heads", "blocks mine.py:make --by head", "needs attention modules", "Sequential without", "num_heads"),
    _cli("decouple-layer", "decouple mine.py:make --layer fc", "layer must be a module of the model", "'fc'", "Layers here: 0, 2"),
    _cli("decouple-k-zero", "decouple mine.py:make --k 0", "k must", "k=0", r"\w"),
    _cli("decouple-out-file", "decouple mine.py:make --k 2 --out mine", OUT, "mine", r"\w", files=_and(a_file)),
    _cli("plan-k-zero", "plan mine.py:make --k 0", "k must be", "0", r"\w"),
    _cli("analyze-k-small", "analyze mine.py:make --k 2", "k must be >= 3", "k=2", "20"),
    _cli("analyze-out-file", "analyze mine.py:make --out mine", OUT, "mine", r"\w", files=_and(a_file)),
    _cli("analyze-out-foreign-state", "analyze mine.py:make --out .", "resume|folder|state", "state|thesis", r"\w", files=_and(thesis, lambda: Path("mine").rename("state"))),
    _cli("bound-no-init", "bound mine.py:make", "weights at initialisation", "none", "state_dict"),
    _cli("bound-init-missing", "bound mine.py:make --init before.npz", "initial weights must exist", "'before.npz'", "path"),
    _cli("bound-init-other", "bound mine.py:make --init before.pt", r"init\['0.weight'\] must have shape", r"\(2, 2\)", "another model", files=_and(_before)),
    _cli("bound-init-pickle", "bound mine.py:make --init before.pt", "initial weights must be", "'before.pt'", "torch.save", files=_and(lambda: torch.save(Trap(), "before.pt"))),
    _cli("bound-epochs-zero", "bound mine.py:make --init before.pt --epochs 0", "epochs must be", "0", "Settings"),
    _cli("bound-delta-one", "bound mine.py:make --init before.pt --delta 1", "delta must lie strictly between 0 and 1", r"1\.0", "probability"),
    _cli("theory-one-class", "theory blocks --classes 1", "classes must be an integer", "1", r"\w"),
    _cli("theory-no-classes", "theory blocks --classes", "classes", "none|empty|no ", r"\w"),
    _cli("theory-ratio", "theory blocks --ratio -1", "ratio = d/N", r"-1\.0", r"\w"),
    _cli("theory-hidden", "theory blocks --case hidden-mse --hidden 2", "hidden must be an integer", "2", "measure"),
    _cli("theory-glm-ratio", "theory glm --ratio 0", "ratio = p/n", r"0\.0", "0.25"),
    _cli("theory-glm-nan", "theory glm --w nan", "finite", "nan|w", r"\w"),
    _cli("theory-linear-width", "theory linear --width 0", "width", "0", r"\w"),
    _cli("theory-linear-width-negative", "theory linear --width -3", "width", "-3", r"\w"),
    _cli("theory-linear-examples", "theory linear --examples 0", "examples", "0", r"\w"),
    _cli("theory-relu-examples", "theory relu --examples -1", "examples", "-1", r"\w"),
    _cli("theory-attention-head", "theory attention --head-size 0", "head.size", "0", r"\w"),
    _cli("theory-attention-length", "theory attention --length 0", "length", "0", r"\w"),
    _cli("theory-attention-sequences", "theory attention --sequences -1", "sequences", "-1", r"\w"),
    _cli("theory-out-file", "theory --out mine linear", OUT, "mine", r"\w", files=_and(a_file)),
    _cli("reproduce-nothing", "reproduce", "name an experiment", "none", "--list"),
    _cli("reproduce-unknown", "reproduce liao2021.fig99", "an experiment must be one of", "'liao2021.fig99'", r"liao2021\.fig1"),
    _cli("reproduce-data-dir", "reproduce liao2021.fig1 --data-dir nowhere", "data folder must exist", "'nowhere'", "--data-dir"),
    _cli("reproduce-set-unknown", "reproduce liao2021.fig1 --set colour=red", "--set takes name=value", "'colour=red'", "There are"),
    _cli("reproduce-set-no-value", "reproduce liao2021.fig1 --set seed", "--set takes name=value", "'seed'", "There are"),
    _cli("reproduce-set-type", "reproduce liao2021.fig1 --set seed=first", "seed must be of type int", "'first'", r"\w"),
    _cli("reproduce-out-file", "reproduce liao2021.fig1 --out mine", OUT, "mine", r"\w", files=_and(a_file)),
    _cli("compare-missing", "compare a.json b.json", "result file must exist", r"'a\.json'", r"\w"),
    _cli("compare-other-kind", "compare found.json found.json", "two analyses", r"Eigenpairs in 'found\.json'", "hesscope analyze", files=saved),
    _cli("compare-neither", "compare mlp resnet", "a preset must be known", "'mlp'", "mlp-digits"),
    _cli("compare-k-zero", "compare mine.py:make mine.py:make --k 0", "k must be", "0", r"\w"),
    _cli("report-nothing", "report", "at least one result", "nothing", "hesscope analyze"),
    _cli("report-empty-folder", "report .", "at least one result", r"\.", "hesscope analyze"),
    _cli("report-missing", "report found.json", "result file must exist", r"'found\.json'", r"\w"),
    _cli("report-truncated", "report found.json", "complete JSON", r"'found\.json'", "truncated", files=truncated),
    _cli("report-out-folder", "report found.json --out mine", "file|folder", "mine", r"\w", files=lambda: [saved(), thesis()]),
    _cli("report-out-below-a-file", "report found.json --out mine/page.html", "file|folder", "mine", r"\w", files=lambda: [saved(), a_file()]),
    _cli("show-missing", "show found.json", "result file must exist", r"'found\.json'", r"\w"),
    _cli("show-folder", "show mine", "result file must exist", "'mine'", r"\w", files=thesis),
    _cli("show-binary", "show found.json", "complete JSON", r"'found\.json'", r"\w", files=binary),
    _cli("show-pickled", "show found.json", "pickled objects are never loaded|only a0.npy", r"found\.npz", r"\w", files=pickled_arrays),
    _cli("show-python", "show mine.py", "result file", r"mine\.py", r"\w"),
    _cli("demo-out-file", "demo --out mine", OUT, "mine", r"\w", files=a_file),
]
