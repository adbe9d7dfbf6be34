"""Tests against other people's packages; `make test-integrations` sets up the environment that has them all."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

# The packages that the tests of a file need; a file is collected where they are installed.
NEEDED = {
    "test_notebooks.py": ("nbclient", "pandas"),
    "test_huggingface.py": ("transformers", "peft"),
    "test_huggingface_folders.py": ("transformers", "peft"),
    "test_lightning.py": ("lightning",),
    "test_checkpoints.py": ("lightning", "transformers", "peft", "safetensors"),
    "test_trackers.py": ("tensorboard", "wandb", "mlflow", "trackio"),
    "test_transformers_trainer.py": ("transformers", "accelerate"),
    "test_optimizers.py": ("transformers", "lightning"),
}


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    missing = [name for name in NEEDED.get(collection_path.name, ()) if find_spec(name) is None]
    return True if missing else None


# peft 0.21 asks transformers 5.23 for a name that it deprecates: theirs to settle, and not an error of ours.
DEPRECATED = "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:  # a hook here is told of the tests of all folders
            item.add_marker(pytest.mark.filterwarnings(DEPRECATED))


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("WANDB_MODE", "offline")
