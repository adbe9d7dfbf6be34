"""Synthetic data in place of missing files: only where it was asked for, and written down where it was used."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from .errors import refuse

ALLOWING = "HESSCOPE_STAND_IN"
_allowed: ContextVar[bool | None] = ContextVar("allowed", default=None)
_used: ContextVar[list[str] | None] = ContextVar("used", default=None)


@contextmanager
def stand_ins(allowed: bool | None = True) -> Iterator[list[str]]:
    """Inside, missing data are replaced by synthetic ones (or refused, for False); gives the list of what was replaced.

    For None the environment decides: $HESSCOPE_STAND_IN=1 allows them everywhere.
    """
    used: list[str] = []
    tokens = _allowed.set(allowed), _used.set(used)
    try:
        yield used
    finally:
        _allowed.reset(tokens[0])
        _used.reset(tokens[1])


def note_stand_in(what: str, files: tuple[str, ...], where: str | os.PathLike[str] | None) -> None:
    """Called before a stand-in is made; refuses unless it was asked for."""
    chosen = _allowed.get()
    if not (os.environ.get(ALLOWING, "") not in ("", "0") if chosen is None else chosen):
        place = f"no {' and '.join(files)} in {str(where)!r}" if where is not None else "no data folder"
        refuse(
            f"{what} must be at hand",
            place,
            "Name their folder with --data-dir or $HESSCOPE_DATA, or ask for synthetic data in their place: --stand-in, "
            "`with hesscope.zoo.stand_ins():`.",
        )
    used = _used.get()
    if used is not None and what not in used:
        used.append(what)
