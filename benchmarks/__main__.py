"""Run every section, print the table, write it as Markdown."""

from __future__ import annotations

import argparse
import importlib
import math
import platform
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from .timing import Row

SECTIONS = {
    "products": ("products", "mlp_rows"),
    "gpt": ("products", "gpt_rows"),
    "eigenpairs": ("spectra", "eigen_rows"),
    "density": ("spectra", "density_rows"),
    "trace": ("spectra", "trace_rows"),
    "structure": ("structure", "rows"),
    "kron": ("kron", "rows"),
}


def _against(name: str, seconds: float, other: str, other_seconds: float, ratio: float, target: float) -> Row:
    """A comparison with one other way, where `ratio` is how many times longer that takes."""
    if math.isnan(ratio):
        return Row(name, f"{seconds:.1f} s", other, ratio, "none to compare with", True)
    goal = "none" if math.isnan(target) else f">= {target:.3g}x faster"
    return Row(name, "1", f"{ratio:.3g} ({other})", ratio, goal, not ratio < target)


def markdown(rows: list[Row]) -> str:
    lines = [
        "# Benchmarks",
        "",
        f"Written by `make bench`: one run, interleaved, {torch.get_num_threads()} threads, torch {torch.__version__}, "
        f"{platform.machine()}. Numbers are ratios within the run: gradients where the target is in gradients, otherwise "
        "how many times longer the best peer takes.",
        "",
        "| work | ours | best peer | target | met |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [f"| {r.work} | {r.ours} | {r.best_peer} | {r.target} | {'yes' if r.met else 'no'} |" for r in rows]
    notes = [f"- **{r.work}**: {r.note}." for r in rows if r.note]
    return "\n".join([*lines, "", "## Notes", "", *notes, ""])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", choices=list(SECTIONS), default=list(SECTIONS))
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    rows: list[Row] = []
    for name in arguments.only:
        module, function = SECTIONS[name]
        print(f"{name} ...", flush=True)
        found = getattr(importlib.import_module(f".{module}", __package__), function)()
        found = [row if isinstance(row, Row) else _against(*row) for row in found]
        for row in found:
            print(
                f"  {row.work}: {row.ours} | {row.best_peer} | {row.target} | {'met' if row.met else 'NOT MET'}",
                flush=True,
            )
        rows += found
    table = Table("work", "ours", "best peer", "target", "met")
    for row in rows:
        table.add_row(row.work, row.ours, row.best_peer, row.target, "yes" if row.met else "no")
    Console(width=150).print(table)
    arguments.out.write_text(markdown(rows))


if __name__ == "__main__":
    main()
