"""Models and tokenizers from a local folder: weights only, no download, no foreign code."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..arguments import listed
from ..errors import HesscopeError, refuse


def load_model(folder: str | os.PathLike[str]) -> nn.Module:
    """The model of a folder with config.json and safetensors, in float32 and eval mode; adapters of PEFT on their base.

    The class is the one that the configuration names, out of `transformers` itself: code that a folder brings along is
    never run, and nothing is downloaded.
    """
    path = _folder(folder)
    transformers = _package("transformers")
    if (path / "adapter_config.json").is_file():
        return _with_adapters(path)
    names = _read(path / "config.json").get("architectures") or []
    kind: Any = getattr(transformers, names[0], None) if names and isinstance(names[0], str) else None
    load = getattr(kind, "from_pretrained", None)
    if load is None or not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        refuse(
            "config.json must name a model of transformers in 'architectures'",
            f"{names or 'none'}",
            "Save it with model.save_pretrained(folder); models with code of their own are for file.py:make_problem.",
        )
    if not any(path.glob("*.safetensors")):
        refuse(
            "the weights must be safetensors",
            f"none in {path}",
            "Write them: model.save_pretrained(folder, safe_serialization=True).",
        )
    try:
        with torch.random.fork_rng(devices=[]), _quiet(transformers):
            model, told = load(
                path, local_files_only=True, use_safetensors=True, dtype=torch.float32, output_loading_info=True
            )
    except Exception as error:
        refuse("the folder must hold a model that transformers loads", _short(error), "Save it again from the model.")
    missing = sorted(told["missing_keys"])
    if missing:
        refuse(
            "the weights must be those of the model that config.json names",
            f"none for {listed(missing)}",
            "Save the whole model: the missing weights would be random.",
        )
    return model.eval()  # type: ignore[no-any-return]


def _with_adapters(path: Path) -> nn.Module:
    peft = _package("peft")
    base, place = _read(path / "adapter_config.json").get("base_model_name_or_path"), _base_of(path)
    if place is None:
        refuse(
            "the base model of an adapter must be a local folder",
            f"{base!r}",
            "Set base_model_name_or_path in adapter_config.json to the folder that holds it.",
        )
    if not (path / "adapter_model.safetensors").is_file():
        refuse("the weights of an adapter must be safetensors", f"none in {path}", "Save it again with PEFT.")
    try:
        with torch.random.fork_rng(devices=[]):
            model = peft.PeftModel.from_pretrained(load_model(place), str(path), is_trainable=True)
    except HesscopeError:
        raise
    except Exception as error:
        refuse("the folder must hold an adapter that PEFT loads", _short(error), "Save it again with PEFT.")
    return model.eval()  # type: ignore[no-any-return]


def load_tokenizer(folder: str | os.PathLike[str]) -> Any:
    """The tokenizer of a folder; of an adapter without one, that of its base."""
    path = _folder(folder)
    if not any((path / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json", "vocab.json")):
        base = _base_of(path)
        if base is not None:
            return load_tokenizer(base)
        refuse(
            "the folder must hold a tokenizer where text is given",
            f"no tokenizer.json in {path}",
            "Save it there with tokenizer.save_pretrained(folder), or give token numbers as a .npy file.",
        )
    try:
        return _package("transformers").AutoTokenizer.from_pretrained(
            path, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:
        refuse("the folder must hold a tokenizer that transformers loads", _short(error), "Save it there again.")


def _folder(folder: str | os.PathLike[str]) -> Path:
    path = Path(folder)
    if not path.is_dir() or not any((path / name).is_file() for name in ("config.json", "adapter_config.json")):
        refuse(
            "a checkpoint must be a folder with config.json (or adapter_config.json)",
            f"{str(folder)!r}",
            "Write one with model.save_pretrained(folder). Nothing is downloaded.",
        )
    return path


def _base_of(path: Path) -> Path | None:
    file = path / "adapter_config.json"
    base = _read(file).get("base_model_name_or_path") if file.is_file() else None
    return next((p for p in (Path(str(base)), path / str(base)) if base and p.is_dir()), None)


def _read(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        refuse(f"{file.name} must be JSON", _short(error), "Save the model again.")
    return found if isinstance(found, dict) else {}


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        refuse(f"checkpoint folders need the package {name}", "none installed", "pip install 'hesscope[hf]'.")


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Without the progress bars of loading; switched on again where they were on."""
    logging = transformers.utils.logging
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
