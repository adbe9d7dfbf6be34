"""Algorithm 1: optimise a Gaussian posterior around trained weights for the smallest bound, then certify it."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch

from ...arguments import need_call
from ...curvature import Problem
from ...curvature.data import Batches, as_batches
from ...curvature.given_problem import need_problem
from ...errors import refuse
from ...operators.autocast import own_types
from ...operators.counted import Watch
from ...rng import Rng
from ..settings import METHODS, MethodName, PosteriorMethod, Settings
from .bases import Basis
from .certificate import Certificate, certify, gibbs_error, mean_error
from .initial import Init, prior_centre
from .run import Run
from .sample import Sample

_TEST_DRAWS = 30_000  # for reporting; nothing is certified from them


@own_types()
def optimize(
    problem: Problem,
    init: Init | None,
    method: MethodName | PosteriorMethod = "local",
    settings: Settings | None = None,
    *,
    test: Any = None,
    resume: str | os.PathLike[str] | None = None,
    watch: Watch | None = None,
    **changes: Any,
) -> Certificate:
    """min over (w, s, λ) of a bound on the error of N(w, s in a basis), prior N(init, λ I); then the certified bound.

    `problem` at trained weights; `init` the weights before training (a state_dict or a file), which must not depend on
    the problem's data. Methods: "base" (standard basis, Dziugaite & Roy 2017), "appr", "iter", "iter_decay" (Kronecker
    eigenbasis: once, every `refresh` epochs, ever later), "iter_m" (E[M] from weights alone), and "local", which is
    tighter and cheaper: variances from curvature, a draw per example, the 0-1 error and the inverted bound themselves,
    a prior scale per tensor. It needs a network of Linear layers that see each example once; "iter" takes any. A
    `PosteriorMethod` chooses these parts one by one.

    `changes` are fields of `Settings`. `test`: data as Problem.of takes them, only for reporting. `resume`: a folder;
    the same call goes on where a stopped one was. Wu et al. (2022), Section 6 and H; docs/theory/pacbayes.md.
    """
    if not (isinstance(method, PosteriorMethod) or method in METHODS):
        refuse("method must be known", f"{method!r}", f"There are: {', '.join(METHODS)}.")
    need_problem(problem)
    need_call("watch", watch, "It is called with each stage and its expected steps.")
    if not (settings is None or isinstance(settings, Settings)):
        refuse("settings must be Settings", type(settings).__name__, "Use hs.pacbayes.Settings(epochs=100).")
    held_out = None if test is None else as_batches(test, 1024, False, float("inf"))
    try:
        settings = replace(settings or Settings(), **changes)
    except TypeError:
        known = ", ".join(asdict(Settings()))
        refuse("settings must be fields of hs.pacbayes.Settings", f"{sorted(changes)}", f"There are: {known}.")
    settings.check()
    centre = prior_centre(problem, init)
    sample = Sample(problem)
    run = Run(problem, centre, sample, method, settings, resume)
    tell = watch(f"{run.method_name}: optimising the bound", settings.epochs * run.steps) if watch else None
    try:
        run.optimise(tell)
    finally:
        run.close()
    if watch:
        watch(f"{run.method_name}: drawing weights", 0)
    return _certified(run, problem, sample, held_out)


def _certified(run: Run, problem: Problem, sample: Sample, test: Batches | None) -> Certificate:
    started = time.process_time()
    rng = Rng(run.settings.seed).child("certificate")
    posterior, network = run.posterior, run.network
    found = certify(posterior, network, sample, run.settings, rng.child("train"))
    error_at_mean = mean_error(network, sample)
    seconds = run.seconds + time.process_time() - started
    tested = tested_mean = None
    if test is not None:
        held_out = Sample(problem._copy(batches=test))
        few = replace(run.settings, draws=min(run.settings.draws, max(held_out.size, _TEST_DRAWS)))
        tested = gibbs_error(network, held_out, few, rng.child("test"))[0]
        tested_mean = mean_error(network, held_out)
    bases = {name: basis for name, basis in posterior.bases.items() if basis.rows is not None}
    return Certificate(
        run.method_name,
        found,
        error_at_mean,
        tested,
        tested_mean,
        run.gradients,
        seconds,
        asdict(run.settings),
        np.array(run.history).reshape(-1, 2),
        {name: weight.cpu().numpy() for name, weight in posterior.weights().items()},
        {name: (2 * posterior.log_deviation(name).detach()).exp().cpu().numpy() for name in posterior.mean},
        {name: _array(basis.rows) for name, basis in bases.items()},
        {name: _array(basis.columns) for name, basis in bases.items() if basis.columns is not None},
        {name: _eigenvalues(basis) for name, basis in bases.items()},
    )


def _array(tensor: torch.Tensor | None) -> Any:
    assert tensor is not None
    return tensor.cpu().numpy()


def _eigenvalues(basis: Basis) -> Any:
    return _array(basis.curvature)
