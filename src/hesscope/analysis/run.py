"""The facade: a problem and a config give one result that the report, the figures and the ten lines are drawn from."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace

import torch
from torch import nn

from .. import deadline
from .._version import __version__
from ..arguments import is_count, need_call, need_count
from ..curvature import GaussNewton, Hessian, Problem
from ..curvature.data import first_examples
from ..curvature.given_problem import need_problem
from ..curvature.losses.parsing import SeparableLoss
from ..curvature.processes import any_process
from ..curvature.self_check import check
from ..errors import refuse
from ..layers.shared_captures import captures_shared
from ..operators.autocast import own_types
from ..operators.content import digest
from ..operators.counted import Watch
from ..results.analysis import Analysis
from ..results.plan import (
    CHECK,
    GN_SPECTRUM,
    LANDSCAPE,
    LARGEST,
    LAYER_TABLE,
    PARTS,
    SECOND,
    SMALLEST,
    SPECTRUM,
    TRACE,
    AnalysisPlan,
)
from ..results.spectra import Eigenpairs, Estimate
from .checkpoints import history
from .claims import claims_of
from .config import AnalyzeConfig as AnalyzeConfig
from .context import Context
from .landscape_stage import landscape_around
from .layer_table import table_of_layers
from .layers import MOST_VECTOR_ENTRIES, block_maps, kronecker
from .planning import make_plan
from .prices import measure_prices, parse_budget
from .provenance import provenance_of
from .spectra import closest_law, density_of, gauss_newton_parts, largest, smallest, trace_by_products, trace_of
from .stages import Stages, kept_plan


@own_types()
def analyze(
    problem: Problem,
    config: AnalyzeConfig = AnalyzeConfig(),  # noqa: B008 (frozen)
    *,
    checkpoints: Mapping[str, Problem] | None = None,
    title: str = "",
    source: str = "",
    budget: float | str | None = "5m",
    on_plan: Callable[[AnalysisPlan], None] | None = None,
    resume: str | os.PathLike[str] | None = None,
    watch: Watch | None = None,
) -> Analysis:
    """Spectrum, ends, trace, H = G + R, blocks and Kronecker factors of one loss Hessian, with what they cost.

    Some hundreds of products at the defaults. `checkpoints` (label -> problem, same parameters) adds the history of
    training. `budget` ("5m", "90s", seconds): one gradient and one product are timed, stages are planned by value per
    price, `on_plan` is told first, and what was left out or cut off is named with its price in `.plan`; None runs
    everything. `resume`: a folder; the same call goes on where a stopped one was, with the plan it had, and another
    one takes the stages whose own settings did not change. `watch(stage, expected_products)` is told of each stage and
    returns the callback that `Counted` reports to.
    """
    _check_arguments(problem, config, checkpoints, watch)
    need_call("on_plan", on_plan, "It is called with the plan before the first stage.")
    seconds = parse_budget(budget)
    with Stages(resume, _fingerprint(problem, checkpoints)) as stages, captures_shared(problem):
        return _measure(Context(problem, config, stages, watch), checkpoints, title, source, seconds, on_plan)


def _check_arguments(problem: Problem, config: AnalyzeConfig, checkpoints: object, watch: object) -> None:
    need_problem(problem)
    if not isinstance(config, AnalyzeConfig):
        refuse("config must be an AnalyzeConfig", type(config).__name__, "Write hs.AnalyzeConfig(k=20).")
    if not (is_count(config.k, 3) and is_count(config.smallest, 1)):
        refuse(
            "k must be >= 3 and smallest >= 1", f"k={config.k}, smallest={config.smallest}", "The default is 20 and 3."
        )
    need_count("decouple", config.decouple, 0, "0 compares no layer.")
    need_count("probes", config.probes, 1, "The default is 10.")
    need_count("steps", config.steps, 1, "The default is 80.")
    need_call("watch", watch, "It is called with each stage and its expected products.")
    if checkpoints is not None and not isinstance(checkpoints, Mapping):
        refuse("checkpoints must be problems by label", type(checkpoints).__name__, "Pass {label: problem}.")
    for label, one in (checkpoints or {}).items():
        if need_problem(one).space != problem.space:
            refuse(
                "checkpoints must have the parameters of the problem",
                f"other names or shapes at {label!r}",
                "Make them with problem.at(state).",
            )


def _measure(
    run: Context,
    checkpoints: Mapping[str, Problem] | None,
    title: str,
    source: str,
    budget: float | None,
    on_plan: Callable[[AnalysisPlan], None] | None,
) -> Analysis:
    """All stages of one analysis, in order."""
    problem, config = run.problem, run.config
    if problem.distributed and any_process(next(iter(problem.batches), None) is None, problem.device):
        refuse("an analysis needs examples in every process", "a process without any", "Share the data more evenly.")
    gradient = problem.gradient()  # first, because its pass also finds the unused parameters that the check asks for
    pass_seconds = deadline.now() - run.started
    verdict = check(problem) if config.check else None
    check_seconds = deadline.now() - run.started - pass_seconds
    if verdict is not None and not verdict.passed:
        run.notes.append("The self-check of the derivatives failed; every number here may be wrong.")
    # Which method is fastest is measured, so a second measurement may choose another: a run that goes on keeps its own.
    method = run.stages.keep("method", lambda: Hessian(problem).method)
    hessian = Hessian(problem, method=method)  # type: ignore[arg-type]
    G = GaussNewton(problem) if config.gauss_newton and problem.has_outputs else None

    def planned() -> AnalysisPlan:
        prices = None if budget is None else measure_prices(problem, pass_seconds, hessian, G)
        spent = deadline.now() - run.started - check_seconds
        return make_plan(problem, config, prices, len(checkpoints or ()), budget, spent)

    run.plan = kept_plan(run.stages, planned, (config, budget))
    if on_plan is not None:
        on_plan(run.plan)
    run.plan = run.plan.noted(CHECK, check_seconds)
    top = run.planned(LARGEST, lambda: largest(run, hessian))
    bottom = run.planned(SMALLEST, lambda: smallest(run, hessian))
    whole = run.planned(TRACE, lambda: trace_of(run, TRACE, hessian))
    density = run.planned(SPECTRUM, lambda: density_of(run, SPECTRUM, hessian))
    nothing: tuple[Estimate | None, Estimate | None] = (None, None)
    parts, part = nothing if G is None else run.optional(PARTS, lambda: _of_gauss_newton(run, G, top), nothing)
    part_density = None if G is None else run.optional(GN_SPECTRUM, lambda: density_of(run, GN_SPECTRUM, G), None)
    sharp = density.size * density.moment_stderr(1) < 0.01 * abs(float(whole))
    again = None if sharp else run.optional(SECOND, lambda: trace_by_products(run, hessian, top), None)
    blocks = block_maps(run)
    compared, prediction = kronecker(run)
    around = run.optional(LANDSCAPE, lambda: landscape_around(run, top), None)
    table = run.optional(LAYER_TABLE, lambda: table_of_layers(run, compared), None)
    along = history(run, checkpoints) if checkpoints else None
    analysis = Analysis(
        title=title or type(problem.model).__name__,
        model=str(problem.model),
        parameters=dict(zip(problem.space.names, problem.space.shapes, strict=True)),
        layers=tuple(dict.fromkeys(name.rpartition(".")[0] or name for name in problem.space.names)),
        classes=_classes(problem),
        rows=problem.totals[1],
        loss=problem.loss_value(),
        gradient_norm=float(torch.linalg.vector_norm(gradient.double())),
        unused=problem.unused,
        verdict=verdict,
        largest=_kept(top),
        smallest=_kept(bottom),
        gauss_newton_parts=parts,
        trace=whole,
        gauss_newton_trace=part,
        trace_by_products=again,
        density=density,
        gauss_newton_density=part_density,
        blocks=blocks,
        kronecker=compared,
        prediction=prediction,
        fit=closest_law(density, problem.space.size) if config.fit else None,
        history=along,
        claims=(),
        notes=(*run.notes, *run.plan.omissions()),
        settings=asdict(config),
        provenance=provenance_of(source, str(problem.dtype), str(problem.device), _data(problem)),
        seconds=deadline.now() - run.started,
        landscape=around,
        layer_table=table,
        plan=run.plan,
    )
    run.stages.rest()
    return replace(analysis, claims=claims_of(analysis))


def _of_gauss_newton(run: Context, G: GaussNewton, top: Eigenpairs) -> tuple[Estimate | None, Estimate | None]:
    return gauss_newton_parts(run, G, top), trace_of(run, "trace of G", G)


def _kept(pairs: Eigenpairs) -> Eigenpairs:
    """Vectors are part of the result while a file of them stays small."""
    rows, columns = pairs.vectors.shape
    return pairs if rows * columns <= MOST_VECTOR_ENTRIES else pairs.without_vectors()


def _classes(problem: Problem) -> int | None:
    if not (isinstance(problem.loss, SeparableLoss) and isinstance(problem.loss.module, nn.CrossEntropyLoss)):
        return None
    with torch.no_grad():
        terms = problem.evaluate(first_examples(next(iter(problem.batches)), 2), problem.parameters)
    outputs = getattr(terms, "f", None)
    return None if outputs is None else int(outputs.shape[-1])


def _data(problem: Problem) -> str:
    batches = sum(1 for _ in problem.batches)
    return f"{batches} {'batch' if batches == 1 else 'batches'}, {problem.totals[1]:g} rows or tokens that count"


def _fingerprint(problem: Problem, checkpoints: Mapping[str, Problem] | None) -> str:
    """What must agree for a stopped run to go on: version, parameters to the bit, loss, those of the checkpoints too."""
    losses = [(label, other.loss_value()) for label, other in (checkpoints or {}).items()]
    parts = (__version__, problem.space, problem.loss_value(), losses, digest(*problem.parameters.values()))
    return hashlib.sha256(repr(parts).encode()).hexdigest()
