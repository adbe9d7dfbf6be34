"""The facade: a problem and a config give one result that the report, the figures and the ten lines are drawn from."""

from __future__ import annotations

import hashlib
import os
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from .._version import __version__
from ..curvature import GaussNewton, Hessian, Problem
from ..curvature.losses.parse import SeparableLoss
from ..errors import refuse
from ..linalg import SpectralDensity, eigenpairs, spectral_density, trace
from ..operators import Counted, LinearOperator
from ..partition import Kind
from ..results.analysis import Analysis, ExtremeValues, MeasuredSpectrum, TracePair, TrainingCourse
from ..rng import Rng
from ..structure import norm_products
from . import parts as survey
from .claims import claims_of
from .config import AnalyzeConfig as AnalyzeConfig
from .provenance import provenance_of
from .stages import Stages

Watch = Callable[[str, int], Callable[[int, float], None]]
MOST_VECTOR_ENTRIES = 4_000_000


def analyze(
    problem: Problem,
    config: AnalyzeConfig = AnalyzeConfig(),  # noqa: B008 (frozen)
    *,
    checkpoints: Mapping[str, Problem] | None = None,
    title: str = "",
    source: str = "",
    resume: str | os.PathLike[str] | None = None,
    watch: Watch | None = None,
) -> Analysis:
    """MeasuredSpectrum, ends, trace, H = G + R, blocks and Kronecker factors of one loss Hessian, with what they cost.

    Some hundreds of products at the defaults. `checkpoints` (label -> problem, same parameters) adds the course along
    training. `resume`: a folder; the same call goes on where a stopped one was. `watch(stage, expected_products)` is
    told of each stage and returns the callback that `Counted` reports to.
    """
    if config.k < 3 or config.smallest < 1:
        refuse(
            "k must be >= 3 and smallest >= 1", f"k={config.k}, smallest={config.smallest}", "The default is 20 and 3."
        )
    with Stages(resume, _fingerprint(problem, config, checkpoints)) as stages:
        return _measure(_Run(problem, config, stages, watch), checkpoints, title, source)


def _measure(run: _Run, checkpoints: Mapping[str, Problem] | None, title: str, source: str) -> Analysis:
    """All stages of one analysis, in order."""
    started, problem, config = time.perf_counter(), run.problem, run.config
    verdict = survey.verdict_of(problem) if config.check else None
    if verdict is not None and not verdict.passed:
        run.notes.append("The self-check of the derivatives failed; every number here may be wrong.")
    # Which method is fastest is measured, so a second measurement may choose another: a run that goes on keeps its own.
    method = run.stages.keep("method", lambda: Hessian(problem).method)
    hessian = Hessian(problem, method=method)  # type: ignore[arg-type]
    G = GaussNewton(problem) if config.gauss_newton and problem.has_outputs else None
    extremes = run.stages.run(ExtremeValues, "extremes", lambda: run.extremes(hessian, G))
    traces = run.stages.run(TracePair, "traces", lambda: run.traces(hessian, G))
    spectrum = run.stages.run(MeasuredSpectrum, "spectrum", lambda: run.spectrum("spectrum", hessian))
    gn_spectrum = (
        None if G is None else run.stages.run(MeasuredSpectrum, "gauss-newton", lambda: run.spectrum("gauss-newton", G))
    )
    blocks = run.blocks()
    decoupling, prediction = run.decoupling()
    course = run.stages.run(TrainingCourse, "course", lambda: run.course(checkpoints)) if checkpoints else None
    analysis = Analysis(
        title=title or type(problem.model).__name__,
        model=str(problem.model),
        parameters=dict(zip(problem.space.names, problem.space.shapes, strict=True)),
        layers=survey.layers_of(problem),
        classes=_classes(problem),
        rows=problem.totals[1],
        loss=problem.loss_value(),
        gradient_norm=float(torch.linalg.vector_norm(problem.gradient().double())),
        unused=problem.unused,
        verdict=verdict,
        extremes=extremes,
        traces=traces,
        spectrum=spectrum,
        gauss_newton=gn_spectrum,
        blocks=blocks,
        decoupling=decoupling,
        prediction=prediction,
        fit=None if not config.fit else survey.fit_law(spectrum.measure(), problem.space.size),
        course=course,
        claims=(),
        notes=tuple(run.notes),
        settings=asdict(config),
        provenance=provenance_of(source, str(problem.dtype), str(problem.device), _data(problem)),
        products=run.products + sum(part.products for part in (extremes, traces, spectrum, gn_spectrum) if part),
        seconds=time.perf_counter() - started,
    )
    run.stages.finish()
    return replace(analysis, claims=claims_of(analysis))


def measured(density: SpectralDensity, more_products: int = 0) -> MeasuredSpectrum:
    """A density in the form that results keep."""
    return MeasuredSpectrum(
        nodes=density.nodes,
        weights=density.weights,
        size=density.size,
        error=density.error,
        mean_stderr=density.moment_stderr(1),
        products=density.products + more_products,
    )


class _Run:
    """One analysis under way: what every stage shares."""

    def __init__(self, problem: Problem, config: AnalyzeConfig, stages: Stages, watch: Watch | None) -> None:
        self.problem, self.config, self.stages, self.watch = problem, config, stages, watch
        self.rng = Rng(config.seed).child("analyze")
        self.notes: list[str] = []
        self.products = 0

    def counted(self, stage: str, operator: LinearOperator, expected: int) -> Counted:
        return Counted(operator, on_product=self.watch(stage, expected) if self.watch else None)

    def extremes(self, hessian: Hessian, G: GaussNewton | None) -> ExtremeValues:
        config = self.config
        with warnings.catch_warnings():
            # What did not converge is said in the result and in the ten lines.
            warnings.simplefilter("ignore")
            top = eigenpairs(
                self.counted("largest eigenvalues", hessian, 3 * config.k),
                config.k,
                tol=config.tol,
                rng=self.rng,
                resume=self.stages.state("largest"),
            )
            low = eigenpairs(
                self.counted("smallest eigenvalues", hessian, 40 + 10 * config.smallest),
                config.smallest,
                "smallest",
                tol=max(config.tol, 1e-2),
                rng=self.rng,
                max_products=400,
                resume=self.stages.state("smallest"),
            )
        vectors = top.vectors
        products = top.products + low.products
        share = None
        if G is not None:
            image = self.counted("Gauss-Newton part", G, vectors.shape[1]).apply(vectors)
            share = (vectors.double() * image.double()).sum(0).cpu().numpy()
            products += vectors.shape[1]
        small = vectors.numel() <= MOST_VECTOR_ENTRIES
        return ExtremeValues(
            largest=top.values,
            largest_residuals=top.residuals,
            smallest=low.values,
            smallest_residuals=low.residuals,
            converged=bool(top.converged.all()),
            products=products,
            gauss_newton=share,
            vectors=vectors.float().cpu().numpy() if small else None,
        )

    def traces(self, hessian: Hessian, G: GaussNewton | None) -> TracePair:
        tol = self.config.trace_tol
        with warnings.catch_warnings():
            # A standard error that stays above the tolerance is shown beside the trace.
            warnings.simplefilter("ignore")
            whole = trace(self.counted("trace", hessian, 60), tol=tol, rng=self.rng)
            part = None if G is None else trace(self.counted("trace of G", G, 60), tol=tol, rng=self.rng)
        return TracePair(
            hessian=float(whole.value),
            hessian_stderr=float(whole.stderr),
            gauss_newton=None if part is None else float(part.value),
            gauss_newton_stderr=None if part is None else float(part.stderr),
            products=whole.products + (part.products if part else 0),
        )

    def spectrum(self, stage: str, operator: LinearOperator) -> MeasuredSpectrum:
        config = self.config
        found = spectral_density(
            self.counted(stage, operator, config.probes * config.steps // 4),
            config.probes if stage == "spectrum" else max(2, config.probes // 3),
            config.steps,
            rng=self.rng.child(stage),
            resume=self.stages.state(stage),
        )
        return measured(found)

    def blocks(self) -> tuple[survey.BlockMap, ...]:
        if not self.config.block_maps:
            return ()
        maps = []
        kinds: tuple[Kind, ...] = ("layer", "neuron")
        for kind in kinds:
            count = survey.block_count(self.problem, kind)
            if count < 2 or (kind != "layer" and count > self.config.most_blocks):
                self.notes.append(f"No block map by {kind}: {count:,} blocks.")
                continue
            price = norm_products(self.problem, kind) if kind != "layer" else 0
            if price > self.config.most_products:
                self.notes.append(f"No block map by {kind}: it takes {price:,} products (--most-products).")
                continue
            if self.watch:
                self.watch(f"blocks by {kind}", 0)
            measure = partial(survey.block_map, self.problem, kind)
            maps.append(self.stages.run(survey.BlockMap, f"blocks-{kind}", measure))
        return tuple(maps)

    def decoupling(self) -> tuple[tuple[survey.LayerDecoupling, ...], survey.Prediction | None]:
        names = survey.kronecker_layers(self.problem)
        if not self.config.decouple or not names:
            return (), None
        if self.watch:
            self.watch("Kronecker factors", 0)
        price = {name: survey.second_derivative_passes(self.problem, name) for name in names}
        dear = [name for name in names if price[name] > self.config.most_passes]
        if dear:
            most = max(price.values())
            self.notes.append(
                f"No Kronecker factors of {', '.join(dear)}: up to {most:,} backward passes per batch (--most-passes)."
            )
        names = [name for name in names if name not in dear]
        parts = list(survey.decouplings(self.problem, names).values())
        if len(parts) < len(names):
            self.notes.append(f"{len(names) - len(parts)} layers have no Kronecker form (tied weights, or used twice).")
        if not parts:
            return (), None
        prediction = self.stages.run(
            survey.Prediction, "prediction", lambda: survey.predict(self.problem, parts, self.config.k)
        )
        if len(parts) > self.config.decouple:
            self.notes.append(f"Exact comparison for the first {self.config.decouple} of {len(parts)} layers.")
        found = []
        for number, part in enumerate(parts[: self.config.decouple]):
            if self.watch:
                self.watch(f"comparing {part.layer}", 0)
            compare = partial(survey.layer_decoupling, part, self.config.k)
            found.append(self.stages.run(survey.LayerDecoupling, f"decouple-{number}", compare))
        return tuple(found), prediction

    def course(self, checkpoints: Mapping[str, Problem]) -> TrainingCourse:
        rows = []
        for label, problem in checkpoints.items():
            hessian = self.counted(f"checkpoint {label}", Hessian(problem), 30)
            top = eigenpairs(hessian, 1, tol=1e-2, rng=self.rng)
            total = trace(hessian, tol=0.05, rng=self.rng)  # a few per cent are enough for a course
            self.products += top.products + total.products
            rows.append((problem.loss_value(), top.values[0], float(total), survey.layer_share(problem)))
        columns = np.array(rows, dtype=np.float64).T
        return TrainingCourse(tuple(checkpoints), *columns)


def _classes(problem: Problem) -> int | None:
    if not (isinstance(problem.loss, SeparableLoss) and isinstance(problem.loss.module, nn.CrossEntropyLoss)):
        return None
    with torch.no_grad():
        rows: Any = problem.evaluate(next(iter(problem.batches)), problem.parameters)
    return int(rows.f.shape[-1])


def _data(problem: Problem) -> str:
    batches = sum(1 for _ in problem.batches)
    return f"{batches} {'batch' if batches == 1 else 'batches'}, {problem.totals[1]:g} rows or tokens that count"


def _fingerprint(problem: Problem, config: AnalyzeConfig, checkpoints: Mapping[str, Problem] | None) -> str:
    """What must agree for a stopped run to go on: version, settings, parameters to the bit, loss, checkpoints' names."""
    digest = hashlib.sha256(
        repr((__version__, config, problem.space, problem.loss_value(), list(checkpoints or ()))).encode()
    )
    for tensor in problem.parameters.values():
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
