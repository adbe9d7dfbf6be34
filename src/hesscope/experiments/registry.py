"""Where experiments are found: every module of a paper's package that defines `EXPERIMENT`."""

from __future__ import annotations

import importlib
import pkgutil

from ..errors import refuse
from .recipe import Experiment


def names() -> tuple[str, ...]:
    """All experiments as `paper.name`, without importing them."""
    package = importlib.import_module("hesscope.experiments")
    found = []
    for paper in pkgutil.iter_modules(package.__path__):
        if paper.ispkg:
            folder = importlib.import_module(f"hesscope.experiments.{paper.name}")
            found += [f"{paper.name}.{m.name}" for m in pkgutil.iter_modules(folder.__path__) if m.name[0] != "_"]
    return tuple(sorted(found))


def find(name: str) -> Experiment:
    """The experiment called `paper.name`."""
    known = names()
    if name not in known:
        # Those of the paper that was meant: the whole list has grown too long to be read in a message.
        near = [n for n in known if n.partition(".")[0] == name.partition(".")[0]]
        shown = near or sorted({n.partition(".")[0] + ".*" for n in known})
        refuse(
            "an experiment must be one of `hesscope reproduce --list`", f"{name!r}", f"There are: {', '.join(shown)}."
        )
    experiment = importlib.import_module(f"hesscope.experiments.{name}").EXPERIMENT
    assert isinstance(experiment, Experiment)
    return experiment
