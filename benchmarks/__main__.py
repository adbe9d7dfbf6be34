"""Run every section, print the table, write each to its place in the Markdown page."""

from __future__ import annotations

import argparse
import importlib
import math
import platform
import re
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from .timing import Row

SECTIONS = {  # name: title, module, function
    "products": ("Products", "products", "mlp_rows"),
    "gpt": ("Products and memory of a transformer", "products", "gpt_rows"),
    "eigenpairs": ("Eigenpairs", "spectra", "eigen_rows"),
    "density": ("Spectral density", "spectra", "density_rows"),
    "trace": ("Trace", "spectra", "trace_rows"),
    "structure": ("Dense Hessians and block norms", "structure", "rows"),
    "kron": ("Kronecker factors and layer Hessians", "kron", "rows"),
    "theory": ("Closed forms and limits", "theory", "rows"),
    "readings": ("Readings along training", "readings", "rows"),
    "plans": ("Plans of transformers", "plans", "rows"),
    "processes": ("Memory of several processes", "processes", "rows"),
}


def _against(name: str, seconds: float, other: str, other_seconds: float, ratio: float, target: float) -> Row:
    """A comparison with one other way, where `ratio` is how many times longer that takes."""
    if math.isnan(ratio):
        return Row(name, f"{seconds:.1f} s", other, ratio, "none to compare with", True)
    goal = "none" if math.isnan(target) else f">= {target:.3g}x faster"
    return Row(name, "1", f"{ratio:.3g} ({other})", ratio, goal, not ratio < target)


HEADER = """# Benchmarks

Written by `make bench`. Within a section all contestants run in one process, interleaved where they are short, with
{threads} threads, torch {torch}, {machine}. Numbers are ratios within that run: gradients where the target is in gradients
(one gradient is a forward and a backward pass), otherwise how many times longer the best peer takes. The peers are
curvlinops 3.0.1, hessian-eigenthings 1.0.0a5, PyHessian 0.1 and BackPACK 1.7.1.

"""


def markdown(title: str, rows: list[Row]) -> str:
    """One section: a heading, a table, notes."""
    lines = [f"## {title}", "", "| work | ours | best peer | target | met |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {r.work} | {r.ours} | {r.best_peer} | {r.target} | {'yes' if r.met else 'no'} |" for r in rows]
    notes = [f"- {r.work}: {r.note}." for r in rows if r.note]
    return "\n".join([*lines, "", *notes, *([""] if notes else [])])


def write(place: Path, title: str, section: str) -> None:
    """Put one section in its place in the page; the others stay as they were."""
    old = place.read_text() if place.exists() else ""
    sections = dict(re.findall(r"^(## (?:[^\n]+))\n(.*?)(?=^## |\Z)", old, re.M | re.S))
    sections[f"## {title}"] = section.split("\n", 1)[1]
    known = [f"## {name}" for name, _, _ in SECTIONS.values()]
    body = "\n".join(f"{head}\n{sections[head].rstrip()}\n" for head in known if head in sections)
    header = HEADER.format(threads=torch.get_num_threads(), torch=torch.__version__, machine=platform.machine())
    place.write_text(header + body)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", choices=list(SECTIONS), default=list(SECTIONS))
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    table = Table("work", "ours", "best peer", "target", "met")
    for name in arguments.only:
        title, module, function = SECTIONS[name]
        print(f"{name} ...", flush=True)
        found = getattr(importlib.import_module(f".{module}", __package__), function)()
        rows = [row if isinstance(row, Row) else _against(*row) for row in found]
        for row in rows:
            met = "met" if row.met else "NOT MET"
            print(f"  {row.work}: {row.ours} | {row.best_peer} | {row.target} | {met} {row.note}", flush=True)
            table.add_row(row.work, row.ours, row.best_peer, row.target, "yes" if row.met else "no")
        write(arguments.out, title, markdown(title, rows))
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
