"""Every example in a docstring of the source runs and prints what it says."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

from source_tree import MODULES, Module

WITH_EXAMPLES = [module for module in MODULES if ">>> " in module.path.read_text()]


@pytest.mark.parametrize("module", WITH_EXAMPLES, ids=lambda module: module.name)
def test_examples_run(module: Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = doctest.testmod(importlib.import_module(module.name))
    assert found.attempted > 0
    assert found.failed == 0


def test_examples_are_found() -> None:
    assert len(WITH_EXAMPLES) >= 15
