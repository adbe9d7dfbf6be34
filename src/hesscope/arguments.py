"""Numbers and arrays as they are given: read, or refused by name (NumPy only)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import refuse

Array = npt.NDArray[np.float64]


def as_float(value: Any) -> float | None:
    """The number; None where it is none, as a text is none even when it reads "3"."""
    if value is None or isinstance(value, str | bytes | bool | np.bool_ | complex | np.complexfloating):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        return None


def is_count(value: Any, least: int) -> bool:
    """Whether this is an integer of at least `least`; True and 3.0 are not."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= least)


def need_count(name: str, value: Any, least: int = 1, do: str = "Pass a whole number.") -> int:
    """`value` as an integer of at least `least`."""
    if not is_count(value, least):
        refuse(f"{name} must be an integer >= {least}", shown(value), do)
    return int(value)


def need_flag(name: str, value: Any) -> bool:
    """`value`, which is True or False and no text that reads like one."""
    if not isinstance(value, bool | np.bool_):
        refuse(f"{name} must be True or False", shown(value), f"Pass {name}=True or {name}=False.")
    return bool(value)


def need_call(name: str, value: Any, do: str) -> None:
    """Refuse what cannot be called; None is no call at all."""
    if value is not None and not callable(value):
        refuse(f"{name} must be a function or None", shown(value), do)


def shown(value: Any) -> str:
    """Numbers and texts as they are written, everything else by its type."""
    plain = value is None or isinstance(value, str | bool | int | float | np.generic)
    return repr(value.item() if isinstance(value, np.generic) else value) if plain else type(value).__name__


def listed(names: Iterable[str], most: int = 5) -> str:
    """The first few of many names, for a message."""
    every = list(names)
    return ", ".join(every[:most]) + (", ..." if len(every) > most else "")


def real_array(name: str, value: Any, do: str = "Pass a NumPy array or nested lists.") -> Array:
    """`value` as float64; a text, an imaginary part and a tensor with a graph are refused, never dropped."""
    found = _raw(value)
    if found is not None and np.iscomplexobj(found):
        refuse(f"{name} must be real", "complex numbers", "Pass the real part if that is meant.")
    if found is None or found.dtype.kind not in "biuf":
        refuse(f"{name} must be an array of numbers", shown(value), do)
    return np.asarray(found, dtype=np.float64)


def _raw(value: Any) -> npt.NDArray[Any] | None:
    """What NumPy makes of it; None where it makes nothing, as of a ragged list or a tensor with a graph."""
    try:
        found = np.asarray(value)
        # A list of 0-d tensors, for example, is an array of objects that still are numbers.
        return np.asarray(found, dtype=np.float64) if found.dtype.kind == "O" and value is not None else found
    except (TypeError, ValueError, RuntimeError):
        return None
