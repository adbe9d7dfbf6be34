"""From a command line to an exit code."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from .._version import __version__
from ..errors import FileError, HesscopeError
from ..files import make_folder, need_own
from ..folders import Lock
from ..result import need_own_result
from .notes import warnings_as_notes
from .progress import ProgressBar

COMMANDS = {
    "analyze": "analyze.Analyze",
    "spectrum": "spectrum.SpectrumCommand",
    "layers": "layers.Layers",
    "blocks": "blocks.Blocks",
    "decouple": "decouple.Decouple",
    "landscape": "landscape.LandscapeCommand",
    "stability": "stability.StabilityCommand",
    "bound": "bound.BoundCommand",
    "plan": "plan.PlanCommand",
    "check": "check.Check",
    "theory": "theory.Theory",
    "reproduce": "reproduce.Reproduce",
    "compare": "compare.Compare",
    "report": "report.Report",
    "show": "report.Show",
    "watch": "watch.Watch",
    "demo": "demo.Demo",
    "doctor": "doctor.Doctor",
}
BAD_INPUT, BAD_FILES, STOPPED = 2, 3, 130


def parse(arguments: Sequence[str] | None) -> Any:
    """The command object that these arguments describe; exits with 2 and a message when they describe none."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    config = (tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
    if given and given[0] in COMMANDS:  # one command without the others: theory then starts without torch
        return tyro.cli(_command(given[0]), prog=f"hesscope {given[0]}", args=given[1:], config=config)
    union: Any = None
    for name in COMMANDS:
        choice: Any = Annotated[_command(name), tyro.conf.subcommand(name)]
        union = choice if union is None else union | choice
    about = "Compute, explain and predict the Hessian of neural networks."
    return tyro.cli(union, prog="hesscope", description=about, args=given, config=config)


def _command(name: str) -> Any:
    module, _, kind = COMMANDS[name].partition(".")
    return getattr(importlib.import_module(f".commands.{module}", __package__), kind)


@contextmanager
def _alone(command: Any) -> Iterator[None]:
    """One run of a command at a time in its output folder; a folder that stays empty is not left behind."""
    out = getattr(command, "out", None)
    if (
        not isinstance(out, Path) or out.suffix == ".html" or getattr(command, "list", False)
    ):  # pages are replaced whole
        yield
        return
    name = "-".join(
        ["hesscope", type(command).__name__.lower(), *([str(command.name)] if hasattr(command, "name") else [])]
    )
    new = make_folder(out)
    try:
        with Lock(out / f".{name}.lock", "an output folder"):
            _need_own(out, getattr(command, "names", ()))
            yield
    finally:
        if new:
            with suppress(OSError):
                out.rmdir()


def _need_own(out: Path, names: Sequence[str]) -> None:
    """Refuse files that are in the way of what a command is going to write, before it computes anything."""
    for path in sorted(found for name in names for found in out.glob(f"{name}.*")):
        if path.suffix in (".json", ".npz"):
            need_own_result(path.with_suffix(""))
        elif path.suffix in (".html", ".png", ".svg", ".pdf"):
            need_own(path)


def run(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, print; errors on purpose become one line and exit code 2, those of files and folders 3."""
    if list(sys.argv[1:] if arguments is None else arguments) == ["--version"]:
        print(f"hesscope {__version__}")
        return 0
    try:
        command = parse(arguments)
    except SystemExit as leave:
        return int(leave.code or 0)
    errors = Console(stderr=True, highlight=False)
    as_json = bool(getattr(command, "json", False))
    try:
        with warnings_as_notes(errors), ProgressBar(errors, visible=not as_json) as bars, _alone(command):
            answer = command.run(bars)
    except KeyboardInterrupt:
        kept = getattr(command, "kept", None)
        go_on = (
            f"What is done is kept in {kept}; run the same command again to go on." if kept else "Nothing was written."
        )
        print(f"Stopped. {go_on}", file=sys.stderr)
        return STOPPED
    except HesscopeError as error:
        if os.environ.get("HESSCOPE_DEBUG"):
            raise
        print(f"hesscope: {error}", file=sys.stderr)
        return BAD_FILES if isinstance(error, FileError) else BAD_INPUT
    except OSError as error:
        if os.environ.get("HESSCOPE_DEBUG"):
            raise
        print(f"hesscope: files must be readable and writable; got {error}. Nothing was removed.", file=sys.stderr)
        return BAD_FILES
    print(answer.json() if as_json else answer.text())
    return 0 if answer.ok else 1
