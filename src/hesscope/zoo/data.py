"""Data by name: real files from a folder, the embedded digits, or a synthetic stand-in that says so."""

from __future__ import annotations

import gzip
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..arguments import need_count
from ..errors import refuse
from ..missing_data import note_stand_in
from ..rng import Rng

VARIABLE = "HESSCOPE_DATA"


@dataclass(frozen=True)
class Examples:
    """Inputs and targets of one split; `synthetic` is True where a stand-in took the place of missing files."""

    x: Tensor
    y: Tensor
    name: str
    classes: int
    synthetic: bool = False

    def first(self, count: int | None) -> Examples:
        """The first `count` examples (all of them for None)."""
        if count is None or count >= len(self.x):
            return self
        return Examples(self.x[:count], self.y[:count], self.name, self.classes, self.synthetic)


def data_dir(given: str | os.PathLike[str] | None = None) -> Path | None:
    """The folder with data files: the argument, else $HESSCOPE_DATA, else none."""
    chosen = given or os.environ.get(VARIABLE)
    if not chosen:
        return None
    path = Path(chosen)
    if not path.is_dir():
        refuse("the data folder must exist", f"{str(path)!r}", f"Check --data-dir or ${VARIABLE}.")
    return path


def load(
    name: str, split: str = "train", folder: str | os.PathLike[str] | None = None, count: int | None = None
) -> Examples:
    """Examples by name, scaled to about unit size, in the order of the files.

    "digits" is embedded. "mnist", "cifar10", "cifar100" and "covtype" are read from the data folder; where they are not
    there, that is refused, or inside `with stand_ins():` a synthetic stand-in of the same shape is drawn (Gaussian
    classes) and marked as such.
    """
    if name not in READERS:
        refuse("the data set must be known", f"{name!r}", f"Known: {', '.join(READERS)}.")
    if split not in ("train", "test"):
        refuse("split must be 'train' or 'test'", f"{split!r}", "Leave it at 'train'.")
    if count is not None:
        need_count("count", count, do="Leave it out for all examples.")
    if name == "digits":
        return _digits(split).first(count)
    where = data_dir(folder)
    files, reader, shape, classes = READERS[name]
    if where is None or not all((where / file).exists() for file in files):
        note_stand_in(f"the {name} data", files, where)
        return _stand_in(name, split, shape, classes, count)
    try:
        x, y = reader(where, split)
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
        known = ", ".join(files)
        refuse(f"the data files of {name} must be whole", f"{error} in {known}", "Download them again.")
    return Examples(torch.from_numpy(x), torch.from_numpy(y), name, classes).first(count)


Arrays = tuple[np.ndarray[tuple[int, ...], np.dtype[np.float32]], np.ndarray[tuple[int, ...], np.dtype[np.int64]]]


def _digits(split: str) -> Examples:
    with np.load(Path(__file__).with_name("digits.npz"), allow_pickle=False) as file:
        x, y = file["x"].astype(np.float32) / 16.0, file["y"].astype(np.int64)
    keep = (np.arange(len(x)) % 6 == 5) == (split == "test")
    return Examples(torch.from_numpy(x[keep]), torch.from_numpy(y[keep]), "digits", 10)


def _mnist(folder: Path, split: str) -> Arrays:
    stem = "train" if split == "train" else "t10k"
    with (
        gzip.open(folder / f"{stem}-images-idx3-ubyte.gz") as images,
        gzip.open(folder / f"{stem}-labels-idx1-ubyte.gz") as labels,
    ):
        x = np.frombuffer(images.read(), np.uint8, offset=16).reshape(-1, 28, 28)
        y = np.frombuffer(labels.read(), np.uint8, offset=8)
    return x.astype(np.float32) / 255.0, y.astype(np.int64)


def _cifar(file: str) -> Callable[[Path, str], Arrays]:
    def read(folder: Path, split: str) -> Arrays:
        with np.load(folder / file, allow_pickle=False) as data:
            x, y = data[f"x_{split}"].astype(np.float32) / 255.0, data[f"y_{split}"].astype(np.int64)
        mean = np.array([0.485, 0.456, 0.406], np.float32).reshape(3, 1, 1)
        std = np.array([0.229, 0.224, 0.225], np.float32).reshape(3, 1, 1)
        return (x - mean) / std, y

    return read


def _covtype(folder: Path, split: str) -> Arrays:
    with np.load(folder / "covtype_20k.npz", allow_pickle=False) as data:
        x, y = data["x"].astype(np.float32), data["y"].astype(np.int64) - 1
    x = (x - x.mean(0)) / np.maximum(x.std(0), 1e-6)
    part = slice(0, 16000) if split == "train" else slice(16000, None)
    return x[part], y[part]


def _stand_in(name: str, split: str, shape: tuple[int, ...], classes: int, count: int | None) -> Examples:
    number = count or 2000
    rng = Rng(0).child("stand-in", name)
    means = rng.child("means").numpy().standard_normal((classes, *shape))
    draw = rng.child(split).numpy()
    y = draw.integers(0, classes, number)
    x = 0.6 * means[y] + draw.standard_normal((number, *shape))
    return Examples(torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y), name, classes, synthetic=True)


READERS: dict[str, tuple[tuple[str, ...], Callable[[Path, str], Arrays], tuple[int, ...], int]] = {
    "digits": ((), _mnist, (8, 8), 10),
    "mnist": (
        tuple(f"{s}-{k}-ubyte.gz" for s in ("train", "t10k") for k in ("images-idx3", "labels-idx1")),
        _mnist,
        (28, 28),
        10,
    ),
    "cifar10": (("cifar10_10k_2k.npz",), _cifar("cifar10_10k_2k.npz"), (3, 32, 32), 10),
    "cifar100": (("cifar100_5k_1k.npz",), _cifar("cifar100_5k_1k.npz"), (3, 32, 32), 100),
    "covtype": (("covtype_20k.npz",), _covtype, (54,), 7),
}
