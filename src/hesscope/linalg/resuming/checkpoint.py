"""State of a long run on disk: one `.npy` per basis vector, one small state file per step, all replaced as a whole.

A run killed at any moment leaves complete files only, and the state names the vectors that it needs. With sharded
vectors every process writes its own shard; the file names carry the slice.
"""

from __future__ import annotations

import json
import operator
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import FileError, refuse
from ...folders import Closing, StateFolder
from ...operators import Layout, LinearOperator
from ...results.spectra import Estimate
from ...rng import Rng
from ..validation import innermost, multiply

FORMAT = 2
_LONG = 16_000_000  # bytes of a vector
SAME = 1e-4  # products of one matrix differ by less, also in float32 and over other numbers of threads
Arrays = dict[str, Any]


def fingerprint(op: LinearOperator, algorithm: str, **arguments: object) -> dict[str, Any]:
    """What must agree for a state to belong to a call; operators add their own `fingerprint` attribute if they have one."""
    return {
        "format": FORMAT,
        "algorithm": algorithm,
        "operator": type(innermost(op)).__name__,
        "shape": list(op.shape),
        "dtype": str(op.dtype),
        "operator_fingerprint": op.fingerprint,
        "arguments": {name: repr(value) for name, value in sorted(arguments.items())},
        "products": _behaviour(op),
    }


def told_apart(block: Tensor | None, op: LinearOperator) -> str:
    """A text that tells vectors handed to an algorithm from others, the same in every process that shares them."""
    if block is None:
        return "none"
    witness = op.layout.draw(Rng(0).child("digest"), 1, "normal", torch.float64, block.device)
    return ", ".join(f"{float(x):.12e}" for x in op.layout.inner(block.double(), witness))


def _behaviour(op: LinearOperator) -> list[float]:
    """‖A v‖ and a few inner products of A v for one fixed random v: what no change of the matrix leaves as it is.

    Below any counter, since it is no part of the answer.
    """
    inner, layout, rng = innermost(op), op.layout, Rng(0).child("behaviour")
    image = multiply(inner, layout.draw(rng.child("probe"), 1, "normal", op.dtype, op.device))
    witnesses = (layout.draw(rng.child("witness", j), 1, "normal", op.dtype, op.device) for j in range(8))
    return [float(layout.norms(image)), *(float(layout.inner(image, witness)) for witness in witnesses)]


def _same_products(found: Any, expected: list[float]) -> bool:
    if not isinstance(found, list) or len(found) != len(expected):
        return False
    # Inner products with random vectors of unit variance are of the size of ‖A v‖.
    size = max(abs(expected[0]), abs(float(found[0])))
    return all(abs(float(a) - b) <= SAME * size for a, b in zip(found, expected, strict=True))


@contextmanager
def kept_in(
    folder: str | os.PathLike[str] | None, op: LinearOperator, algorithm: str, **arguments: object
) -> Iterator[Store | None]:
    """The store of one call for as long as it runs; None where no folder is given."""
    if folder is None:
        yield None
        return
    with Store(folder, fingerprint(op, algorithm, **arguments), op.layout) as store:
        yield store


class Store(Closing):
    """The folder of one run. `load` gives the last state that all processes share; `save` adds the next one."""

    def __init__(self, folder: str | os.PathLike[str], header: dict[str, Any], layout: Layout) -> None:
        self.layout = layout
        self.tag = f"{layout.local.start}-{layout.local.stop}"
        self.folder = StateFolder(folder, part=self.tag)
        self.step = 0
        self._kept: dict[int, set[int]] = {}
        try:
            for name in sorted(name for name in self.folder.own if name.startswith("header-")):
                _compare(_read_header(self.folder.path / name), header, self.folder.path)
            own = f"header-{self.tag}.json"
            if not (own in self.folder.own and (self.folder.path / own).exists()):
                text = json.dumps(header, indent=1)
                self.folder.write(own, lambda f: f.write(text.encode()))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let another run use the folder."""
        self.folder.close()

    def load(self) -> tuple[Arrays, dict[int, Tensor]] | None:
        """The last complete state and the vectors it names, or None when the run has to start."""
        suffix = f"-{self.tag}.npz"
        own = [name for name in self.folder.own if name.startswith("state-") and name.endswith(suffix)]
        steps = sorted(int(name.split("-")[1]) for name in own if (self.folder.path / name).exists())
        # A process is at most one step ahead of another, so the whole part of the mean is what all have finished.
        totals = self.layout.sum(torch.tensor([steps[-1] if steps else 0.0, 1.0], dtype=torch.float64, device="cpu"))
        self.step = int(totals[0] // totals[1])
        if self.step == 0:
            return None
        state = _read(self.folder.path / self._state_name(self.step), self._read_state)
        names = {int(name) for name in state["names"]}
        self._kept = {self.step: names}
        return state, {name: _read(self.folder.path / self._vector_name(name), _read_vector) for name in names}

    def save(self, state: Arrays, names: Sequence[int], rows: Iterable[Tensor]) -> None:
        """Write the vectors that are new, then the state, then forget what the last two states do not name."""
        known = set().union(*self._kept.values()) if self._kept else set()
        for name, row in zip(names, rows, strict=True):
            if name not in known:
                array = row.detach().cpu().numpy()
                self.folder.write(self._vector_name(name), partial(np.save, arr=array, allow_pickle=False))
        self.step += 1
        body = {**state, "names": np.asarray(names, dtype=np.int64)}
        self.folder.write(self._state_name(self.step), lambda f: np.savez(f, allow_pickle=False, **body))
        self._kept[self.step] = set(names)
        if len(self._kept) > 2:
            old = min(self._kept)
            unused = self._kept.pop(old) - set().union(*self._kept.values())
            for name in unused:
                self.folder.remove(self._vector_name(name))
            self.folder.remove(self._state_name(old))

    def finished(self) -> Estimate | None:
        """The answer of a run that ended in one step, if it is here."""
        loaded = self.load()
        if loaded is None or "value" not in loaded[0]:
            return None
        state = loaded[0]
        value, stderr = (float(x) if x.ndim == 0 else x for x in (state["value"], state["stderr"]))
        return Estimate(value, stderr, int(state["products"]), str(state["method"]), bool(state["exact"]))

    def finish(self, found: Estimate) -> Estimate:
        """Keep an answer that came in one step."""
        self.save({name: getattr(found, name) for name in ("value", "stderr", "products", "method", "exact")}, [], [])
        return found

    def _read_state(self, path: Path) -> Arrays:
        with open(path, "rb") as handle, np.load(handle, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}

    def _state_name(self, step: int) -> str:
        return f"state-{step:07d}-{self.tag}.npz"

    def _vector_name(self, name: int) -> str:
        return f"vector-{name:07d}-{self.tag}.npy"


def _read_vector(path: Path) -> Tensor:
    # Long ones are read where they are used: a run that goes on would otherwise have all its vectors twice.
    mapped: Any = "c" if path.stat().st_size > _LONG else None
    return torch.from_numpy(np.load(path, mmap_mode=mapped, allow_pickle=False))


def _read(path: Path, reader: Callable[[Path], Any]) -> Any:
    try:
        return reader(path)
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        refuse(
            "the state of a run must be complete",
            f"{path.name!r} damaged or missing ({type(error).__name__})",
            f"Delete the folder {str(path.parent)!r} and start again.",
            FileError,
        )


def _read_header(path: Path) -> dict[str, Any]:
    try:
        body = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, json.JSONDecodeError, UnicodeDecodeError):
        body = None
    if not isinstance(body, dict):
        refuse(
            "the header of a run must be complete JSON",
            f"{path.name!r} damaged",
            f"Delete the folder {str(path.parent)!r} and start again.",
            FileError,
        )
    return body


def _compare(found: dict[str, Any], expected: dict[str, Any], folder: Path) -> None:
    for key in expected if found else ():
        same = _same_products if key == "products" else operator.eq
        if not same(found.get(key), expected[key]):
            refuse(
                f"resume needs the same {key} as the run it continues",
                f"{_short(expected[key])} where {str(folder)!r} holds {_short(found.get(key))}",
                "Repeat the call with the same arguments, or choose another folder.",
                FileError,
            )


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:120]} ... {text[-60:]}"
