"""Optimisers that are none, that belong to others, that never stepped or whose state is damaged."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn, optim

from .commands import user
from .files import together
from .given import INF, NAN, data, hs, network, of
from .row import Row, command


def _stepped(kind: Any = optim.Adam, model: Any = None, parameters: Any = None, **settings: Any) -> tuple[Any, Any]:
    """A model and its optimiser after two steps."""
    model = network() if model is None else model
    x, y = data()
    optimizer = kind(model.parameters() if parameters is None else parameters(model), **{"lr": 0.01, **settings})
    for _ in range(2):
        optimizer.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(model(x), y))
        optimizer.step()
    return model, optimizer


def _read(change: Callable[[Any, Any], Any] | None = None, kind: Any = optim.Adam, **settings: Any) -> Any:
    """What is read after `change(model, optimizer)`, which may give another optimiser back."""
    model, optimizer = _stepped(kind, **settings)
    given = optimizer if change is None else change(model, optimizer)
    return hs.stability(of(model), optimizer if given is None else given)


def _spoil(key: str, value: float) -> Callable[[Any, Any], None]:
    def change(model: Any, optimizer: Any) -> None:
        optimizer.state[next(iter(model.parameters()))][key].view(-1)[1] = value

    return change


def _setting(**values: Any) -> Callable[[Any, Any], None]:
    return lambda model, optimizer: optimizer.param_groups[0].update(values)


def _state(**changes: Any) -> dict[str, Any]:
    state = copy.deepcopy(_stepped()[1].state_dict())
    return {**state, **changes}


def _read_state(state: Any, **settings: Any) -> Any:
    return hs.stability(of(_stepped()[0]), state, **settings)


class OwnStep(optim.Adam):
    """Steps as it likes."""

    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


def _half(state: dict[str, Any]) -> dict[str, Any]:
    """Without the state of one parameter."""
    del state["state"][0]
    return state


def _other_shape(state: dict[str, Any]) -> dict[str, Any]:
    state["state"][0]["exp_avg_sq"] = torch.ones(2, 2)
    return state


def _moved() -> Any:
    model, optimizer = _stepped()
    before = of(model)
    with torch.no_grad():
        next(iter(model.parameters())).add_(1.0)
    return hs.stability(before, optimizer)


def _only_first(model: Any) -> Any:
    return model[0].parameters()


def _mixed_signs(model: Any, optimizer: Any) -> Any:
    first, second = list(model[0].parameters()), list(model[2].parameters())
    return [optim.SGD(first, lr=0.1), optim.SGD(second, lr=0.1, maximize=True)]


def _file(value: Any) -> Callable[[], object]:
    return lambda: torch.save(value, "state.pt")


def _with(*writers: Callable[[], object]) -> Callable[[], None]:
    return together(user, *writers)


def _line(name: str, arguments: str, must: str, got: str, do: str = r"\w", **changes: Any) -> Row:
    call = command("stability", "mine.py:make", *arguments.split())
    return Row(name, call, must, got, do, **{"error": 2, "files": user, **changes})


OF = "the optimiser must hold the parameters of the model"
ROWS = [
    Row("optimizer-none", lambda: _read(lambda m, o: 5), "must be a torch.optim.Optimizer", "int", "trains the model"),
    Row("optimizer-text", lambda: _read(lambda m, o: "adam"), "must be a torch.optim.Optimizer", "str", r"\w"),
    Row("optimizer-class", lambda: _read(lambda m, o: optim.Adam), "must be a torch.optim.Optimizer", "type", r"\w"),
    Row("no-problem", lambda: hs.stability(network(), _stepped()[1]), "needs a Problem", "Sequential", "Problem.of"),
    Row("other-model", lambda: _read(lambda m, o: _stepped()[1]), OF, "Adam of other tensors", "state_dict"),
    Row(
        "never-stepped", lambda: _read(lambda m, o: optim.Adam(m.parameters())), "must have stepped", "0.weight", "step"
    ),
    Row(
        "never-stepped-adagrad",
        lambda: _read(lambda m, o: optim.Adagrad(m.parameters())),
        "must have stepped",
        "no step",
        "step",
    ),
    Row(
        "never-stepped-muon",
        lambda: _read(lambda m, o: [optim.Muon([m[0].weight, m[2].weight]), optim.SGD([m[0].bias, m[2].bias], lr=0.1)]),
        "must have stepped",
        "momentum_buffer",
        "step",
    ),
    Row(
        "misses-parameters", lambda: _read(parameters=_only_first), "must hold every parameter", r"2\.weight", r"only\("
    ),
    Row("twice", lambda: _read(lambda m, o: [o, o]), "one optimiser", "twice", "once"),
    Row("moved", _moved, "at the parameters that the optimiser holds now", "0.weight", "state_dict"),
    Row("lbfgs", lambda: _read(lambda m, o: optim.LBFGS(m.parameters())), "can be read", "closure", "AdamW"),
    Row("own-step", lambda: _read(kind=OwnStep), "the step must be that of torch.optim.Adam", "OwnStep", "state_dict"),
    Row("unknown-kind", lambda: _read(kind=optim.Rprop), "whose edge is known", "Rprop", "AdamW"),
    Row("nan", lambda: _read(_spoil("exp_avg_sq", NAN)), "must be finite", "exp_avg_sq", "diverged"),
    Row("infinite", lambda: _read(_spoil("exp_avg_sq", INF)), "must be finite", "exp_avg_sq", "diverged"),
    Row("negative", lambda: _read(_spoil("exp_avg_sq", -1.0)), "not negative", "exp_avg_sq", "diverged"),
    Row("nan-sum", lambda: _read(_spoil("sum", NAN), kind=optim.Adagrad), "must be finite", "'sum'", "diverged"),
    Row("no-eps", lambda: _read(lambda m, o: _zero(m, o)), "denominators must be positive", "0.weight", "eps"),
    Row("rate-nan", lambda: _read(_setting(lr=NAN)), "lr must be a number", "nan", r"\w"),
    Row("rate-zero", lambda: _read(_setting(lr=0.0)), "positive rate", "zero", r"\w"),
    Row("beta-one", lambda: _read(_setting(betas=(1.0, 0.9))), "first of betas", "1.0", r"\w"),
    Row("betas-one", lambda: _read(_setting(betas=0.9)), "betas must be two numbers", "0.9", r"\w"),
    Row("momentum-one", lambda: _read(_setting(momentum=1.0), kind=optim.SGD), "momentum must be", "1.0", r"\w"),
    Row("decay-too-large", lambda: _read(_setting(weight_decay=200.0), kind=optim.AdamW), "below 1", "200", r"\w"),
    Row("signs", lambda: _read(_mixed_signs), "all groups must minimise", "both", "game"),
    Row("state-empty", lambda: _read_state({}), "'state' and 'param_groups'", "nothing", "state_dict"),
    Row("state-of-model", lambda: _read_state(network().state_dict()), "'state' and 'param_groups'", "0.weight", r"\w"),
    Row("state-half", lambda: _read_state(_half(_state())), "must have stepped", "0.weight", r"\w"),
    Row(
        "state-no-params", lambda: _read_state(_state(param_groups=[{"lr": 1.0}])), "list its params", "without", r"\w"
    ),
    Row("state-shape", lambda: _read_state(_other_shape(_state())), r"shape \(5, 4\)", r"\(2, 2\)", "another model"),
    Row(
        "state-of-another",
        lambda: _read_state(_stepped(model=nn.Sequential(nn.Linear(4, 3)))[1].state_dict()),
        "one entry per parameter",
        "2 entries",
        "another model",
    ),
    Row("state-names", lambda: _read_state(_state(), names=["a", "b", "c", "d"]), "names=", "'a'", "0.weight"),
    Row("state-few-names", lambda: _read_state(_state(), names=["0.weight"]), "one entry per name", "4 entries", r"\w"),
    Row("state-kind", lambda: _read_state(_state(), kind="Lion"), "whose edge is known", "Lion", "AdamW"),
    Row("blocks-text", lambda: _read_by("layer"), "list of kinds", "'layer'", "neuron"),
    Row("blocks-unknown", lambda: _read_by(["rows"]), "list of kinds", "rows", "neuron"),
    Row("no-heads", lambda: _read_by(["head"]), "attention modules", "Sequential", r"\w"),
    Row("batch-size", lambda: _batches(batch_size=0), "batch_size must be", "0", r"\w"),
    Row("batch-size-all", lambda: _batches(batch_size=12), "at least 4 batches", "12 examples", r"\w"),
    Row("batches-few", lambda: _batches(batches=1), "batches must be", "1", r"\w"),
    Row("matrix", lambda: _edge(matrix="fisher"), "hessian or gauss_newton", "fisher", r"\w"),
    Row("start", lambda: _edge(start=torch.ones(3, 1)), "start must have shape", r"\(3, 1\)", "vectors"),
    _line("command-none", "", "stability are that of an optimiser", "none", "state.pt"),
    _line("command-no-file", "--optimizer state.pt", "a file with its state", "state.pt", "torch.save"),
    _line("command-class", "--optimizer Lion:lr=1", "whose edge is known", "Lion", "AdamW"),
    _line("command-setting", "--optimizer SGD:fast", "name=value", "fast", "SGD:lr"),
    _line("command-unknown-setting", "--optimizer SGD:speed=1", "take these settings", "speed", "torch.optim"),
    _line("command-number", "--optimizer SGD:lr=fast", "lr must be a number", "fast", r"\w"),
    _line("command-no-state", "--optimizer Adam:lr=0.1", "must have stepped", "no step", "step"),
    _line("command-list", "--optimizer state.pt", "state_dict", "int", "torch.save", files=_with(_file(3))),
    _line(
        "command-model-state",
        "--optimizer state.pt",
        "'state' and 'param_groups'",
        "0.weight",
        "torch.save",
        files=_with(lambda: torch.save(network().state_dict(), "state.pt")),
    ),
    _line(
        "command-pickle",
        "--optimizer state.pt",
        "nothing in it is run",
        "state.pt",
        "torch.save",
        files=_with(lambda: torch.save(network(), "state.pt")),
    ),
    _line(
        "command-text",
        "--optimizer state.pt",
        "nothing in it is run",
        "state.pt",
        "torch.save",
        files=_with(lambda: Path("state.pt").write_text("Dear diary")),
    ),
]


def _zero(model: Any, optimizer: Any) -> None:
    optimizer.param_groups[0]["eps"] = 0.0
    optimizer.state[next(iter(model.parameters()))]["exp_avg_sq"].zero_()


def _read_by(by: Any) -> Any:
    model, optimizer = _stepped()
    return hs.stability(of(model), optimizer, by=by)


def _batches(**settings: Any) -> Any:
    model, optimizer = _stepped()
    return hs.stability(of(model), optimizer, **settings)


def _edge(**settings: Any) -> Any:
    model, optimizer = _stepped()
    return hs.read_edge(of(model), optimizer, **settings)
