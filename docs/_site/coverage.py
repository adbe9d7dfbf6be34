"""Write docs/coverage.md: every theorem, figure and table of the papers, what covers it, and how its claims fared."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from hesscope.experiments import find, names
from hesscope.experiments.running import verdict_counts
from hesscope.tables import plain

HERE = Path(__file__).parent
PAGE = HERE.parent / "coverage.md"
OUTCOMES = HERE.parent / "outcomes"
SIZES = ("quick", "default", "paper")
HEAD = """# Coverage

All theorems, algorithms, figures and tables of the four papers, item by item; `python docs/_site/coverage.py` writes this page from
`docs/_site/coverage.json` and the verdicts in `docs/outcomes` (over seeds, at the largest size that was run).
**full**: computed, and compared with the paper or an independent truth by a check that can fail; a figure or table counts only
once it was run beyond the quick size. **partly**: at quick size so far, or in part. **absent**: nothing computes it.

The number of full items includes runs at reduced settings: of {full} full items {exact} were run with the paper's settings, {reduced} with
reduced ones (smaller networks, less data, fewer epochs or runs, or stand-in data: the [end of this page](#settings-that-differ-from-the-papers)
names each), and {neither} are theory or a function, which need no run ("—").
"""
SETTINGS = ("the paper's", "reduced", "—")
DIFFERENT = """## Settings that differ from the papers'

Of the largest run of every experiment, what is not as at `--size paper`, and what that size itself leaves out or chooses.

| experiment | run | settings (paper's) | at the paper's size |
| --- | --- | --- | --- |
"""


def page() -> str:
    """The page as it should be."""
    items = json.loads((HERE / "coverage.json").read_text())
    papers = list(dict.fromkeys(item["paper"] for item in items))
    rows = []
    for paper in papers:
        rows.append(_totals(paper, [item for item in items if item["paper"] == paper]))
    rows.append(_totals("all", items))
    full = Counter(settings(item) for item in items if status(item) == "full")
    exact, reduced, neither = (full[one] for one in SETTINGS)
    columns = ("paper", "items", "full", "partly", "absent", *(f"settings: {one}" for one in SETTINGS))
    parts = [
        HEAD.format(full=full.total(), exact=exact, reduced=reduced, neither=neither),
        f"| {' | '.join(columns)} |\n{'| --- ' * len(columns)}|\n" + "\n".join(rows) + "\n",
    ]
    for paper in papers:
        parts.append(f"## {paper}\n\n| item | covered by | status | settings | verdicts |\n{'| --- ' * 5}|")
        parts[-1] += "".join(f"\n{_row(item)}" for item in items if item["paper"] == paper) + "\n"
    parts.append(DIFFERENT + "\n".join(_settings(name) for name in names() if _largest(name)) + "\n")
    return "\n".join(parts)


def _totals(name: str, items: list[dict[str, Any]]) -> str:
    """A row of the first table; the settings are those of all items, whatever their status."""
    statuses, ran = Counter(map(status, items)), Counter(map(settings, items))
    counts = [statuses[one] for one in ("full", "partly", "absent")] + [ran[one] for one in SETTINGS]
    return f"| {name} | {len(items)} | {' | '.join(map(str, counts))} |"


def settings(item: dict[str, Any]) -> str:
    """Of the largest runs behind an item: the paper's only if that is so of all of them; "—" where nothing is run."""
    runs = [name for name in item["by"] if name in names() and _largest(name)]
    if not runs:
        return "—"
    return "reduced" if any(_changed(name) for name in runs) else "the paper's"


def status(item: dict[str, Any]) -> str:
    """As written down; what needs a run beyond the quick size is "partly" until its outcome is there."""
    runs = [name for name in item["by"] if name in names()]
    small = item.get("size") and any((_largest(name) or "quick") == "quick" for name in runs)
    return "partly" if item["status"] == "full" and small else str(item["status"])


def _row(item: dict[str, Any]) -> str:
    said = [_verdicts(name) for name in item["by"] if name in names()]
    covered = ", ".join(f"`{by}`" for by in item["by"])
    cells = (
        _escaped(f"{item['id']}: {item['item']}"),
        covered,
        status(item) + (f": {item['missing']}" if status(item) != "full" and "missing" in item else ""),
        settings(item),
        "; ".join(text for text in said if text),
    )
    return "| " + " | ".join(cells) + " |"


def _largest(name: str) -> str | None:
    """The largest size with an outcome."""
    return next((size for size in reversed(SIZES) if (OUTCOMES / f"{name}.{size}.json").exists()), None)


def _outcome(name: str, size: str) -> Any:
    return json.loads((OUTCOMES / f"{name}.{size}.json").read_text())


def _verdicts(name: str) -> str:
    size = _largest(name)
    if size is None:
        return ""
    kept = _outcome(name, size)
    counts = verdict_counts([claim["verdict"] for claim in kept["claims"]])
    seeds = f", {len(kept['seeds'])} seeds" if len(kept["seeds"]) > 1 else ""
    stand_in = ", stand-in data" if kept["stand_ins"] else ""
    return f"{name} ({size}{seeds}{stand_in}): {counts}"


def _settings(name: str) -> str:
    size = _largest(name)
    assert size is not None
    experiment = find(name)
    cells = (
        name,
        size,
        _escaped("; ".join(_changed(name))) or "the paper's",
        _escaped(experiment.chosen) or "as in the paper",
    )
    return "| " + " | ".join(cells) + " |"


def _changed(name: str) -> list[str]:
    """What the largest run has otherwise than the paper: settings (a field added since counts as its default), data."""
    kept, paper = _outcome(name, str(_largest(name))), find(name).paper
    ran = {field.name: plain(field.default) for field in fields(paper)} | kept["settings"]
    wanted = plain(asdict(paper))
    changed = [f"{key} {_short(ran[key])} ({_short(wanted[key])})" for key in wanted if ran[key] != wanted[key]]
    return changed + [f"stand-in data ({one})" for one in kept["stand_ins"]]


def _short(value: Any) -> str:
    if value is None:
        return "all"
    if isinstance(value, list):
        return f"{len(value)} of them" if len(value) > 4 else ", ".join(_short(each) for each in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _escaped(text: str) -> str:
    return re.sub(r"([|<>*_^])", r"\\\1", text)


if __name__ == "__main__":
    PAGE.write_text(page())
