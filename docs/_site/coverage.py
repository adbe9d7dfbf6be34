"""Write docs/coverage.md: every theorem, figure and table of the papers, what covers it, and how its claims fared."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from hesscope.experiments import names
from hesscope.experiments.running import verdict_counts

HERE = Path(__file__).parent
PAGE = HERE.parent / "coverage.md"
OUTCOMES = HERE.parent / "outcomes"
HEAD = """# Coverage

All theorems, algorithms, figures and tables of the four papers, item by item; `python docs/_site/coverage.py` writes this page from
`docs/_site/coverage.json` and the verdicts in `docs/outcomes` (over seeds, at the largest size that was run).
**full**: computed, and compared with the paper or an independent truth by a check that can fail. **partly**: at smaller size than the
paper's so far, or in part. **absent**: nothing computes it.
"""


def page() -> str:
    """The page as it should be."""
    items = json.loads((HERE / "coverage.json").read_text())
    papers = list(dict.fromkeys(item["paper"] for item in items))
    rows = []
    for paper in papers:
        count = Counter(item["status"] for item in items if item["paper"] == paper)
        rows.append(f"| {paper} | {sum(count.values())} | {count['full']} | {count['partly']} | {count['absent']} |")
    total = Counter(item["status"] for item in items)
    rows.append(f"| all | {len(items)} | {total['full']} | {total['partly']} | {total['absent']} |")
    parts = [
        HEAD,
        "| paper | items | full | partly | absent |\n| --- | --- | --- | --- | --- |\n" + "\n".join(rows) + "\n",
    ]
    for paper in papers:
        parts.append(f"## {paper}\n\n| item | covered by | status | verdicts |\n| --- | --- | --- | --- |")
        parts[-1] += "".join(f"\n{_row(item)}" for item in items if item["paper"] == paper) + "\n"
    return "\n".join(parts)


def _row(item: dict[str, Any]) -> str:
    said = [_verdicts(name) for name in item["by"] if name in names()]
    covered = ", ".join(f"`{by}`" for by in item["by"])
    cells = (
        _escaped(f"{item['id']}: {item['item']}"),
        covered,
        item["status"],
        "; ".join(text for text in said if text),
    )
    return "| " + " | ".join(cells) + " |"


def _verdicts(name: str) -> str:
    for size in ("paper", "default", "quick"):
        file = OUTCOMES / f"{name}.{size}.json"
        if file.exists():
            kept = json.loads(file.read_text())
            counts = verdict_counts([claim["verdict"] for claim in kept["claims"]])
            seeds = f", {len(kept['seeds'])} seeds" if len(kept["seeds"]) > 1 else ""
            stand_in = ", stand-in data" if kept["stand_ins"] else ""
            return f"{name} ({size}{seeds}{stand_in}): {counts}"
    return ""


def _escaped(text: str) -> str:
    return re.sub(r"([|<>*_^])", r"\\\1", text)


if __name__ == "__main__":
    PAGE.write_text(page())
