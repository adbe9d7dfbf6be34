"""What is public: one table, the same for people, type checkers and tools; and no module hides behind a function."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_type_hints

import pytest

import hesscope as hs

SOURCE = Path(hs.__file__)


def modules() -> list[str]:
    skip = ("hesscope.__main__",)
    found = pkgutil.walk_packages([str(SOURCE.parent)], "hesscope.")
    return [module.name for module in found if module.name not in skip]


def test_everything_public_is_in_one_table_and_loads() -> None:
    assert len(hs.__all__) == len(set(hs.__all__))
    for name in hs.__all__:
        assert getattr(hs, name) is not None
    assert set(hs.__all__) <= set(dir(hs))


def test_every_public_name_is_where_the_stub_says() -> None:
    body = ast.parse(SOURCE.with_suffix(".pyi").read_text()).body
    for node in (one for one in body if isinstance(one, ast.ImportFrom)):
        for name in node.names:
            assert name.asname == name.name  # else type checkers would take it for private
            if node.module is not None:
                assert getattr(hs, name.name) is getattr(importlib.import_module(f"hesscope.{node.module}"), name.name)


def test_every_result_and_config_of_the_library_is_public() -> None:
    for name in ("Eigenpairs", "SpectralDensity", "Estimate", "Solution", "BlockNorms", "Analysis", "Verdict"):
        assert issubclass(getattr(hs, name), hs.Result)
    for name in (
        "AnalyzeConfig",
        "LinearOperator",
        "ParameterSpace",
        "Dense",
        "LowRank",
        "Kronecker",
        "Sum",
        "Product",
    ):
        assert isinstance(getattr(hs, name), type)


def test_what_public_functions_return_is_public() -> None:
    public = {id(getattr(hs, name)) for name in hs.__all__}
    for name in hs.__all__:
        function = getattr(hs, name)
        if inspect.isfunction(function):
            for kind in _classes(get_type_hints(function)["return"]):
                assert not kind.__module__.startswith("hesscope.") or id(kind) in public, f"{name} returns {kind}"


def _classes(hint: Any) -> list[type]:
    """The classes that an annotation is made of."""
    inside = [kind for part in get_args(hint) for kind in _classes(part)]
    return inside or ([hint] if isinstance(hint, type) else [])


@pytest.mark.parametrize("name", modules())
def test_importing_a_module_binds_that_module(name: str) -> None:
    parent, _, leaf = name.rpartition(".")
    module = importlib.import_module(name)
    for public in hs.__all__:
        getattr(hs, public)
    assert isinstance(module, ModuleType)
    assert getattr(importlib.import_module(parent), leaf) is module
