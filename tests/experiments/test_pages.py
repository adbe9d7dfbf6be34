"""The pages that docs/_site writes: what they must not hide."""

from __future__ import annotations

import importlib
import json
import re
import runpy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hesscope.experiments import find
from hesscope.experiments.recipe import Findings

SITE = Path(__file__).parents[2] / "docs" / "_site"


def _script(name: str) -> dict[str, Any]:
    return runpy.run_path(str(SITE / name))


def _rows(page: str, head: str) -> list[list[str]]:
    """The cells of the first table whose head begins so."""
    table = page[page.index(head) :].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()[2:]]


def test_coverage_says_of_every_item_whether_its_run_had_the_papers_settings() -> None:
    script = _script("coverage.py")
    page, items = script["page"](), json.loads((SITE / "coverage.json").read_text())
    *_, total = _rows(page, "| paper | items |")
    found = [script["settings"](item) for item in items]
    assert [int(cell) for cell in total[-3:]] == [found.count(one) for one in ("the paper's", "reduced", "—")]
    assert sum(map(int, total[-3:])) == len(items)
    by_id = {item["id"]: said for item, said in zip(items, found, strict=True)}
    assert by_id["A20"] == "the paper's"  # dong2025.spectra was run at --size paper
    assert by_id["A3"] == "—"  # a test of an identity
    assert by_id["A12"] == "reduced"  # d = C = 64 where the paper has 500
    assert "includes runs at reduced settings" in page
    for line in re.findall(r"(?m)^\| A12: .*$", page):
        assert "| full | reduced |" in line


def test_an_outcome_keeps_short_rows_of_numbers_and_leaves_out_curves() -> None:
    kept = _script("reproduce.py")["numbers"]
    data = {
        "one": 1.23456,
        "row": (1, 2),
        "ragged": ([1.0, 2.0], [3.0]),
        "long": list(range(30)),
        "inner": {"none": None},
    }
    assert kept(data) == {"one": 1.235, "row": [1, 2]}
    assert kept(np.array([1.0, np.nan])) == [1.0, None]  # JSON has no word for it


def test_the_gallery_shows_every_claim_no_half_sentence_and_no_two_pictures_of_one_name() -> None:
    script = _script("gallery.py")
    sections = script["page"]().split("\n### ")[1:]
    for section in sections:
        captions = re.findall(r"!\[([^]]*)\]", section)
        assert len(set(captions)) == len(captions), captions
        name = re.search(r"`hesscope reproduce (\S+)`", section)
        assert name is not None
        size = next((one for one in script["SIZES"] if (script["OUTCOMES"] / f"{name[1]}.{one}.json").exists()), None)
        if size is None:
            continue
        claims = json.loads((script["OUTCOMES"] / f"{name[1]}.{size}.json").read_text())["claims"]
        above, _, below = section.partition("<details markdown>")
        failing = [row for row in claims if row["verdict"].startswith(("does not", "holds at"))]
        assert len(_rows(below, "| claim | expected | paper | ours | ratio | verdict |")) == len(claims)
        shown = _rows(above, "| claim | expected") if failing else []
        assert len([row for row in shown if row[-1].startswith(("does not", "holds at"))]) == len(failing)
        assert not shown or not shown[0][0].startswith("..."), shown[0]


def test_what_unfolds_in_the_gallery_is_a_table_on_the_site() -> None:
    """Markdown inside <details> is text to a browser unless the site reads it."""
    config = {"docs_dir": str(SITE.parent), "markdown_extensions": ["tables"]}
    extensions = _script("hooks.py")["on_config"](config)["markdown_extensions"]
    section = _script("gallery.py")["page"]().split("\n### ")[1]
    html = importlib.import_module("markdown").markdown(section, extensions=extensions)  # which has no types
    assert "<table>" in html.partition("<details>")[2].partition("</details>")[0]


def _reproducing(folder: Path, clock: SimpleNamespace, commit: str, run: Callable[[Any], Findings]) -> Path:
    """Run cracking.fig1 at five seeds, as at this commit; the file of its outcome."""
    main = _script("reproduce.py")["main"]
    changed = {"OUT": folder / "out", "STATE": folder / "state", "time": clock, "_commit": lambda: commit}
    main.__globals__.update(changed, find=lambda name: replace(find(name), run=run))
    main(["cracking.fig1:quick"])
    return folder / "out" / "cracking.fig1.quick.json"


def test_a_run_that_was_stopped_tells_the_commits_and_the_seconds_of_all_its_starts(tmp_path: Path) -> None:
    now = [0.0]
    clock = SimpleNamespace(process_time=lambda: now[0])
    calls: list[int] = []

    def run(config: Any) -> Findings:
        calls.append(config.seed)
        now[0] += 10
        if len(calls) == 3:
            raise KeyboardInterrupt
        return find("cracking.fig1").run(config)

    with pytest.raises(KeyboardInterrupt):
        _reproducing(tmp_path, clock, "before", run)
    file = _reproducing(tmp_path, clock, "after", run)
    kept = json.loads(file.read_text())
    assert calls == [0, 1, 2, 2, 3, 4]
    assert (kept["commits"], kept["commit"], kept["seconds"]) == (["before", "after"], "after", 60.0)
    file.unlink()
    kept = json.loads(_reproducing(tmp_path, clock, "anew", run).read_text())
    assert (kept["commits"], kept["seconds"]) == (["anew"], 50.0)
