"""Results from files that may come from strangers: nothing is run, nothing is unpacked, damage is named."""

from __future__ import annotations

import importlib
import json
import os
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import refuse
from ..result import Result

MOST_BYTES = 4 * 10**9

# Where results are defined, those that need no torch first. A file can name a result of these, and nothing else.
HOMES = (
    "hesscope.report.analysis",
    "hesscope.experiments.base",
    "hesscope.closed_form",
    "hesscope.rmt.block_limits",
    "hesscope.linalg",
    "hesscope.curvature.check",
    "hesscope.curvature.plan",
    "hesscope.structure",
    "hesscope.kron",
)


def load_result(path: str | os.PathLike[str]) -> Result:
    """The result in `path.json` and `path.npz`; refuses pickles, archives with paths, truncated or foreign JSON."""
    file = Path(path)
    stem = file.with_suffix("") if file.suffix in (".json", ".npz") else file
    described = stem.with_name(stem.name + ".json")
    if not described.is_file():
        refuse("a result file must exist", f"{str(path)!r}", "Give the .json that a Hesscope command wrote.")
    _inspect_archive(stem.with_name(stem.name + ".npz"))
    try:
        _import_homes(set(_kinds(json.loads(described.read_text()))))
        return Result.load(stem)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        refuse(
            "a result file must hold complete JSON",
            f"{described.name!r} ({error})",
            "It may be truncated: write it again.",
        )
    except RecursionError:
        refuse("a result file must not nest this deeply", f"{described.name!r}", "Was it written by Hesscope?")


def result_files(places: list[Path]) -> list[Path]:
    """The result files among these files and folders, in the order of their names."""
    found: list[Path] = []
    for place in places:
        if place.is_dir():
            found += sorted(p for p in place.glob("*.json") if p.with_suffix(".npz").exists())
        else:
            found.append(place)
    if not found:
        refuse(
            "there must be at least one result",
            f"{', '.join(map(str, places)) or 'nothing'}",
            "Run `hesscope analyze`.",
        )
    return found


def _import_homes(kinds: set[str]) -> None:
    known: set[str] = set()
    for module in HOMES:
        if kinds <= known:
            return
        importlib.import_module(module)
        known = {kind.__name__ for kind in _subclasses(Result)}


def _subclasses(kind: type[Result]) -> Iterator[type[Result]]:
    for below in kind.__subclasses__():
        yield below
        yield from _subclasses(below)


def _kinds(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$kind"), str):
            yield value["$kind"]
        for item in value.values():
            yield from _kinds(item)
    elif isinstance(value, list):
        for item in value:
            yield from _kinds(item)


def _inspect_archive(path: Path) -> None:
    if not path.exists():
        return
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError) as error:
        refuse("the .npz of a result must be a whole archive", f"{path.name!r} ({error})", "Write the result again.")
    for member in members:
        if not re.fullmatch(r"a\d+\.npy", member.filename):
            refuse(
                "the .npz of a result holds only a0.npy, a1.npy, ...",
                f"a member named {member.filename!r} in {path.name!r}",
                "It was not written by Hesscope; nothing was unpacked.",
            )
    total = sum(member.file_size for member in members)
    if total > MOST_BYTES:
        refuse(f"the arrays of a result must fit in {MOST_BYTES:.0e} bytes", f"{total}", "Load it with numpy by hand.")
