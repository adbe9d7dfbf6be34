"""Frozen results, saved as one `.json` and one `.npz` beside it; no pickle is ever read or written."""

from __future__ import annotations

import glob
import importlib
import json
import os
import re
import secrets
import zipfile
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from ._version import __version__
from .errors import InputError, refuse
from .files import file_errors, make_folder, refuse_foreign, remove_dead_partials, replace, sha256
from .folders import Lock
from .tables import Tabular

FORMAT = 1

# Where results are defined, those that need no torch first. A file can name a result of these, and nothing else.
HOMES = (
    "results.spectra",
    "results.blocks",
    "results.history",
    "results.kronecker",
    "results.landscape",
    "results.plan",
    "results.checks",
    "results.layers",
    "results.claims",
    "results.seeds",
    "results.stability",
    "results.monitoring",
    "results.analysis",
    "closed_form",
    "rmt.blocks.limits",
    "rmt.laws.fitting",
    "pacbayes",
)
# Results of before 0.1.0 was released; nothing else can be read from their files.
RETIRED = (
    *("MeasuredSpectrum", "ExtremeValues", "TracePair", "BlockMap", "LayerDecoupling", "TrainingCourse", "LawFit"),
    *("SelfCheck", "Prediction", "Comparison", "Course", "MethodVerdict", "Plan", "Product"),
)
_KINDS: dict[str, type[Result]] = {}
_R = TypeVar("_R", bound="Result")


class Result(Tabular):
    """A frozen dataclass that can be saved and loaded; subclasses register under their class name.

    Fields may be numbers, strings, bools, None, NumPy arrays, torch tensors (loaded back as arrays), tuples, dicts
    with string keys, and other results.
    """

    kind: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.kind = cls.__name__
        if "__repr__" not in cls.__dict__:  # before the dataclass writes one that fills screens with arrays
            cls.__repr__ = Tabular.__repr__  # type: ignore[method-assign]
        _KINDS[cls.kind] = cls

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write `path.json` and `path.npz`, both or neither: a kill at any moment leaves a whole result, old or new.

        Replaces an earlier result of that name, and nothing else.
        """
        stem = _stem(path)
        arrays: dict[str, np.ndarray[Any, Any]] = {}
        encoded = _encode(self, arrays, "")
        make_folder(stem.parent)
        described, final = _described(stem), _arrays(stem)
        with Lock(stem.with_name(f".{stem.name}.lock"), "a result", wait=60.0):
            need_own_result(stem)
            _forget_leftovers(stem)
            # The arrays wait under another name until the .json that names their digest is in place: that one
            # replacement decides which result is the saved one.
            waiting = stem.with_name(f".{stem.name}.{secrets.token_hex(8)}.npz")
            needed = False
            try:
                replace(waiting, lambda f: np.savez_compressed(f, allow_pickle=False, **arrays))
                link = {"sha256": sha256(waiting), "until_moved": waiting.name}
                body = {"hesscope": __version__, "format": FORMAT, "arrays": link, "result": encoded}
                text = json.dumps(body, indent=1, allow_nan=True)
                replace(described, lambda f: f.write(text.encode()))
                needed = True
                with file_errors(final):
                    os.replace(waiting, final)
            finally:
                if not needed:
                    waiting.unlink(missing_ok=True)
        return described

    @classmethod
    def load(cls: type[_R], path: str | os.PathLike[str]) -> _R:
        """Read a result back; refuses damaged files, unknown kinds and anything that would need pickle."""
        stem = _stem(path)
        body = _read_json(_described(stem))
        file = arrays_file(stem)
        arrays = _read_arrays(file)
        if not _belongs(file, stem):
            refuse(
                "the .npz of a result must be the one that was saved with its .json",
                f"{file.name!r}, which is damaged or of another result",
                "Keep both files together, or write the result again.",
            )
        try:
            result = _decode(body["result"], arrays)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
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
    if not isinstance(path, str | os.PathLike):
        refuse("the path of a result must be a text or a Path", f"{path!r}", "For example 'results/spectrum'.")
    stem = Path(path)
    return stem.with_suffix("") if stem.suffix in (".json", ".npz") else stem


def _described(stem: Path) -> Path:
    return stem.with_name(stem.name + ".json")


def _arrays(stem: Path) -> Path:
    return stem.with_name(stem.name + ".npz")


def arrays_file(path: str | os.PathLike[str]) -> Path:
    """The file with the arrays of a saved result: beside its .json, or still under its first name after a kill."""
    stem = _stem(path)
    name = str(_link(stem).get("until_moved", ""))
    waiting = stem.with_name(name) if _is_waiting(name, stem) else None
    return waiting if waiting is not None and waiting.is_file() else _arrays(stem)


def _link(stem: Path) -> dict[str, Any]:
    link = _read_json(_described(stem)).get("arrays")
    return link if isinstance(link, dict) else {}


def _belongs(arrays: Path, stem: Path) -> bool:
    """Whether these arrays were saved with that .json; older results do not say."""
    digest = _link(stem).get("sha256")
    return digest is None or not arrays.is_file() or sha256(arrays) == digest


def _is_waiting(name: str, stem: Path) -> bool:
    return re.fullmatch(rf"\.{re.escape(stem.name)}\.[0-9a-f]{{16}}\.npz", name) is not None


def _forget_leftovers(stem: Path) -> None:
    """What killed calls left under other names; not what the present .json still needs."""
    needed = arrays_file(stem).name if _described(stem).exists() else ""
    for path in stem.parent.glob(f".{glob.escape(stem.name)}.*"):
        if path.name != needed and _is_waiting(path.name, stem):
            path.unlink(missing_ok=True)
    remove_dead_partials(stem.parent, f".{glob.escape(stem.name)}.*.partial")
    remove_dead_partials(stem.parent, f"..{glob.escape(stem.name)}.*.partial")


def need_own_result(stem: Path) -> None:
    """Files of these names that are not those of a result stay as they are."""
    described, arrays = _described(stem), _arrays(stem)
    for path in (described, arrays):
        if path.is_symlink():  # also one to nothing
            refuse_foreign(path)
    if described.exists():
        try:
            ours = "hesscope" in _read_json(described) and _belongs(arrays_file(stem), stem)
        except InputError:
            ours = False
        if not ours:
            refuse_foreign(described)
    elif arrays.exists():
        refuse_foreign(arrays)


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
        "Convert it first.",
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
    if kind in RETIRED:
        raise ValueError(f"it holds a {kind}, which an earlier version wrote; run that command again")
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
    except RecursionError:
        refuse("a result file must not nest this deeply", f"{path.name!r}", "Was it written by Hesscope?")
    except (OSError, json.JSONDecodeError, UnicodeDecodeError) as error:
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
        with open(path, "rb") as handle, np.load(handle, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        refuse("a result needs its .npz beside the .json", f"no {path.name!r}", "Keep both files together.")
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        refuse(
            "the .npz of a result must hold plain arrays (pickled objects are never loaded)",
            f"{path.name!r} ({error})",
            "Write the result again.",
        )
