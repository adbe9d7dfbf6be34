"""Curvature along a run, in any training loop."""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn

from .._version import __version__
from ..arguments import is_count, need_count, shown
from ..curvature import Problem
from ..curvature.following import FollowingProblem
from ..curvature.gradient_mode import differentiable
from ..curvature.models.default_forward import Forward
from ..curvature.models.random_state import random_state_kept
from ..curvature.models.state import unwrap
from ..errors import refuse
from ..files import as_path
from ..folders import Closing
from ..linalg.validation import require_positive
from ..results.monitoring import MonitoredRun, Reading, load_run
from ..rng import Rng
from .budget import Budget, Clock, parse_share
from .own_batch import count_examples, held_out
from .reader import Reader, ReaderSettings
from .run_file import RunFile
from .sinks import Sink, checked_sinks, open_sinks
from .warm_state import restore_state, state_of

OnError = Literal["log", "raise"]
_LOG = logging.getLogger("hesscope.monitor")
_SAVING = 0.1  # of our own time may go into saving warm vectors


class Monitor(Closing):
    """Reads the curvature of a model while it is trained, on data of its own, and writes one JSON line per reading.

    Call `monitor.step(step, optimizer)` after every step of the optimiser. Training goes on bit for bit as without it:
    the monitor works on a private copy, and random states, modes, buffers and gradients are left alone. Whatever goes
    wrong in a reading is written down and logged, and never stops the training unless `on_error="raise"`.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Any = None,
        data: Any = None,
        *,
        every: int = 1,
        budget: str | float | None = "2%",
        out: str | os.PathLike[str] = "run.jsonl",
        params: str | Iterable[str] = "*",
        reduction: str | None = None,
        forward: Forward | None = None,
        freeze: bool = True,
        examples: int = 1024,
        batch_size: int | None = 32,
        tol: float = 0.02,
        products: int = 5,
        slow_every: int = 5,
        renew_every: int = 50,
        to: str | Sink | Iterable[str | Sink] = (),
        on_error: OnError = "log",
        memory: float | str | None = None,
        rng: Rng | int | None = None,
        clock: Clock = time.perf_counter,
    ) -> None:
        """model, loss, data, params, reduction, forward, memory: as in `Problem.of`; at most `examples` examples are kept.

        every: at most one reading in so many steps. budget: the share of the training time that readings may take,
        "2%" or 0.02; those that do not fit are left out. None for no limit.
        out: the file; a run that is in it already goes on. freeze: evaluate in eval mode, as held-out losses are.
        tol, products: readings stop at this relative error, or after so many products, and then say so.
        slow_every: trace, Gauss-Newton share, batch sharpness (of batches of `batch_size`) and block-diagonality at
        every so many readings. renew_every: the problem is made and proven anew, and new directions are looked for.
        to: trackers beside the file: "tensorboard", "wandb", "mlflow", "trackio", or objects with `write(step, numbers)`
        and `close()`.
        on_error: "log" or "raise". clock: what measures time.
        """
        if on_error not in ("log", "raise"):
            refuse('on_error must be "log" or "raise"', shown(on_error), "Leave it at 'log' to never stop a training.")
        if not callable(clock):
            refuse("clock must be a function that tells seconds", shown(clock), "Leave it out.")
        self._every, self._on_error = need_count("every", every), on_error
        self._budget = Budget(parse_share(budget), clock)
        require_positive("tol", tol)
        settings = ReaderSettings(
            tol,
            need_count("products", products, 2),
            need_count("slow_every", slow_every),
            need_count("renew_every", renew_every),
            None if batch_size is None else need_count("batch_size", batch_size),
        )
        need_count("examples", examples)
        chosen = checked_sinks(to)
        self.path = as_path(out, "out")
        self.last: Reading | None = None
        self._said: set[str] = set()
        self._seen, self._saved_at, self._save_cost = -1, 0.0, 0.0
        self._first, self._closed = True, False
        source = Rng.of(rng)
        # Other processes of a data-parallel training step on together with the one that reads.
        self._idle = dist.is_available() and dist.is_initialized() and dist.get_rank() != 0
        if self._idle:
            return
        self._budget.begin()
        with differentiable(), random_state_kept():
            kept = held_out(data, examples)
            model = unwrap(model)

            def make() -> Problem:
                return Problem.of(
                    model, loss, kept, params, reduction=reduction, forward=forward, freeze=freeze, memory=memory
                )

            following = FollowingProblem(model, make)
            self._reader = Reader(following, settings, source.child("monitor"), strict=on_error == "raise")
            problem = following.problem()
            self._device = problem.device
            described = {
                "version": __version__,
                "model": type(model).__name__,
                "parameters": problem.space.size,
                "loss": _named(loss),
                "examples": count_examples(problem.batches),
                "mode": "eval" if freeze else "as given",
                "every": every,
                "budget": self._budget.share,
                "tol": tol,
                "products": products,
            }
            self._file = RunFile(self.path, described)
            weakref.finalize(self, RunFile.close, self._file)
            self._go_on()
            try:
                self._sinks = open_sinks(chosen, self.path)
            except BaseException:
                self._file.close()
                raise
        self._budget.leave()

    def step(self, step: int, optimizer: Any = None) -> Reading | None:
        """Read the curvature if a reading is due and the budget allows it; the reading, or None.

        step: the number of steps taken so far, growing over the whole training. optimizer: the one that trains the
        model (or a list of them), for the preconditioned sharpness and its edge.
        """
        if self._idle or self._closed:
            return None
        self._budget.begin()
        try:
            # Most steps end here: asking must cost next to nothing beside a step of a small network.
            if not self._is_due(step) or not self._budget.allows(self._reader.kind):
                return None
            with differentiable(), random_state_kept():
                return self._read(int(step), optimizer, self._reader.kind)
        except Exception as error:
            self._complain(error)
            return None
        finally:
            self._budget.leave()

    def close(self) -> None:
        """Save what a restart needs, close trackers and let go of the file; harmless when done already."""
        if self._idle or self._closed:
            return
        self._closed = True
        with random_state_kept():
            for work in (self._save, *(sink.close for sink in self._sinks)):
                self._guarded(work)
        self._file.close()

    @property
    def run(self) -> MonitoredRun:
        """All readings so far, from the file."""
        return load_run(self.path)

    def _is_due(self, step: int) -> bool:
        """Whether a reading is due at this step, by `every`; steps must grow."""
        if not is_count(step, 0):
            refuse("step must be an integer >= 0", shown(step), "Pass the number of steps taken so far.")
        left = self._file.rewind(step) if self._first else None
        if left is not None:
            _LOG.info("%s: training goes on from step %d; later lines were moved aside", self.path, step)
            self._seen = left
        elif step <= self._seen:
            refuse(
                "steps must grow along the run",
                f"{step} after {self._seen}",
                "Count steps over the whole training, not within an epoch.",
            )
        self._first = False
        due = step // self._every != self._seen // self._every
        self._seen = int(step)
        return due

    def _read(self, step: int, optimizer: Any, kind: str) -> Reading:
        before = self._elapsed()
        failure: Exception | None = None
        try:
            found = self._reader.read(step, optimizer)
        except Exception as error:
            failure, found = error, Reading(step, error=f"{type(error).__name__}: {error}")
        self._budget.learn(kind, self._elapsed() - before)
        found = _timed(found, self._elapsed() - before, self._budget.used)
        self.last = found
        self._guarded(lambda: self._file.append(found))
        for sink in self._sinks:
            self._guarded(lambda sink=sink: sink.write(step, found.numbers()))
        if failure is not None:
            self._complain(failure)
        elif self._save_cost <= _SAVING * (self._budget.spent + self._budget.elapsed - self._saved_at):
            self._guarded(self._save)
        return found

    def _elapsed(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return self._budget.elapsed

    def _save(self) -> None:
        began = self._budget.elapsed
        self._file.save_state(*state_of(self._reader, self._budget))
        self._save_cost = self._budget.elapsed - began
        self._saved_at = self._budget.spent + self._budget.elapsed

    def _go_on(self) -> None:
        """Take up a run that is in the file already."""
        if self._file.before is not None:
            readings = self._file.before.readings
            self._seen = readings[-1].step if readings else -1
            state = self._file.load_state()
            if state is not None:
                restore_state(*state, self._reader, self._budget)

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except Exception as error:
            self._complain(error)

    def _complain(self, error: Exception) -> None:
        """Stop the training only where that was asked for; otherwise say it once."""
        if self._on_error == "raise":
            raise error
        message = f"{type(error).__name__}: {error}"
        if message not in self._said:
            self._said.add(message)
            _LOG.warning("no reading, training goes on: %s", message)


def _named(loss: Any) -> str:
    if loss is None:
        return "the model's own"
    return loss if isinstance(loss, str) else str(getattr(loss, "__name__", type(loss).__name__))


def _timed(reading: Reading, seconds: float, share: float | None) -> Reading:
    return replace(reading, seconds=round(seconds, 6), share=None if share is None else round(share, 6))
