"""One optimisation: its steps, and its state on disk after every epoch."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from math import cos, log, pi
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...curvature import Hessian, Problem
from ...errors import refuse
from ...linalg.resuming.checkpoint import Store
from ...operators import Layout
from ...operators.content import digest
from ...operators.tensors import tensor_of
from ...rng import Rng
from ..bounds import Grid
from ..settings import METHODS, PosteriorMethod, Settings
from .bases import Basis, kronecker_bases, predicted_bases, standard_bases
from .curvature_start import scales_from_curvature
from .gaussian import Posterior
from .objective import InvertedBound, expected_error, relaxed_bound, scaled_cross_entropy
from .sample import Sample
from .stochastic import Noise, StochasticNetwork

_FIRST_LOG_PRIOR = 0.5 * log(0.02)
_SLOWEST = 0.02
_SOFT_SHARE = 0.5  # of the epochs: cross-entropy teaches the means under noise, then the 0-1 error is minimised itself
_WORTH_A_SCALE = 10_000  # examples; a prior scale of its own costs each tensor about 12 nats


class Run:
    """The posterior on its way, with counters; `optimise` goes on from the last epoch on disk."""

    def __init__(
        self,
        problem: Problem,
        centre: Mapping[str, Tensor],
        sample: Sample,
        method: str | PosteriorMethod,
        settings: Settings,
        resume: str | os.PathLike[str] | None,
    ) -> None:
        self.problem, self.sample, self.settings = problem, sample, settings
        self.method_name, self.method = (method, METHODS[method]) if isinstance(method, str) else (repr(method), method)
        self.grid = Grid(settings.precision, settings.ceiling)
        # Methods put together from parts are compared with each other, and with "local": the same draws for all.
        self.rng = Rng(settings.seed).child("pacbayes", method if isinstance(method, str) else "local")
        self.epoch, self.gradients, self.seconds = 0, 0, 0.0
        self.history: list[tuple[float, float]] = []
        self.inverted = InvertedBound()
        self.steps = -(-sample.size // settings.batch_size)
        own_scales = self.method.tensor_scales and sample.size >= _WORTH_A_SCALE
        self.posterior = Posterior(problem.parameters, centre, standard_bases(problem), own_scales)
        self.network = StochasticNetwork(problem, self.posterior, sample.take(slice(0, min(8, sample.size))))
        if self.method.local and self.network.last is None:
            refuse(
                "method='local' needs a network of Linear layers with parameters nowhere else, each of which sees every "
                "example once, the last giving the outputs",
                f"{type(problem.model).__name__}, which is not one",
                "Use method='iter'.",
            )
        self.store = None if resume is None else Store(resume, self._header(centre), Layout(problem.space.size))
        try:
            state = self.store.load() if self.store is not None else None
            if state is None:
                started = time.process_time()
                self._start()
                self.optimisers = self._optimisers()
                self.seconds = time.process_time() - started
            else:
                self._restore(state[0])
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let another run use the folder."""
        if self.store is not None:
            self.store.close()

    def optimise(self, tell: Callable[[int, float], object] | None = None) -> None:
        """The epochs that are left."""
        while self.epoch < self.settings.epochs:
            started = time.process_time()
            if self.method.refresh_at(self.epoch, self.settings.refresh):
                self.posterior.change_bases(self._bases())
                self.optimisers = self._optimisers()
            errors = self._one_epoch(tell)
            self.epoch += 1
            self.history.append((float(np.mean(errors)), float(self.posterior.divergence().detach())))
            self.seconds += time.process_time() - started
            if self.store is not None:
                self.store.save(self._state(), [], [])

    def _start(self) -> None:
        self.posterior.log_prior = torch.full_like(self.posterior.log_prior, _FIRST_LOG_PRIOR)
        if self.method.basis != "standard":
            self.posterior.change_bases(self._bases())
        self.posterior.below_ceiling(self.grid)
        if self.method.curved_variances:
            scales_from_curvature(self.posterior, self.sample.size, self.grid)
        else:
            self.posterior.scales_from_weights()

    def _bases(self) -> dict[str, Basis]:
        count = min(self.settings.basis_examples, self.sample.size)
        order = torch.randperm(self.sample.size, generator=self.rng.child("basis", self.epoch).torch(), device="cpu")
        part = self.sample.part(self.problem.at(self.posterior.weights(), partial=True), order[:count])
        return predicted_bases(part) if self.method.basis == "predicted" else kronecker_bases(part)

    def _optimisers(self) -> list[torch.optim.Optimizer]:
        means, variances = self.posterior.optimised()
        fast = {"params": variances, "first": self.settings.scale_rate}
        if self.method.newton_means:
            slow = {"params": means, "first": self.settings.newton_rate}
            return [torch.optim.SGD([slow], lr=0.0, momentum=0.9), torch.optim.Adam([fast], betas=(0.9, 0.99))]
        return [torch.optim.Adam([{"params": means, "first": self.settings.rate}, fast], betas=(0.9, 0.99), fused=True)]

    def _precondition(self) -> None:
        """∇ becomes B s ∇ for batches of B: s is about 1/(m h), so this is B/m of a Newton step, as the noise of a batch
        allows, and flat directions do not jitter."""
        with torch.no_grad():
            for name, mean in self.posterior.mean.items():
                assert mean.grad is not None
                mean.grad.mul_((2 * self.posterior.log_deviation(name)).exp().mul_(self.settings.batch_size))

    def _one_epoch(self, tell: Callable[[int, float], object] | None) -> list[float]:
        order = torch.randperm(self.sample.size, generator=self.rng.child("order", self.epoch).torch(), device="cpu")
        noise = self.rng.child("noise", self.epoch).torch()
        errors = []
        for step, which in enumerate(torch.split(order, self.settings.batch_size)):
            done = (self.epoch * self.steps + step) / (self.settings.epochs * self.steps)
            for group in (group for optimiser in self.optimisers for group in optimiser.param_groups):
                group["lr"] = group["first"] * max(_SLOWEST, 0.5 * (1 + cos(pi * done)))
            errors.append(self._step(self.sample.take(which), noise))
            if tell is not None:
                tell(self.gradients, self.seconds)
        return errors

    def _step(self, batch: Any, noise: torch.Generator) -> float:
        drawn: Noise = "example" if self.method.example_draws else "batch"
        if self.method.exact_error and self.epoch >= _SOFT_SHARE * self.settings.epochs:
            error = expected_error(*self.network.last_gaussian(batch, drawn, noise), noise)
        else:
            error = scaled_cross_entropy(*self.network.logits(batch, drawn, noise))
        if self.method.inverted_bound:
            objective = self.inverted(error, self._complexity())
        else:
            objective = relaxed_bound(error.double().cpu(), self._complexity())
        for optimiser in self.optimisers:
            optimiser.zero_grad()
        torch.autograd.backward(objective)
        if self.method.newton_means:
            self._precondition()
        for optimiser in self.optimisers:
            optimiser.step()
        self.posterior.below_ceiling(self.grid)
        self.gradients += 1
        return float(error.detach())

    def _complexity(self) -> Tensor:
        price = self.posterior.union_price(self.grid) + log(self.sample.size / self.settings.delta)
        return (self.posterior.divergence() + price) / (self.sample.size - 1)

    def _header(self, centre: Mapping[str, Tensor]) -> dict[str, Any]:
        return {
            "format": 2,
            "algorithm": f"pacbayes {self.method_name}",
            "problem": Hessian(self.problem).fingerprint,
            "init": digest(*centre.values()),
            "settings": asdict(self.settings),
        }

    def _state(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "epoch": self.epoch,
            "gradients": self.gradients,
            "seconds": self.seconds,
            "history": np.array(self.history),
            "running_error": np.nan if self.inverted.error is None else self.inverted.error,
            "log_prior": self.posterior.log_prior.detach().numpy(),
        }
        for i, name in enumerate(self.posterior.mean):
            basis = self.posterior.bases[name]
            parts = {"mean": self.posterior.mean[name], "log_scale": self.posterior.log_scale[name]}
            parts |= {key: value for key, value in vars(basis).items() if value is not None}
            parts |= dict(zip(("row_bend", "column_bend"), self.posterior.log_curvature.get(name, ()), strict=False))
            state |= {f"{key}-{i}": value.detach().cpu().numpy() for key, value in parts.items()}
        for number, optimiser in enumerate(self.optimisers):
            for index, moments in optimiser.state_dict()["state"].items():
                kept = {key: np.asarray(tensor_of(v).cpu()) for key, v in moments.items() if v is not None}
                state |= {f"optimiser-{number}-{index}-{key}": value for key, value in kept.items()}
        return state

    def _restore(self, state: Mapping[str, Any]) -> None:
        self.epoch, self.gradients = int(state["epoch"]), int(state["gradients"])
        self.seconds = float(state["seconds"])
        self.history = [(float(a), float(b)) for a, b in state["history"]]
        error = float(state["running_error"])
        self.inverted = InvertedBound(None if np.isnan(error) else error)
        posterior = self.posterior
        posterior.log_prior = torch.from_numpy(state["log_prior"])
        for i, name in enumerate(list(posterior.mean)):
            like = self.problem.parameters[name]

            def read(key: str, i: int = i, like: Tensor = like) -> Tensor | None:
                found = state.get(f"{key}-{i}")
                return None if found is None else torch.from_numpy(found).to(like)

            basis = Basis(read("rows"), read("columns"), read("row_values"), read("column_values"))
            posterior.bases[name] = basis
            posterior.prior[name] = basis.into(posterior.weights_before[name])
            posterior.mean[name] = torch.from_numpy(state[f"mean-{i}"]).to(like)
            posterior.log_scale[name] = torch.from_numpy(state[f"log_scale-{i}"]).to(like)
            row, column = read("row_bend"), read("column_bend")
            if row is not None and column is not None:
                posterior.log_curvature[name] = row, column
        self.optimisers = self._optimisers()
        for number, optimiser in enumerate(self.optimisers):
            saved: dict[int, dict[str, Tensor]] = {}
            for key, value in state.items():
                if key.startswith(f"optimiser-{number}-"):
                    _, _, index, moment = key.split("-", 3)
                    saved.setdefault(int(index), {})[moment] = torch.from_numpy(np.array(value))
            optimiser.load_state_dict({"state": saved, "param_groups": optimiser.state_dict()["param_groups"]})
