"""How the house is built: who may import whom, what works without torch, how long a file is, what is public."""

from __future__ import annotations

import ast
import difflib
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from api_snapshot.write import SNAPSHOT, public_api
from source_tree import MODULES, SOURCE, Module

# A unit imports from the rows above its own, never from its own row or below.
ORDER = (
    ("_version", "deadline", "errors"),
    ("arguments",),
    ("files", "measure", "memory", "missing_data", "rng", "scratch", "space"),
    ("folders", "tables"),
    ("result",),
    ("results",),
    ("closed_form", "operators", "rmt"),
    ("linalg", "testing"),
    ("curvature",),
    ("layers",),
    ("partition",),
    ("kron", "step_stability", "structure"),
    ("huggingface", "landscapes", "monitor", "pacbayes", "plots", "zoo"),
    ("integrations",),
    ("analysis",),
    ("experiments",),
    ("report",),
    ("cli",),
    ("__init__", "__main__"),
)
ROW = {unit: row for row, units in enumerate(ORDER) for unit in units}

# The few that look upwards while they run, never while they are imported; each with its reason.
DEFERRED = {
    ("tables", "plots"): "a result draws itself when it is asked to",
    ("plots", "experiments"): "an outcome is drawn by the experiment that made it",
    ("curvature", "layers"): "an operator is asked for its exact trace and diagonal, its layers know them",
}

WITHOUT_TORCH = (
    "hesscope",
    "hesscope.analysis.config",
    "hesscope.closed_form",
    "hesscope.measure",
    "hesscope.pacbayes",
    "hesscope.plots",
    "hesscope.report",
    "hesscope.result",
    "hesscope.results",
    "hesscope.rmt",
    *(f"hesscope.experiments.liao2021.fig{number}" for number in (1, 2, 3, 4, 5)),
    *(f"hesscope.experiments.liao2021.{name}" for name in ("least_squares", "trimming")),
    *(f"hesscope.experiments.dong2025.{name}" for name in ("fig8", "fig9", "heuristics", "hidden_spectra", "spectra")),
    "hesscope.experiments.dong2025.theorem2",
    *(f"hesscope.experiments.cracking.fig{number}" for number in (7, 8, 9, 27)),
)

LONGEST_FILE = 400


def test_every_unit_has_its_row() -> None:
    assert {module.unit for module in MODULES} == set(ROW)
    assert Counter(unit for units in ORDER for unit in units).most_common(1)[0][1] == 1


def _looks_up(module: Module) -> list[str]:
    wrong = []
    for one in module.imports:
        parts = one.target.split(".")
        if parts[0] != "hesscope" or len(parts) == 1 or one.types_only:
            continue
        unit = parts[1]
        allowed = unit == module.unit or ROW.get(unit, 99) < ROW[module.unit]
        if not allowed and not (one.deferred and (module.unit, unit) in DEFERRED):
            wrong.append(f"{module.name}:{one.line} imports {one.target}")
    return wrong


def test_imports_go_down_only() -> None:
    assert [line for module in MODULES for line in _looks_up(module)] == []


def test_no_deferred_import_is_listed_in_vain() -> None:
    used = {
        (module.unit, one.target.split(".")[1])
        for module in MODULES
        for one in module.imports
        if one.deferred and one.target.startswith("hesscope.")
    }
    assert set(DEFERRED) <= used


HIDE_TORCH = """
import importlib, sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ImportError("torch is hidden")
sys.meta_path.insert(0, Hidden())
failed = []
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError as error:
        failed.append(f"{name}: {error}")
sys.exit("\\n".join(failed) or 0)
"""


def test_half_of_the_house_works_without_torch() -> None:
    modules = [*WITHOUT_TORCH, *(m.name for m in MODULES if m.unit in ("closed_form", "plots", "results", "rmt"))]
    done = subprocess.run([sys.executable, "-c", HIDE_TORCH, *modules], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_files_are_short() -> None:
    assert {module.name: module.lines for module in MODULES if module.lines > LONGEST_FILE} == {}


def test_no_module_is_named_like_what_it_defines() -> None:
    """`import hesscope.kron.decouple as m` would bind the function once the package re-exports it."""
    assert [m.name for m in MODULES if m.name.rpartition(".")[2] in m.definitions()] == []


# Classes of one name that may stand in several modules; each with its reason.
SAME_NAME = {
    "Config": "every experiment has one",
    "CurvatureCallback": "one for each trainer, which users import from its module",
}


def test_one_class_one_name() -> None:
    homes = Counter(
        node.name
        for module in MODULES
        for node in module.tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name for name, count in homes.items() if count > 1} == set(SAME_NAME)


def test_nothing_is_defined_that_nobody_uses() -> None:
    """Functions, classes and constants of modules are public, or named once more in the source or by the site's scripts."""
    scripts = sorted((SOURCE.parent / "docs/_site").glob("*.py"))
    texts = [
        path.read_text() for path in (*(module.path for module in MODULES), SOURCE / "hesscope/__init__.pyi", *scripts)
    ]
    words = Counter(word for text in texts for word in re.findall(r"\w+", text))
    public = SNAPSHOT.read_text()
    named = [(module, name) for module in MODULES for name in (*module.definitions(), *module.constants())]
    left = [(m, name) for m, name in named if words[name] < 2 and f".{name}" not in public]
    assert [f"{m.name}.{name}" for m, name in left if not name.startswith("__")] == []


def test_the_library_never_prints() -> None:
    printing = {module.name for module in MODULES for name, _ in module.calls if name == "print"}
    assert printing <= {"hesscope.cli.command_line"}


def test_no_pickle() -> None:
    wrong = [m.name for m in MODULES for one in m.imports if one.target.split(".")[0] in ("dill", "joblib", "shelve")]
    for module in MODULES:
        for name, call in module.calls:
            words = {word.arg: ast.unparse(word.value) for word in call.keywords}
            unsafe = name == "torch.load" and words.get("weights_only") != "True"
            if unsafe or name.startswith("pickle.") or words.get("allow_pickle") == "True":
                wrong.append(f"{module.name}:{call.lineno}")
    assert wrong == []


DRAWS = ("rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial")
HARMLESS = (
    "default_rng",
    "Generator",
    "PCG64",
    "Philox",
    "SeedSequence",
    "get_state",
    "set_state",
    "getstate",
    "setstate",
)


def _draws_globally(module: Module) -> list[str]:
    forked = {
        id(inner)
        for node in module.nodes
        if (isinstance(node, ast.With) and "fork_rng" in ast.unparse(node.items[0].context_expr)) or _is_layer(node)
        for inner in ast.walk(node)
    }
    wrong = []
    for name, call in module.calls:
        library, _, function = name.rpartition(".")
        named = any(word.arg in ("generator", None) for word in call.keywords)
        seeds = name in ("torch.manual_seed", "torch.seed", "np.random.seed")
        draws = library in ("np.random", "random") and function not in HARMLESS
        if id(call) not in forked and (seeds or draws or (library == "torch" and function in DRAWS and not named)):
            wrong.append(f"{module.name}:{call.lineno} {name}")
    return wrong


def _is_layer(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "nn.Module" for base in node.bases)


def test_randomness_is_named() -> None:
    """Every draw comes from an `Rng`; layers draw their first weights as torch's own do, inside `zoo.initialised_by`."""
    assert [line for module in MODULES for line in _draws_globally(module)] == []


def test_the_public_api_is_as_written_down() -> None:
    """After a change that is meant: `make api`, and say in the changelog what to write instead."""
    written, found = SNAPSHOT.read_text().splitlines(), public_api().splitlines()
    difference = list(
        difflib.unified_diff(written, found, "tests/api_snapshot/public.txt", "the source", lineterm="", n=0)
    )
    if difference:
        pytest.fail("\n".join(["The public API has changed; if that is meant, run `make api`:", *difference]))


def test_the_checks_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that breaks every rule is caught by each of them."""
    import source_tree

    monkeypatch.setattr(source_tree, "SOURCE", tmp_path)
    place = tmp_path / "hesscope/linalg/bad.py"
    place.parent.mkdir(parents=True)
    place.write_text("from ..kron import x\nimport torch\ndef bad():\n    from ..cli import y\n    torch.randn(3)\n")
    module = Module(place)
    assert len(_looks_up(module)) == 2
    assert _draws_globally(module) == ["hesscope.linalg.bad:5 torch.randn"]
    assert "bad" in module.definitions()
