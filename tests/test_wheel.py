"""What users install: the wheel holds what it needs, runs outside a checkout, and loads only what is used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

IMPORTS = """
import sys, hesscope as hs
hs.Problem, hs.analyze, hs.eigenpairs, hs.per_layer, hs.Result, hs.Analysis
import hesscope.report, hesscope.plots, hesscope.analysis.run
import torch
problem = hs.Problem.of(torch.nn.Linear(3, 2), "cross_entropy", (torch.ones(4, 3), torch.arange(4) % 2))
before = set(sys.modules)
hs.Hessian(problem, unchecked=True) @ torch.ones(8), hs.GaussNewton(problem, unchecked=True) @ torch.ones(8)
late = [name for name in set(sys.modules) - before if name.startswith("torch.")]
assert not late, f"what a product takes is timed, and would hold loading {late}"
slow = ("scipy.stats", "matplotlib", "plotly", "rich", "pandas", "transformers", "torch._dynamo")
sys.exit(" ".join(name for name in slow if name in sys.modules) or 0)
"""


def test_libraries_that_load_slowly_are_loaded_only_when_used() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    source = place / "source"  # a copy, as building writes beside the sources
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*build, "-w", str(place), str(source)], capture_output=True, text=True)
    if "No module named pip" in done.stderr:
        pytest.skip("this environment has no pip")
    assert done.returncode == 0, done.stderr
    return next(place.glob("*.whl"))


def test_the_wheel_runs_outside_a_checkout(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path / "site")
    missing = [
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src/hesscope").rglob("*")
        if path.is_file() and path.suffix in (".py", ".pyi", ".npz", ".css", ".js", ".typed")
        and str(path.relative_to(ROOT / "src")) not in names
    ]  # fmt: skip
    assert missing == []
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    code = (
        "import hesscope, sys; from hesscope.cli import main;"
        f"assert hesscope.__file__.startswith({str(tmp_path)!r}); sys.exit(main(['demo', '--budget', '1s']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert "Sharpness" in done.stdout
    assert (tmp_path / "demo/report.html").stat().st_size > 100_000


def test_extras_and_citation_are_named() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    for extra in ("plots", "hf", "lightning", "track", "notebook"):
        assert f"\n{extra} = [" in text
    citation = (ROOT / "CITATION.cff").read_text()
    from hesscope import __version__

    assert f"version: {__version__}" in citation


def test_the_site_fetches_nothing() -> None:
    assert "http" not in (ROOT / "mkdocs.yml").read_text()
