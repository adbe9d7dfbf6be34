"""Results from files that may come from strangers: nothing is run, nothing is unpacked, damage is named."""

from __future__ import annotations

import os
import re
import zipfile
from pathlib import Path

from ..errors import refuse
from ..result import Result, arrays_file
from .monitoring import MARK, load_run

MOST_BYTES = 4 * 10**9


def load_result(path: str | os.PathLike[str]) -> Result:
    """The result in `path.json` and `path.npz`, or the run in a `.jsonl`; refuses pickles, archives with paths,
    truncated or foreign JSON."""
    file = Path(path)
    if file.suffix == ".jsonl":
        return load_run(file)
    stem = file.with_suffix("") if file.suffix in (".json", ".npz") else file
    described = stem.with_name(stem.name + ".json")
    if not described.is_file():
        refuse("a result file must exist", f"{str(path)!r}", "Give the .json that a Hesscope command wrote.")
    try:
        _inspect_archive(arrays_file(stem))
        return Result.load(stem)
    except RecursionError:
        refuse("a result file must not nest this deeply", f"{described.name!r}", "Was it written by Hesscope?")


def result_files(places: list[Path]) -> list[Path]:
    """The result files among these files and folders, in the order of their names."""
    found: list[Path] = []
    for place in places:
        if place.is_dir():
            found += sorted(p for p in place.glob("*.json") if p.with_suffix(".npz").exists())
            found += sorted(p for p in place.glob("*.jsonl") if _is_run(p))
        else:
            found.append(place)
    if not found:
        refuse(
            "there must be at least one result",
            f"{', '.join(map(str, places)) or 'nothing'}",
            "Run `hesscope analyze`.",
        )
    return found


def _is_run(path: Path) -> bool:
    """Whether a file of lines begins as those of a run do."""
    with open(path, "rb") as handle:
        return handle.read(len(MARK) + 2) == f'{{"{MARK}'.encode()


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
