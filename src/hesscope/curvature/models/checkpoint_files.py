"""Weights from files that others wrote: plain arrays only, nothing in them is ever run."""

from __future__ import annotations

import json
import os
import pickle
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import refuse

SUFFIXES = (".safetensors", ".pt", ".pth", ".ckpt", ".bin", ".npz")
# Where trainers keep the weights among other things, and where Hugging Face keeps them in a folder.
_INSIDE = ("state_dict", "model_state_dict", "model", "module")
_IN_FOLDER = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
_ADAPTERS = ("adapter_model.safetensors", "adapter_model.bin")  # of PEFT: what was trained, without the model below it
_WRAPPERS = ("module.", "_orig_mod.", "model.", "net.", "network.")
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_SAVE = "Save the weights alone: torch.save(model.state_dict(), 'weights.pt')."


def read_checkpoint(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The tensors by name of a state dict (.pt, .pth, .bin), a Lightning checkpoint (.ckpt), .safetensors, .npz, or a
    folder that Hugging Face's `save_pretrained` or Trainer wrote, shards included."""
    file = Path(path)
    if file.is_dir():
        return _folder(file)
    if not file.is_file():
        refuse("weights must be in a file that exists", f"{str(path)!r}", "Check the path.")
    if file.suffix not in SUFFIXES:
        refuse(f"weights come from one of {', '.join(SUFFIXES)}", f"{file.name!r}", _SAVE)
    found = {".safetensors": _safetensors, ".npz": _npz}.get(file.suffix, _torch_file)(file)
    if not found:
        refuse("weights must be tensors by name", f"none in {str(path)!r}", _SAVE)
    return found


def checkpoints_in(folder: str | os.PathLike[str]) -> dict[str, Path]:
    """The checkpoints of a folder, by label, in the order of the numbers in their names: step 500 before step 1000."""
    place = Path(folder)
    if not place.is_dir():
        refuse("checkpoints along training must be in a folder", f"{str(folder)!r}", "Check the path.")
    found = [p for p in place.iterdir() if not p.name.startswith(".") and _is_checkpoint(p)]
    if not found:
        refuse("the folder must hold checkpoints", f"none in {str(folder)!r}", f"Known are {', '.join(SUFFIXES)}.")
    ordered = sorted(found, key=lambda p: [int(part) if part.isdigit() else part for part in _parts(p)])
    labels = [_label(path) for path in ordered]
    unique = len(set(labels)) == len(labels)
    return {label if unique else path.name: path for label, path in zip(labels, ordered, strict=True)}


def holds_one(folder: Path) -> bool:
    """Whether a folder is one checkpoint by itself."""
    return any((folder / name).is_file() for name in (*_IN_FOLDER, *_ADAPTERS))


def holds_adapters(path: str | os.PathLike[str]) -> bool:
    """Whether these are the weights of adapters alone: a folder that PEFT wrote, or the file in it."""
    file = Path(path)
    return file.name in _ADAPTERS or (file.is_dir() and not any((file / name).is_file() for name in _IN_FOLDER))


def matched(state: Mapping[str, Any], names: Mapping[str, str]) -> Mapping[str, Any]:
    """The state under the model's own names: without the prefix that a wrapper put before all of them."""
    if not isinstance(state, Mapping) or all(name in names for name in state):
        return state
    named = {_of_adapter(name, names): value for name, value in state.items()}
    if all(name in names for name in named):
        return named
    for prefix in _WRAPPERS:
        if all(isinstance(name, str) and name.startswith(prefix) for name in state):
            bare = {name.removeprefix(prefix): value for name, value in state.items()}
            if all(name in names for name in bare) or any(name.startswith(_WRAPPERS) for name in bare):
                return matched(bare, names)
    return state


def _of_adapter(name: Any, names: Mapping[str, str]) -> Any:
    """PEFT leaves the name of the adapter out of its files: "lora_A.weight" is "lora_A.default.weight" in the model."""
    head, _, last = str(name).rpartition(".")
    return (
        name if name in names else next((n for n in (f"{head}.default.{last}", f"{name}.default") if n in names), name)
    )


def _is_checkpoint(path: Path) -> bool:
    return holds_one(path) if path.is_dir() else path.suffix in SUFFIXES


def _parts(path: Path) -> list[str]:
    """A name cut into words and numbers, words first compared as words and numbers as numbers."""
    return re.split(r"(\d+)", path.stem)


def _label(path: Path) -> str:
    numbers = re.findall(r"\d+", path.stem)
    return numbers[-1] if numbers else path.stem


def _folder(folder: Path) -> dict[str, Tensor]:
    for name in (*_IN_FOLDER, *_ADAPTERS):
        file = folder / name
        if file.is_file() and name.endswith(".index.json"):
            return _shards(file)
        if file.is_file():
            return read_checkpoint(file)
    refuse(
        "a folder with weights must hold model.safetensors or pytorch_model.bin",
        f"{str(folder)!r} without",
        "Name the file, or pass a folder of checkpoints to Problem.along.",
    )


def _shards(index: Path) -> dict[str, Tensor]:
    try:
        places = json.loads(index.read_text())["weight_map"]
        files = sorted(set(places.values()))
        inside = all(isinstance(name, str) and Path(name).name == name for name in files)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        refuse("the index of a sharded checkpoint must name its files", f"{index.name!r} ({error})", "Save it again.")
    if not inside:
        refuse(
            "shards must lie beside their index", f"another path in {index.name!r}", "It was not written by a library."
        )
    found: dict[str, Tensor] = {}
    for name in files:
        found |= read_checkpoint(index.parent / name)
    return found


def _torch_file(path: Path) -> dict[str, Tensor]:
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, OSError, AttributeError) as error:
        first = str(error).strip().splitlines()[0][:120] if str(error).strip() else type(error).__name__
        refuse("a checkpoint must hold weights and plain values only", f"{path.name!r} ({first})", _SAVE)
    for key in _INSIDE:
        if isinstance(loaded, Mapping) and isinstance(loaded.get(key), Mapping):
            loaded = loaded[key]
            break
    if not isinstance(loaded, Mapping):
        refuse("a checkpoint must hold tensors by name", f"{type(loaded).__name__} in {path.name!r}", _SAVE)
    return {str(name): value for name, value in loaded.items() if isinstance(value, Tensor)}


def _npz(path: Path) -> dict[str, Tensor]:
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile) as error:
        refuse("weights must be an .npz of plain arrays", f"{str(path)!r} ({error})", "Write it with numpy.savez.")
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def _safetensors(path: Path) -> dict[str, Tensor]:
    """The format is a length, a JSON header and raw numbers; read here, so that no package is needed."""
    data = np.memmap(path, dtype=np.uint8, mode="r") if path.stat().st_size else np.zeros(0, np.uint8)
    try:
        start = 8 + int.from_bytes(data[:8].tobytes(), "little")
        header = json.loads(data[8:start].tobytes() if start <= data.size else b"")
        found = {name: _entry(data[start:], entry) for name, entry in header.items() if name != "__metadata__"}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        refuse("a .safetensors file must be whole", f"{path.name!r} ({error})", "Download or save it again.")
    return found


def _entry(data: np.ndarray[Any, Any], entry: dict[str, Any]) -> Tensor:
    dtype, (begin, end) = _DTYPES[entry["dtype"]], entry["data_offsets"]
    shape = [int(size) for size in entry["shape"]]
    size = int(np.prod(shape, dtype=np.int64)) * torch.empty((), dtype=dtype, device="cpu").element_size()
    if not 0 <= begin <= end <= data.size or end - begin != size or min(shape, default=0) < 0:
        raise ValueError("sizes do not agree")
    return torch.from_numpy(np.array(data[begin:end])).view(dtype).reshape(shape)
