"""Errors that teach: what must hold; what was given; what to do."""

from __future__ import annotations

from typing import NoReturn


class HesscopeError(Exception):
    """Base of every error Hesscope raises on purpose."""


class InputError(HesscopeError, ValueError):
    """An argument, a file or a model that cannot be used as given."""


class FileError(InputError):
    """A file or folder that cannot be written, read, shared or taken over; nothing in it was changed."""


class DerivativeError(HesscopeError, RuntimeError):
    """A second derivative that does not exist, or that failed its check."""


class BudgetExceeded(HesscopeError, RuntimeError):
    """The caller's budget of products ran out before the tolerance was met."""


def refuse(must: str, given: str, do: str, error: type[InputError] = InputError) -> NoReturn:
    """Raise an InputError of the form "what must hold; what was given; what to do"."""
    raise error(f"{must}; got {given}. {do}")
