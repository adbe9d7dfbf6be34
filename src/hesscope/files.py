"""Files that are replaced as a whole, and never in the place of what someone else wrote."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from .arguments import shown
from .errors import FileError, refuse

# What is written first under another name: `.name.host-pid-token.partial`.
_PARTIAL = re.compile(r"\..+\.(?P<host>[\w.]+)-(?P<pid>\d+)-[0-9a-f]{8}\.partial")
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)
# What tells our own figures and pages from those of others; they are written with it.
_SIGNATURES = {
    ".html": b'<meta name="generator" content="hesscope',
    ".png": b"Software\0hesscope",
    ".svg": b"<dc:title>hesscope</dc:title>",
    ".pdf": b"/Creator (hesscope)",
}
HOST = re.sub(r"[^\w.]", "_", socket.gethostname()) or "unknown"


@contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Turn what the system says about writing `path` into one line with a remedy."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in _NO_ROOM:
            must, do = "there must be room to write", "Free some space, or choose another folder; nothing was lost."
        elif error.errno in _NOT_ALLOWED:
            must, do = "a folder to write into must allow it", "Change its permissions, or choose another folder."
        else:
            must, do = "a file must be writable", "Choose another place; nothing was lost."
        raise FileError(f"{must}; got {str(path)!r} ({reason}). {do}") from error


def as_path(given: Any, what: str) -> Path:
    """The path that a user gave for `what`."""
    if not isinstance(given, str | os.PathLike):
        refuse(f"{what} must be a path", shown(given), "Pass a text or a pathlib.Path.")
    return Path(given)


def make_folder(path: Path) -> bool:
    """Make a folder and its parents; whether it is new."""
    with file_errors(path):
        if path.is_dir():
            return False
        path.mkdir(parents=True, exist_ok=True)
        return True


def replace(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file whole or not at all: a kill or a full disk leaves what was there before."""
    partial = unfinished(path)
    try:
        with file_errors(path):
            with open(partial, "wb") as handle:
                write(handle)
                handle.flush()
                os.fsync(handle.fileno())
            os.replace(partial, path)
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def unfinished(path: Path) -> Path:
    """The name under which this process writes before the file takes its place."""
    return path.with_name(f".{path.name}.{HOST}-{os.getpid()}-{secrets.token_hex(4)}.partial")


def replace_own(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """`replace` for pages and figures; a file of that name without Hesscope's signature is left alone and refused."""
    need_own(path)
    replace(path, write)


def need_own(path: Path) -> None:
    """Refuse a page or a figure that is there and is not ours."""
    # Without a suffix of ours nothing tells whose file it is: only new ones are written.
    signature = _SIGNATURES.get(path.suffix, b"\0 no signature \0")
    if path.is_symlink() or (path.exists() and not (path.is_file() and signature in path.read_bytes())):
        refuse_foreign(path)


def refuse_foreign(path: Path) -> NoReturn:
    """Say that a file stays as it is."""
    refuse(
        "Hesscope only replaces files that it wrote itself",
        f"{str(path)!r}, which it did not",
        "Move it away, or choose another name or folder.",
        FileError,
    )


def is_partial(name: str) -> bool:
    """Whether a file name is that of an unfinished write."""
    return _PARTIAL.fullmatch(name) is not None


def remove_dead_partials(folder: Path, pattern: str = ".*.partial") -> None:
    """Remove the unfinished writes of processes of this machine that are gone."""
    for path in folder.glob(pattern):
        found = _PARTIAL.fullmatch(path.name)
        if found and found["host"] == HOST and not alive(int(found["pid"])):
            with suppress(OSError):
                path.unlink()


def alive(pid: int) -> bool:
    """Whether a process of this machine runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (OSError, IndexError):
        return False


def sha256(path: Path) -> str:
    """The digest of a file's content."""
    digest: Any = hashlib.sha256()
    with open(path, "rb") as handle:
        while chunk := handle.read(1 << 20):
            digest.update(chunk)
    return str(digest.hexdigest())
