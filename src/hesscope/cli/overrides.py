"""`--set name=value` for the fields of a config dataclass."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import fields, replace
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from ..errors import refuse


def with_overrides(config: Any, settings: Sequence[str]) -> Any:
    """The config with some fields changed; a value must be of the kind that the field is declared as.

    Tuples: a,b,c, and of tuples (a,b),(c,d). Where a field may be None, `None` makes it that.
    """
    known = {field.name: getattr(config, field.name) for field in fields(config)}
    kinds = get_type_hints(type(config))
    changes = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or name not in known:
            refuse("--set takes name=value of a setting", f"{setting!r}", f"There are: {', '.join(known)}.")
        value = _read(text, kinds[name])
        if not _is_of(value, kinds[name]):
            refuse(f"{name} must be of type {_words(kinds[name])}", f"{text!r}", f"It was {known[name]!r}.")
        changes[name] = value
    return replace(config, **changes)


def _read(text: str, kind: Any) -> Any:
    """The value as the declared kind would have it; what cannot be read stays a text, for `_is_of` to refuse."""
    choices = _choices(kind)
    if NoneType in choices and text == "None":
        return None
    chosen = next(one for one in choices if one is not NoneType)
    if chosen is str:
        return text
    if get_origin(chosen) is tuple and get_origin(_items(chosen)) is not tuple:
        return tuple(_read(part, _items(chosen)) for part in text.split(",") if part)
    try:
        # A comma makes one tuple of tuples a tuple of them: (1,2) as well as (1,2),(3,4).
        value = ast.literal_eval(f"({text},)" if get_origin(chosen) is tuple else text)
    except (ValueError, SyntaxError):
        return text
    return _as_declared(value, chosen)


def _as_declared(value: Any, kind: Any) -> Any:
    """Whole numbers where decimal ones are declared become those, also inside tuples."""
    if kind is float and type(value) is int:
        return float(value)
    if get_origin(kind) is tuple and isinstance(value, tuple):
        return tuple(_as_declared(one, _items(kind)) for one in value)
    return value


def _is_of(value: Any, kind: Any) -> bool:
    for one in _choices(kind):
        if get_origin(one) is not tuple:
            if type(value) is one:
                return True
        elif isinstance(value, tuple) and all(_is_of(item, _items(one)) for item in value):
            return Ellipsis in get_args(one) or len(value) == len(get_args(one))
    return False


def _choices(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _items(kind: Any) -> Any:
    """What a tuple holds; those of experiments hold one kind of thing."""
    return get_args(kind)[0]


def _words(kind: Any) -> str:
    """As the annotation is written: int, `int | None`, `tuple[float, ...]`."""
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
