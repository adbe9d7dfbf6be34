"""The command `hesscope`: thin, its flags are the fields of frozen dataclasses, its work is done by the library."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code: 0, 1 (a claim or check failed), 2 (bad input), 130 (stopped)."""
    from .command_line import run

    return run(arguments)
