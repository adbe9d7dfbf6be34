"""Where a problem comes from: a function in the user's own file, a Hugging Face folder, or a preset."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from ..errors import HesscopeError, refuse
from ..missing_data import stand_ins

if TYPE_CHECKING:
    from ..curvature import Problem


@dataclass(frozen=True)
class Source:
    """Which problem to look at."""

    source: tyro.conf.Positional[str | None] = None
    """file.py:make_problem, a function without arguments that returns a Problem (or a dict of them along training);
    file.py:make_problem@weights.pt evaluates it at other weights: a state dict (.pt, .pth, .bin), a Lightning .ckpt, a
    .safetensors, an .npz, a folder of Hugging Face; or a folder of such checkpoints along training. hf:FOLDER is a Hugging
    Face checkpoint on --text."""
    preset: str | None = None
    """A ready-made problem instead: mlp-digits and cnn-digits are embedded, lenet-cifar and gpt-shakespeare read
    --data-dir."""
    data_dir: Path | None = None
    """Folder with real data for presets (default: $HESSCOPE_DATA)."""
    stand_in: bool = False
    """Synthetic data where a preset's own are not at hand; the report says so."""
    text: Path | None = None
    """For hf:FOLDER: a text file (or token numbers, .npy or .npz) that the model predicts."""
    length: int | None = None
    """For hf:FOLDER: tokens in a sequence (default: 128, or the positions of the model)."""
    sequences: int = 32
    """For hf:FOLDER: how many sequences, spread evenly over the text."""

    def load(self) -> Loaded:
        """The problem, after running the user's file or training the preset."""
        if (self.source is None) == (self.preset is None):
            refuse(
                "give either file.py:make_problem or --preset NAME",
                "both" if self.source else "neither",
                "Try --preset mlp-digits.",
            )
        if self.preset is not None:
            if self.text is not None:
                refuse("--text belongs to hf:FOLDER", f"--preset {self.preset}", "Presets bring their own data.")
            return from_preset(self.preset, self.data_dir, self.stand_in or None)
        assert self.source is not None
        if self.source.startswith("hf:"):
            return from_folder(self.source.removeprefix("hf:"), self.text, self.length, self.sequences)
        if self.text is not None:
            refuse("--text belongs to hf:FOLDER", f"{self.source!r}", "Or read the text in make_problem.")
        return from_text(self.source)


@dataclass(frozen=True)
class SourceAndFolder(Source):
    """Which problem to look at, and where to write what is found."""

    out: Path = Path("hesscope-out")
    """Folder for what is found: results, tables and figures."""
    json: bool = False
    """Print JSON for machines."""


@dataclass(frozen=True)
class Loaded:
    """A problem with its name and, where there are any, its checkpoints along training."""

    problem: Problem
    title: str
    source: str
    checkpoints: Mapping[str, Problem] | None = None
    optimizer: Any = None  # what trained it, where that is known


def from_preset(name: str, data_dir: Path | None = None, stand_in: bool | None = None) -> Loaded:
    """Train a preset."""
    from ..zoo.presets import preset

    with stand_ins(stand_in):
        trained = preset(name, data_dir)
    return Loaded(trained.problem, trained.title, f"preset {name}", trained.checkpoints, trained.optimizer)


def from_folder(folder: str, text: Path | None, length: int | None = None, sequences: int = 32) -> Loaded:
    """A Hugging Face checkpoint in a local folder, on the text of a file."""
    if text is None:
        refuse("hf:FOLDER needs data", "no --text", "Pass --text FILE, text or token numbers (.npy, .npz).")
    from ..huggingface import problem_of

    problem = problem_of(folder, text, length=length, sequences=sequences)
    name = Path(folder).resolve().name
    return Loaded(problem, f"{type(problem.model).__name__} of {name}", f"hf:{name} on {text.name}")


def from_text(text: str) -> Loaded:
    """`file.py:function` or `file.py:function@checkpoint`."""
    place, _, weights = text.partition("@")
    file, colon, function = place.rpartition(":")
    if not colon or not file.endswith(".py") or not function.isidentifier():
        refuse("a problem is written file.py:function", f"{text!r}", "For example model.py:make_problem.")
    made = _call(Path(file), function)
    optimizer = None
    if isinstance(made, tuple) and len(made) == 2:
        made, optimizer = made
    checkpoints: dict[str, Problem] | None = None
    if isinstance(made, Mapping) and made:
        checkpoints = {str(label): _problem(text, problem) for label, problem in made.items()}
        made = list(checkpoints.values())[-1]
    problem = _problem(text, made)
    if weights:
        from ..curvature.models.checkpoint_files import holds_one

        at = Path(weights)
        if at.is_dir() and not holds_one(at):
            checkpoints = problem.along(at)
            problem = list(checkpoints.values())[-1]
        else:
            problem, checkpoints = problem.at(at), None
    title = f"{type(problem.model).__name__} of {Path(file).name}"
    return Loaded(problem, title, f"{Path(file).name}:{function}", checkpoints, optimizer)


def _call(file: Path, name: str) -> Any:
    if not file.is_file():
        refuse("the file of a problem must exist", f"{str(file)!r}", "Check the path.")
    spec = importlib.util.spec_from_file_location(f"hesscope_user_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Last, so that the file can import its neighbours but none of them can take the place of a library.
    sys.path.append(str(file.resolve().parent))
    sys.modules[spec.name] = module
    loader = spec.loader
    _guard(file, "the file must run", lambda: loader.exec_module(module))
    function = getattr(module, name, None)
    if not callable(function):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        refuse(f"{file.name} must define {name}()", "no such function", f"It has: {', '.join(known) or 'none'}.")
    return _guard(file, f"{name}() must run without arguments", function)


def _guard(file: Path, must: str, work: Callable[[], Any]) -> Any:
    try:
        return work()
    except HesscopeError:
        raise
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if Path(frame.filename).name == file.name]
        where = f" at line {lines[-1]}" if lines else ""
        refuse(
            must, f"{type(error).__name__}: {error}{where} of {file.name}", "Set HESSCOPE_DEBUG=1 for the traceback."
        )


def _problem(text: str, value: Any) -> Problem:
    from ..curvature import Problem

    if not isinstance(value, Problem):
        refuse(
            f"{text} must return a hesscope.Problem (or a dict of them)",
            f"{type(value).__name__}",
            "End it with `return hs.Problem.of(model, loss, data)`.",
        )
    return value
