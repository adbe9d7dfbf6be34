"""Write docs/claims.md from what the experiments declare: every claim with its threshold, before any run."""

from __future__ import annotations

import re
from pathlib import Path

from hesscope.experiments import find, names

PAGE = Path(__file__).parents[1] / "claims.md"
PAPERS = {
    "dong2025": "Dong, Zhang, Yao, Sun: Towards Quantifying the Hessian Structure of Neural Networks",
    "wu2022": "Wu, Zhu, Wu, Wang, Ge: Dissecting Hessian",
    "cracking": "Cracking the Hessian",
    "liao2021": "Liao, Mahoney: Hessian Eigenspectra of More Realistic Nonlinear Models",
    "edges": "Our own claims on stability",
}
HEAD = """# Claims

What every experiment of `hesscope reproduce` claims, written down before it runs: `python docs/_site/claims.py` writes this page
from the code. A threshold follows from the paper's words or printed numbers ("paper") or from the errors of the measurement
("sampling theory"), never from what was measured; where the paper has words and no number, a "convention" says which number we
take them for. "Corrected" claims stand in the place of statements that are wrong as printed.
`hesscope reproduce NAME --seeds 5` judges them: holds, holds with correction, does not hold, not decidable at this size.
"""


def page() -> str:
    """The page as it should be."""
    parts = [HEAD]
    for paper, title in PAPERS.items():
        parts.append(f"## {title}\n")
        for name in names():
            if name.partition(".")[0] == paper:
                parts.append(_section(name))
    return "\n".join(parts)


def _section(name: str) -> str:
    experiment = find(name)
    rows = [f"### {name}\n\n{experiment.title} ({experiment.source})\n"]
    if experiment.chosen:
        rows.append(f"At the paper's size, chosen where the paper or the data leave it open: {experiment.chosen}\n")
    rows.append(
        "| claim | where | says | paper's number | expected | threshold from |\n| --- | --- | --- | --- | --- | --- |"
    )
    for one in experiment.claims:
        printed = "" if one.printed is None else f"{one.printed:.4g}"
        kind = "corrected; " if one.corrected else ""
        basis = f"{kind}{one.basis}: {one.because}"
        cells = (f"`{one.id}`", one.where, one.says, printed, one.expected, basis)
        rows.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def _cell(text: str) -> str:
    return re.sub(r"([|<>*_])", r"\\\1", text) if not text.startswith("`") else text


if __name__ == "__main__":
    PAGE.write_text(page())
