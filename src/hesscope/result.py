"""Frozen results, saved as one `.json` and one `.npz` beside it; no pickle is ever read or written."""

from __future__ import annotations

import importlib
import json
import os
import zipfile
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from ._version import __version__
from .errors import InputError, refuse

FORMAT = 1

# Where results are defined, those that need no torch first. A file can name a result of these, and nothing else.
HOMES = (
    "results.spectra",
    "results.blocks",
    "results.history",
    "results.kronecker",
    "results.checks",
    "results.claims",
    "results.analysis",
    "closed_form",
    "rmt.blocks.limits",
    "pacbayes",
)
_KINDS: dict[str, type[Result]] = {}
_R = TypeVar("_R", bound="Result")


class Result:
    """A frozen dataclass that can be saved and loaded; subclasses register under their class name.

    Fields may be numbers, strings, bools, None, NumPy arrays, torch tensors (loaded back as arrays), tuples, dicts
    with string keys, and other results.
    """

    kind: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.kind = cls.__name__
        _KINDS[cls.kind] = cls

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write `path.json` and `path.npz` (each replaced as a whole, so a crash leaves the old or the new one)."""
        stem = _stem(path)
        arrays: dict[str, np.ndarray[Any, Any]] = {}
        body = {"hesscope": __version__, "format": FORMAT, "result": _encode(self, arrays, "")}
        stem.parent.mkdir(parents=True, exist_ok=True)
        _replace(stem.with_name(stem.name + ".npz"), lambda f: np.savez_compressed(f, allow_pickle=False, **arrays))
        text = json.dumps(body, indent=1, allow_nan=True)
        _replace(stem.with_name(stem.name + ".json"), lambda f: f.write(text.encode()))
        return stem.with_name(stem.name + ".json")

    @classmethod
    def load(cls: type[_R], path: str | os.PathLike[str]) -> _R:
        """Read a result back; refuses damaged files, unknown kinds and anything that would need pickle."""
        stem = _stem(path)
        body = _read_json(stem.with_name(stem.name + ".json"))
        arrays = _read_arrays(stem.with_name(stem.name + ".npz"))
        try:
            result = _decode(body["result"], arrays)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"a result file must describe a known result; got {stem.name!r} ({error}). Was it written by Hesscope?"
            ) from error
        if not isinstance(result, cls):
            refuse(
                f"expected a {cls.__name__}",
                f"{type(result).__name__} in {stem.name!r}",
                "Load it with Result.load.",
            )
        return result


def _stem(path: str | os.PathLike[str]) -> Path:
    stem = Path(path)
    return stem.with_suffix("") if stem.suffix in (".json", ".npz") else stem


def _replace(path: Path, write: Any) -> None:
    partial = path.with_name(path.name + f".partial{os.getpid()}")
    with open(partial, "wb") as handle:
        write(handle)
        handle.flush()
        os.fsync(handle.fileno())
    os.replace(partial, path)


def _encode(value: Any, arrays: dict[str, np.ndarray[Any, Any]], where: str) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return _encode(value.item(), arrays, where)
    if hasattr(value, "detach"):  # a torch tensor, without importing torch
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            refuse(
                "arrays in a result must hold plain numbers or strings",
                f"dtype object at {where!r}",
                "Convert it first.",
            )
        key = f"a{len(arrays)}"
        arrays[key] = value
        return {"$array": key}
    if isinstance(value, tuple | list):
        return {"$tuple": [_encode(item, arrays, f"{where}[{i}]") for i, item in enumerate(value)]}
    if is_dataclass(value) and not isinstance(value, type):
        if type(value).__name__ not in _KINDS:
            return _encode({f.name: getattr(value, f.name) for f in fields(value)}, arrays, where)
        body = {f.name: _encode(getattr(value, f.name), arrays, f"{where}.{f.name}") for f in fields(value)}
        return {"$kind": type(value).__name__, "fields": body}
    if isinstance(value, dict):
        return {"$dict": {str(key): _encode(item, arrays, f"{where}.{key}") for key, item in value.items()}}
    refuse(
        "a result holds numbers, strings, arrays, tuples, dicts and results",
        f"{type(value).__name__} at {where!r}",
        "",
    )


def _decode(value: Any, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if "$array" in value:
        return arrays[value["$array"]]
    if "$tuple" in value:
        return tuple(_decode(item, arrays) for item in value["$tuple"])
    if "$dict" in value:
        return {key: _decode(item, arrays) for key, item in value["$dict"].items()}
    kind = _class_of(value["$kind"])
    return kind(**{key: _decode(item, arrays) for key, item in value["fields"].items()})


def _class_of(kind: str) -> type[Result]:
    for home in HOMES:
        if kind in _KINDS:
            break
        importlib.import_module(f".{home}", __package__)
    if kind not in _KINDS:
        raise ValueError(f"unknown kind {kind!r}")
    return _KINDS[kind]


def _read_json(path: Path) -> dict[str, Any]:
    try:
        body = json.loads(path.read_text())
    except FileNotFoundError:
        refuse("a result file must exist", f"{str(path)!r}", "Check the path.")
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        refuse(
            "a result file must hold complete JSON",
            f"{path.name!r} ({error})",
            "It may be truncated: write it again.",
        )
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        refuse(
            f"a result file must have format {FORMAT}",
            f"{path.name!r} without it",
            "Was it written by Hesscope?",
        )
    return body


def _read_arrays(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        refuse("a result needs its .npz beside the .json", f"no {path.name!r}", "Keep both files together.")
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        refuse(
            "the .npz of a result must hold plain arrays (pickled objects are never loaded)",
            f"{path.name!r} ({error})",
            "Write the result again.",
        )
