"""The optimiser of a command line: a saved state, or a class with its settings."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import refuse
from .source import Loaded

# Where people keep an optimiser's state inside a checkpoint.
_KEYS = ("optimizer", "optimizer_state_dict", "optimizer_state", "optimizer_states", "optim")


@dataclass(frozen=True)
class ChosenOptimizer:
    """What --optimizer and --optimizer-class name; None leaves it to the source of the problem."""

    given: Any
    kind: str | None

    @classmethod
    def of(cls, text: str | None, kind: str | None) -> ChosenOptimizer:
        """Read before the problem is made, so that a mistake in the name costs nothing."""
        return cls(None if text is None else given_optimizer(text), kind)

    def on(self, loaded: Loaded) -> tuple[Any, str | None]:
        """An optimiser or a state dict for the problem, and the class of a state dict where it is known."""
        given = loaded.optimizer if self.given is None else self.given
        if given is None:
            refuse(
                "a step and its stability are that of an optimiser",
                "none",
                "Give --optimizer state.pt or --optimizer SGD:lr=0.1, or let the function return (problem, optimizer).",
            )
        if isinstance(given, dict) and "settings" in given:
            return _without_state(given, loaded.problem), str(given["kind"])
        return given, self.kind if isinstance(given, dict) else None


def _without_state(given: dict[str, Any], problem: Any) -> dict[str, Any]:
    """Settings as the state dict of an optimiser of all parameters, which has not stepped."""
    names = list(problem.space.names)
    everything = [name for name, _ in problem.model.named_parameters()]
    group = {**given["settings"], "params": [everything.index(name) for name in names], "param_names": names}
    return {"state": {}, "param_groups": [group]}


def given_optimizer(text: str) -> Any:
    """`state.pt`, as `torch.save(optimizer.state_dict(), "state.pt")` writes it (or a checkpoint that holds one); or a
    class and settings that need no state, such as `SGD:lr=0.1,momentum=0.9`."""
    kind, colon, settings = text.partition(":")
    if colon and kind.isidentifier() and not Path(text).exists():
        return _from_settings(kind, settings)
    return _from_file(Path(text))


def _from_file(path: Path) -> Any:
    import torch

    if not path.is_file():
        refuse(
            "an optimiser must be a file with its state, or a class with settings",
            repr(str(path)),
            'Save it with torch.save(optimizer.state_dict(), "state.pt"), or write SGD:lr=0.1,momentum=0.9.',
        )
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, pickle.UnpicklingError) as error:
        refuse(
            "an optimiser's file must hold tensors and numbers only (nothing in it is run)",
            f"{path.name!r} ({str(error).splitlines()[0][:120]})",
            'Save it with torch.save(optimizer.state_dict(), "state.pt").',
        )
    if isinstance(found, Mapping) and "param_groups" not in found:
        inside = [found[key] for key in _KEYS if key in found]
        found = inside[0] if inside else found
    if isinstance(found, list | tuple) and len(found) == 1:
        found = found[0]
    if not isinstance(found, Mapping | list | tuple):
        refuse(
            "an optimiser's file must hold its state_dict()",
            f"{type(found).__name__} in {path.name!r}",
            'Save it with torch.save(optimizer.state_dict(), "state.pt").',
        )
    return found


def _from_settings(kind: str, settings: str) -> Any:
    """A state dict of the class without any state, for all parameters of the problem."""
    import torch

    from ..step_stability.kinds import kind_named

    known = kind_named(kind)
    values = {}
    for setting in filter(None, settings.split(",")):
        name, equals, value = setting.partition("=")
        if not equals:
            refuse("a setting is written name=value", repr(setting), "For example SGD:lr=0.1,momentum=0.9.")
        values[name.strip()] = _value(name, value.strip())
    try:
        made = getattr(torch.optim, known.name)(
            [torch.zeros(1, 1, requires_grad=True, dtype=torch.float32, device="cpu")], **values
        )
    except (TypeError, ValueError) as error:
        refuse(f"{known.name} must take these settings", f"{settings!r} ({error})", "Name them as torch.optim does.")
    group = {key: value for key, value in made.param_groups[0].items() if key != "params"}
    return {"settings": group, "kind": known.name}


def _value(name: str, text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return float(text)
    except ValueError:
        refuse(f"{name} must be a number, true or false", repr(text), "For example SGD:lr=0.1,nesterov=true.")
