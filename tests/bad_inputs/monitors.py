"""Monitors: settings, data, optimisers, files; and runs that are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hesscope.errors import FileError

from .given import data, hs, inputs, labels, network
from .row import Row, command

HEAD = '{"hesscope-run": 1, "model": "Sequential", "parameters": 43}\n'


def monitor(**given: Any) -> Any:
    """A monitor where everything that is not given is in order."""
    model = given.pop("model", None) or network()
    loss, batch = given.pop("loss", "cross_entropy"), given.pop("data", "usual")
    settings = {"budget": None, "out": "mine/run.jsonl" if Path("mine").is_dir() else "run.jsonl", "on_error": "raise"}
    return hs.Monitor(model, loss, data() if isinstance(batch, str) else batch, **(settings | given))


def step(number: Any = 0, optimizer: Any = None, **given: Any) -> None:
    """One step of such a monitor, which leaves nothing behind."""
    made = monitor(**given)
    try:
        made.step(number, optimizer)
    finally:
        made.close()
        for path in (made.path, made.path.with_name("run.jsonl.state.npz")):
            path.unlink(missing_ok=True)


def _of_another_model() -> Any:
    other = network(1)
    optimizer = torch.optim.Adam(other.parameters())
    nn.functional.cross_entropy(other(inputs()), labels()).backward()
    optimizer.step()
    return optimizer


def _twice() -> None:
    first = monitor()
    try:
        monitor()
    finally:
        first.close()
        first.path.unlink()
        first.path.with_name("run.jsonl.state.npz").unlink()


def _file(text: str) -> Any:
    def write() -> None:
        Path("mine").mkdir()
        Path("mine/run.jsonl").write_text(text)

    return write


def _read_only() -> None:
    Path("mine").mkdir()
    Path("mine/run.jsonl").mkdir()


def _diverged() -> nn.Module:
    model = network()
    with torch.no_grad():
        model[0].weight[0, 0] = float("inf")
    return model


ROWS = [
    Row("budget-negative", lambda: monitor(budget=-0.02), "budget must be a share", "-0.02", "None"),
    Row("budget-zero", lambda: monitor(budget="0%"), "budget must be a share", "'0%'"),
    Row("budget-text", lambda: monitor(budget="two"), "budget must be a share", "'two'"),
    Row("budget-above-one", lambda: monitor(budget="200%"), "budget must be a share", "'200%'"),
    Row("budget-flag", lambda: monitor(budget=True), "budget must be a share", "True"),
    Row("every-zero", lambda: monitor(every=0), "every must be an integer", "0"),
    Row("every-fraction", lambda: monitor(every=2.5), "every must be an integer", "2.5"),
    Row("products-one", lambda: monitor(products=1), "products must be an integer", "1"),
    Row("tol-zero", lambda: monitor(tol=0.0), "tol must be > 0", "0"),
    Row("slow-every-none", lambda: monitor(slow_every=None), "slow_every must be an integer", "None"),
    Row("renew-every-text", lambda: monitor(renew_every="often"), "renew_every must be an integer", "'often'"),
    Row("batch-size-zero", lambda: monitor(batch_size=0), "batch_size must be an integer", "0"),
    Row("examples-zero", lambda: monitor(examples=0), "examples must be an integer", "0"),
    Row("on-error-word", lambda: monitor(on_error="ignore"), "on_error must be", "'ignore'"),
    Row("clock-number", lambda: monitor(clock=3.0), "clock must be a function", "3.0"),
    Row("out-number", lambda: monitor(out=3), "out must be a path", "3"),
    Row("tracker-unknown", lambda: monitor(to="excel"), "a tracker must be one of tensorboard", "'excel'"),
    Row("tracker-object", lambda: monitor(to=object()), "a tracker must have write", "object", "tensorboard"),
    Row("no-model", lambda: monitor(model="net"), "model must be a torch.nn.Module", "str"),
    Row(
        "data-of-another-width",
        lambda: monitor(data=(inputs(12, 9), labels())),
        "must run on the first batch",
        r"12, 9",
    ),
    Row("no-examples", lambda: monitor(data=(inputs(0), labels(0))), "at least one example", "0"),
    Row("non-finite-weights", lambda: monitor(model=_diverged()), "parameters must be finite", "0.weight"),
    Row("loss-unknown", lambda: monitor(loss="hinge2"), "loss", "hinge2"),
    Row("step-negative", lambda: step(-1), "step must be an integer", "-1"),
    Row("step-text", lambda: step("one"), "step must be an integer", "'one'"),
    Row(
        "optimizer-of-another-model",
        lambda: step(0, _of_another_model()),
        "optimiser must hold",
        "Adam of other tensors",
    ),
    Row("optimizer-is-none-of-torch", lambda: step(0, "adam"), "optimiser must be a torch", "str"),
    Row("two-into-one-file", _twice, "one run at a time", "at work", error=FileError),
    Row(
        "file-is-no-run",
        lambda: monitor(),
        "must begin with the line",
        "run.jsonl",
        "nothing was changed",
        error=FileError,
        files=_file('{"epoch": 1}\n'),
    ),
    Row(
        "file-is-text",
        lambda: monitor(),
        "must begin with the line",
        "run.jsonl",
        error=FileError,
        files=_file("notes of mine\n"),
    ),
    Row(
        "file-of-a-later-version",
        lambda: monitor(),
        "version 1",
        "7",
        files=_file('{"hesscope-run": 7}\n'),
    ),
    Row(
        "file-of-another-model",
        lambda: monitor(),
        "same model",
        "44 parameters",
        error=FileError,
        files=_file(HEAD.replace("43", "44")),
    ),
    Row(
        "file-damaged-in-the-middle",
        lambda: monitor(),
        "every line of a run",
        "line 2",
        error=FileError,
        files=_file(HEAD + "garbage\n" + json.dumps({"step": 3}) + "\n"),
    ),
    Row(
        "file-is-a-folder",
        lambda: monitor(),
        "a run is written to a file",
        "the folder",
        error=FileError,
        files=_read_only,
    ),
    Row("watch-nothing", command("watch", "mine/run.jsonl"), "must exist", "run.jsonl", error=3),
    Row(
        "watch-no-run",
        command("watch", "mine/run.jsonl", "--once"),
        "must begin with the line",
        "run.jsonl",
        error=3,
        files=_file("{}\n"),
    ),
    Row(
        "watch-backwards",
        command("watch", "mine/run.jsonl", "--seconds", "-1"),
        "seconds must be above 0",
        "-1",
        error=2,
        files=_file(HEAD),
    ),
    Row(
        "report-no-run",
        command("report", "mine/run.jsonl", "-o", "page.html"),
        "must begin with the line",
        "run.jsonl",
        error=3,
        files=_file("[1, 2]\n"),
    ),
    Row("column-unknown", lambda: hs.MonitoredRun("r", {}, ()).column("spikes"), "a column must be", "'spikes'"),
]
