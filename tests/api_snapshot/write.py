"""The public names of Hesscope with their signatures, as text: `python tests/api_snapshot/write.py` writes it down."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

SNAPSHOT = Path(__file__).with_name("public.txt")
SPACES = (
    "hesscope",
    "hesscope.closed_form",
    "hesscope.errors",
    "hesscope.experiments",
    "hesscope.huggingface",
    "hesscope.pacbayes",
    "hesscope.plots",
    "hesscope.report",
    "hesscope.rmt",
    "hesscope.rmt.block_law",
    "hesscope.rmt.block_limits",
    "hesscope.testing",
    "hesscope.zoo",
)


def public_api() -> str:
    """One line for each public name, and one for each public member of a class."""
    return "\n".join(line for space in SPACES for line in _lines(space)) + "\n"


def _lines(space: str) -> list[str]:
    module = _find(space)
    names = getattr(module, "__all__", None) or [name for name in dir(module) if not name.startswith("_")]
    found = []
    for name in sorted(names):
        value = getattr(module, name)
        home = str(getattr(value, "__module__", module.__name__))
        borrowed = not hasattr(module, "__path__") and home != module.__name__
        if isinstance(value, ModuleType) or not _ours(value) or borrowed:
            continue
        found.append(f"{space}.{name}{_signature(value)}")
        if inspect.isclass(value):
            found += [f"{space}.{name}.{line}" for line in _members(value)]
    return found


def _find(space: str) -> ModuleType:
    module = importlib.import_module("hesscope")
    for part in space.split(".")[1:]:
        try:
            module = getattr(module, part)
        except AttributeError:
            module = importlib.import_module(f"{module.__name__}.{part}")
    return module


def _ours(value: Any) -> bool:
    return str(getattr(value, "__module__", "hesscope")).split(".")[0] == "hesscope"


def _members(kind: type) -> list[str]:
    lines = []
    for name in sorted(n for n in dir(kind) if not n.startswith("_")):
        member = inspect.getattr_static(kind, name)
        if isinstance(member, staticmethod | classmethod):
            member = member.__func__
        callable_ = inspect.isfunction(member)
        if callable_ and not _ours(member):
            continue
        lines.append(f"{name}{_signature(member)}" if callable_ else name)
    return lines


def _signature(value: Any) -> str:
    if not callable(value):
        return ""
    try:
        text = str(inspect.signature(value))
    except (TypeError, ValueError):
        return "(...)"
    return re.sub(r" at 0x[0-9a-f]+", "", text).replace("'", "")


if __name__ == "__main__":
    SNAPSHOT.write_text(public_api())
