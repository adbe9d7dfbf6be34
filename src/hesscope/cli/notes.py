"""Warnings as one line each for people, without the source line they came from."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape


@contextmanager
def warnings_as_notes(console: Console) -> Iterator[None]:
    """Print each warning once as `note: ...` above the progress bar."""
    seen: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = str(message)
        if text not in seen:
            seen.add(text)
            console.print(f"note: {escape(text)}", soft_wrap=True)

    with warnings.catch_warnings():
        if not sys.warnoptions:  # what `python -W` says goes
            warnings.simplefilter("default")
        # Deprecations inside libraries are for those who write programs.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        warnings.showwarning = show
        yield
