"""Draw every experiment from its largest run and write docs/gallery.md: paper by paper, each figure with its verdicts.

Figures come from the outcomes that `reproduce.py` keeps in build/reproduce/done; an experiment that has none there keeps
the pictures it has, unless it is named: then it is run again, at the largest size that takes no more than a minute.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image

from hesscope.experiments import find, names, outcome_figures, run_experiment
from hesscope.experiments.running import verdict_counts
from hesscope.plots.export import save_figures
from hesscope.results.claims import Outcome

ROOT = Path(__file__).parents[2]
OUT = ROOT / "docs" / "gallery"
PAGE = ROOT / "docs" / "gallery.md"
OUTCOMES = ROOT / "docs" / "outcomes"
DONE = ROOT / "build" / "reproduce" / "done"
SIZES = ("paper", "default", "quick")
PAPERS = {
    "dong2025": "Dong, Zhang, Yao, Sun: block structure",
    "wu2022": "Wu, Zhu, Wu, Wang, Ge: Dissecting Hessian",
    "cracking": "Cracking the Hessian",
    "liao2021": "Liao, Mahoney: generalised linear models",
    "edges": "Our own: stability of training steps",
}
HEAD = """# Gallery

The figures of four papers, drawn again, each with how its claims fared: the paper's words and printed numbers against what was measured.
**{held}** of the {count} claims that could be decided hold as printed, **{corrected}** hold with a correction
that the [errata](errata.md) explain, **{some}** hold at some seeds only, **{failed}** do not hold at the size that was run. Those that do not are shown
under their figure (below the claim that they continue, where they begin with "..."); all claims of an experiment unfold below, with the
paper's printed number wherever it prints one, our mean and spread over seeds, and the one over the other.
The thresholds are [declared](claims.md) with where they come from (the paper's words, sampling theory, a convention), none from a measured number; [coverage](coverage.md) lists the papers item by item with every setting that
differs from theirs, and `hesscope reproduce NAME --size paper` runs an experiment as the paper has it.
"""


def main(wanted: list[str]) -> None:
    """Draw those named, or all of which there is an outcome; then the page (`page` alone for nothing but that)."""
    OUT.mkdir(exist_ok=True)
    for name in () if wanted == ["page"] else wanted or names():
        size = _kept(name)
        if size is None and not wanted:
            continue
        experiment = find(name)
        if size is not None:
            outcome = Outcome.load(DONE / f"{name}.{size}")
        else:
            size = _short(name)
            outcome = run_experiment(experiment, experiment.sizes[size], stand_in=True)
        figures = {f"{name}-{key}": figure for key, figure in outcome_figures(outcome).items()}
        for old in OUT.glob(f"{name}-*.png"):
            old.unlink()
        with TemporaryDirectory() as drawn:
            images = [_small(path, OUT).name for path in save_figures(figures, drawn, formats=("png",))]
        entry = {"name": name, "size": size, "images": images}
        (OUT / f"{name}.json").write_text(json.dumps(entry, indent=1) + "\n")
        print(f"{name} at {entry['size']} size: {len(images)} figures")
    PAGE.write_text(page())


def _kept(name: str) -> str | None:
    """The largest size of which the whole outcome is at hand."""
    return next((size for size in SIZES if (DONE / f"{name}.{size}.json").exists()), None)


def _short(name: str) -> str:
    """The largest size with verdicts of which one seed took no more than a minute."""
    for size in SIZES:
        if (OUTCOMES / f"{name}.{size}.json").exists():
            ran = json.loads((OUTCOMES / f"{name}.{size}.json").read_text())
            if ran["seconds"] <= 60 * len(ran["seeds"]):
                return size
    return "quick"


def _small(path: Path, folder: Path) -> Path:
    """The picture at a page's width in 160 colours, chosen to cover what is rare too (colour bars): a tenth of the bytes."""
    with Image.open(path) as picture:
        picture.load()
    picture.thumbnail((1100, 1500))
    picture.convert("RGB").quantize(160, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
        folder / path.name, optimize=True
    )
    return folder / path.name


def page() -> str:
    """The page as it should be."""
    total: Counter[str] = Counter()
    parts, rows = [], []
    for paper, title in PAPERS.items():
        groups: Counter[str] = Counter()
        files = sorted(OUT.glob(f"{paper}.*.json"), key=_order)
        parts.append(f"## {title}\n")
        parts += [_section(json.loads(file.read_text()), groups) for file in files]
        anchor = re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")
        counts = " | ".join(str(groups[group]) for group in GROUPS)
        rows.append(f"| [{title}](#{anchor}) | {len(files)} | {counts} |")
        total += groups
    held, corrected, some, failed, _ = (total[group] for group in GROUPS)
    head = HEAD.format(held=held, corrected=corrected, some=some, failed=failed, count=held + corrected + some + failed)
    names = " | ".join(("", "experiments", *GROUPS))
    return "\n".join([head, f"|{names} |\n{'| --- ' * 7}|", *rows, "", *parts])


def _order(file: Path) -> list[Any]:
    """Figures and tables in the paper's order (fig2 before fig10), then what has no number of its own."""
    name = file.stem.partition(".")[2]
    parts = [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]
    return [0 if name.startswith(("fig", "table")) else 1, *parts]


def _section(entry: dict[str, Any], groups: Counter[str]) -> str:
    name = entry["name"]
    experiment = find(name)
    lines = [f"### {experiment.title}\n", f"{experiment.source}; `hesscope reproduce {name}`\n"]
    lines += [f"![{_caption(experiment.title, image, entry)}](gallery/{image})\n" for image in entry["images"]]
    size = next((one for one in SIZES if (OUTCOMES / f"{name}.{one}.json").exists()), None)
    if size is None:
        return "\n".join([*lines, "**Verdict**: not judged over seeds yet.\n"])
    kept = json.loads((OUTCOMES / f"{name}.{size}.json").read_text())
    groups.update(_group(claim) for claim in kept["claims"])
    seeds = f"{len(kept['seeds'])} seeds" if len(kept["seeds"]) > 1 else "one seed"
    stand_in = f"; synthetic data stand in for {', '.join(kept['stand_ins'])}" if kept["stand_ins"] else ""
    drawn = "" if size == entry["size"] else f"; drawn at {entry['size']} size"
    counts = verdict_counts([claim["verdict"] for claim in kept["claims"]])
    lines.append(f"**Verdict** ({size} size, {seeds}{stand_in}{drawn}): {counts}.\n")
    loud = _with_what_they_continue(kept["claims"])
    if loud:
        lines.append(_table(loud))
    count = len(kept["claims"])
    lines.append(f"<details markdown>\n<summary>{count} claims, number beside number</summary>\n")
    lines.append(_table(kept["claims"]) + "\n</details>\n")
    return "\n".join(lines)


def _caption(title: str, image: str, entry: dict[str, Any]) -> str:
    """What the picture is of; where there are several, with the name of each."""
    if len(entry["images"]) == 1:
        return str(title)
    key = image.removeprefix(f"{entry['name']}-").removesuffix(".png")
    return f"{title}: " + re.sub(r"(fig\d+)_(?=\d)", r"\1-", key).replace("_", " ")


def _with_what_they_continue(claims: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Claims that do not hold at every seed, and before one that begins with "..." those whose sentence it goes on with."""
    shown: set[int] = set()
    for place, claim in enumerate(claims):
        if _group(claim) in LOUD:
            shown.add(place)
            while place and claims[place]["statement"].startswith("..."):
                place -= 1
                shown.add(place)
    return [claims[place] for place in sorted(shown)]


def _table(claims: list[dict[str, Any]]) -> str:
    names = " | ".join(("claim", "expected", "paper", "ours", "ratio", "verdict"))
    return f"| {names} |\n{'| --- ' * 6}|" + "".join(f"\n{_row(claim)}" for claim in claims) + "\n"


LOUD = ("does not hold", "holds at some seeds")
GROUPS = ("holds", "holds with correction", "holds at some seeds", "does not hold", "not decidable at this size")


def _group(claim: dict[str, Any]) -> str:
    words = re.sub(r" \(\d+ of \d+\)", "", claim["verdict"])
    return "holds at some seeds" if words.startswith("holds at") else words


def _row(claim: dict[str, Any]) -> str:
    values = [value for value in claim["values"] if value is not None]
    spread = f" ({min(values):.3g} to {max(values):.3g})" if len(values) > 1 else ""
    why = next(iter(claim.get("undecided", ())), "")
    ours = _escaped(why) if claim["mean"] is None else f"{claim['mean']:.3g}{spread}"
    paper = "" if claim["printed"] is None else f"{claim['printed']:.4g}"
    ratio = "" if claim["ratio"] is None else f"{claim['ratio']:.3g}"
    cells = (_escaped(claim["statement"]), _escaped(claim["expected"]), paper, ours, ratio, claim["verdict"])
    return "| " + " | ".join(cells) + " |"


def _escaped(text: str) -> str:
    return re.sub(r"([|<>*_^])", r"\\\1", text)


if __name__ == "__main__":
    main(sys.argv[1:])
