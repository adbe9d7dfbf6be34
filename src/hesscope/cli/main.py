"""From a command line to an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import tyro
from rich.console import Console

from ..errors import HesscopeError
from .commands.analyze import Analyze
from .commands.blocks import Blocks
from .commands.bound import BoundCommand
from .commands.check import Check
from .commands.compare import Compare
from .commands.decouple import Decouple
from .commands.demo import Demo
from .commands.plan import Plan
from .commands.report import Report, Show
from .commands.reproduce import Reproduce
from .commands.spectrum import SpectrumCommand
from .commands.theory import Theory
from .notes import warnings_as_notes
from .progress import Bars

COMMANDS: dict[str, type[Any]] = {
    "analyze": Analyze,
    "spectrum": SpectrumCommand,
    "blocks": Blocks,
    "decouple": Decouple,
    "bound": BoundCommand,
    "plan": Plan,
    "check": Check,
    "theory": Theory,
    "reproduce": Reproduce,
    "compare": Compare,
    "report": Report,
    "show": Show,
    "demo": Demo,
}
STOPPED = 130


def parse(arguments: Sequence[str] | None) -> Any:
    """The command object that these arguments describe; exits with 2 and a message when they describe none."""
    union: Any = None
    for name, command in COMMANDS.items():
        choice: Any = Annotated[command, tyro.conf.subcommand(name)]
        union = choice if union is None else union | choice
    config = (tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
    return tyro.cli(
        union,
        prog="hesscope",
        description="Compute, explain and predict the Hessian of neural networks.",
        args=arguments,
        config=config,
    )


def run(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, print; errors on purpose become one line and exit code 2."""
    try:
        command = parse(arguments)
    except SystemExit as leave:
        return int(leave.code or 0)
    errors = Console(stderr=True, highlight=False)
    as_json = bool(getattr(command, "json", False))
    try:
        with warnings_as_notes(errors), Bars(errors, visible=not as_json) as bars:
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
        return 2
    print(answer.json() if as_json else answer.text())
    return 0 if answer.ok else 1
