"""`--set name=value` for the fields of a config dataclass."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from ..errors import refuse


def with_overrides(config: Any, settings: Sequence[str]) -> Any:
    """The config with some fields changed; a value must be of the kind that the field holds. Tuples: a,b,c."""
    known = {field.name: getattr(config, field.name) for field in fields(config)}
    changes = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or name not in known:
            refuse("--set takes name=value of a setting", f"{setting!r}", f"There are: {', '.join(known)}.")
        changes[name] = _value(name, text, known[name])
    return replace(config, **changes)


def _value(name: str, text: str, old: Any) -> Any:
    if isinstance(old, tuple):
        return tuple(_value(name, part, old[0] if old else part) for part in text.split(",") if part)
    if isinstance(old, str) or old is None:
        return text
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = text
    if isinstance(old, float) and type(value) is int:
        value = float(value)
    if type(value) is not type(old):
        refuse(f"{name} must be of type {type(old).__name__}", f"{text!r}", f"It was {old!r}.")
    return value
