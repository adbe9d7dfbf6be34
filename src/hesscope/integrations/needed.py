"""The package that an integration is for, or a refusal that names the extra."""

from __future__ import annotations

import importlib
from types import ModuleType

from ..errors import refuse


def package(name: str, extra: str) -> ModuleType:
    """The package, imported."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        refuse(
            f"this callback needs the package {name.partition('.')[0]}",
            f"{error}",
            f"Install it: pip install 'hesscope[{extra}]'.",
        )
