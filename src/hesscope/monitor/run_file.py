"""The file of a run: JSON lines that are appended one by one, and beside it what a restart of training goes on from."""

from __future__ import annotations

import json
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import FileError, refuse
from ..files import file_errors, make_folder, replace
from ..folders import Lock
from ..measure import Array
from ..results.monitoring import MARK, VERSION, MonitoredRun, Reading, run_of

FORMAT = "hesscope monitor state 1"


class RunFile:
    """Opened by one monitor at a time; goes on after the last whole line of a run that was interrupted.

    A restart from an older checkpoint reads some steps again: the lines of those steps are moved to
    `NAME.superseded`, so that no step stands in the file twice and none is lost.
    """

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path = path
        if path.is_dir():
            refuse(
                "a run is written to a file", f"the folder {str(path)!r}", "Name a file in it: run.jsonl.", FileError
            )
        make_folder(path.parent)
        self._lock = Lock(path.with_name(f".{path.name}.lock"), "the file of a run", wait=0.0).acquire()
        try:
            self.before = self._opened(settings)
        except BaseException:
            self.close()
            raise

    @property
    def _state(self) -> Path:
        return self.path.with_name(f"{self.path.name}.state.npz")

    def close(self) -> None:
        """Let others write to the file; harmless when that is so already."""
        self._lock.release()

    def append(self, reading: Reading) -> None:
        """One line more, at once: a process that is killed leaves it whole."""
        with file_errors(self.path), open(self.path, "ab") as handle:
            handle.write(reading.line().encode() + b"\n")

    def rewind(self, step: int) -> int | None:
        """Move the lines from `step` on out of the file; the last step that is left (-1 for none), None where none moved."""
        late = [reading for reading in self.before.readings if reading.step >= step] if self.before else []
        if late and self.before is not None:
            aside = self.path.with_name(f"{self.path.name}.superseded")
            with file_errors(aside), open(aside, "ab") as handle:
                handle.write(b"".join(reading.line().encode() + b"\n" for reading in late))
            lines = self.path.read_bytes().split(b"\n")[:-1]
            kept = [line for line in lines[1:] if json.loads(line)["step"] < step]
            replace(self.path, lambda f: f.write(b"\n".join([lines[0], *kept, b""])))
        kept_steps = [reading.step for reading in self.before.readings if reading.step < step] if self.before else []
        self.before = None
        return max(kept_steps, default=-1) if late else None

    def save_state(self, numbers: dict[str, Any], vectors: dict[str, Array]) -> None:
        """What a restart goes on from, whole or not at all."""
        head = np.frombuffer(json.dumps({"format": FORMAT, **numbers}).encode(), np.uint8)
        buffer = BytesIO()
        np.savez(buffer, head=head, **vectors)  # type: ignore[arg-type]
        replace(self._state, lambda f: f.write(buffer.getvalue()))

    def load_state(self) -> tuple[dict[str, Any], dict[str, Array]] | None:
        """The state, or None where there is none that can be read: a restart then begins cold, which costs products."""
        try:
            with np.load(self._state, allow_pickle=False) as archive:
                vectors = {name: archive[name] for name in archive.files}
            numbers = json.loads(vectors.pop("head").tobytes())
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None
        return (numbers, vectors) if isinstance(numbers, dict) and numbers.get("format") == FORMAT else None

    def _opened(self, settings: dict[str, Any]) -> MonitoredRun | None:
        """The run that is in the file already, its half-written last line removed; a new file gets its first line."""
        content = self.path.read_bytes() if self.path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        if not whole.strip() and (not content or content.startswith(f'{{"{MARK}"'.encode())):
            head = json.dumps({MARK: VERSION, **settings}, allow_nan=False).encode() + b"\n"
            replace(self.path, lambda f: f.write(head))
            return None
        found = run_of(self.path.name, whole)
        other = [key for key in ("model", "parameters") if found.settings.get(key) != settings.get(key)]
        if other:
            refuse(
                "the file of a run is continued by the same model",
                f"{str(self.path)!r} of {found.settings.get('model')} with {found.settings.get('parameters')} parameters",
                "Choose another file; nothing in it was changed.",
                FileError,
            )
        if found.damaged or whole != content:
            lines = whole.split(b"\n")[:-1]
            kept = lines[: len(lines) - found.damaged]
            replace(self.path, lambda f: f.write(b"\n".join([*kept, b""])))
        return found
