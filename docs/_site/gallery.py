"""Run every experiment at quick size and keep its figures for the gallery page."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from hesscope.experiments import find, names, outcome_figures, run_experiment
from hesscope.plots.export import save_figures

OUT = Path(__file__).parents[1] / "gallery"


def main(wanted: list[str]) -> None:
    """Draw the experiments named, or all."""
    OUT.mkdir(exist_ok=True)
    for name in wanted or names():
        experiment = find(name)
        outcome = run_experiment(experiment, experiment.quick, stand_in=True)
        figures = {f"{name}-{key}": figure for key, figure in outcome_figures(outcome).items()}
        with TemporaryDirectory() as drawn:
            images = [_small(path, OUT).name for path in save_figures(figures, drawn, formats=("png",))]
        claims = [{"statement": claim.statement, "verdict": claim.verdict} for claim in outcome.claims]
        entry = {
            "name": name,
            "title": experiment.title,
            "source": experiment.source,
            "images": images,
            "claims": claims,
        }
        (OUT / f"{name}.json").write_text(json.dumps(entry, indent=1))
        print(f"{name}: {len(images)} figures")


def _small(path: Path, folder: Path) -> Path:
    """The picture at a page's width in 96 colours: a tenth of the bytes."""
    with Image.open(path) as picture:
        picture.load()
    picture.thumbnail((1000, 1400))
    picture.convert("RGB").quantize(96, dither=Image.Dither.NONE).save(folder / path.name, optimize=True)
    return folder / path.name


if __name__ == "__main__":
    main(sys.argv[1:])
