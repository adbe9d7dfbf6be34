"""The ten plain lines at the end of an analysis."""

from __future__ import annotations

import numpy as np

from ..results.analysis import Analysis
from ..results.plan import KRONECKER, LAYERS, PARTS, duration
from .advice import ADVICE, CLEAR_GAP

MORE_TIME = "raise --budget"  # what to do where time was short


def summary_lines(a: Analysis) -> list[str]:
    """Sharpness, trace, negative mass, outliers, Gauss-Newton, blocks, Kronecker, theory, cost, what next."""
    named = (
        ("Sharpness", _sharpness(a)),
        ("Trace", _trace(a)),
        ("Negative mass", _negative(a)),
        ("Outliers", _outliers(a)),
        ("Gauss-Newton", _gauss_newton(a)),
        ("Blocks", _blocks(a)),
        ("Kronecker", _kronecker(a)),
        ("Theory", _theory(a)),
        ("Cost", _cost(a)),
        ("Next", what_next(a)),
    )
    advised = [
        (name, f"{text} → {ADVICE[name](a)}" if name in ADVICE and not text.endswith(MORE_TIME) else text)
        for name, text in named
    ]
    return [f"{name + ':':<15}{text}" for name, text in advised]


def _sharpness(a: Analysis) -> str:
    error = float(a.largest.residuals[0])
    if a.sharpness <= 0:
        return f"λ_max = {a.sharpness:.4g} ± {error:.1g}: no positive curvature"
    return (
        f"λ_max = {a.sharpness:.4g} ± {error:.1g}; full-batch gradient descent (no momentum) is stable below a step of "
        f"{2 / a.sharpness:.3g}; for momentum, Adam and others, whose edge is elsewhere, see `hesscope stability` "
        "(with mini-batches a ceiling, not advice)"
    )


def _trace(a: Analysis) -> str:
    value = float(a.trace)
    error = "exact" if a.trace.exact else f"± {a.trace.stderr:.2g}"
    effective = f"; λ_max alone is {a.sharpness / value:.0%} of it" if value > 0 else ""
    return f"tr H = {value:.4g} ({error}) over {a.size:,} parameters{effective}"


def _negative(a: Analysis) -> str:
    lowest = float(a.smallest.values[0])
    sign = "−" if lowest < 0 else ""
    return (
        f"{a.negative_mass:.1%} of eigenvalues lie below −{a.noise:.1g} and carry {a.negative_weight:.2%} of the "
        f"absolute curvature; λ_min = {sign}{abs(lowest):.3g}"
    )


def _outliers(a: Analysis) -> str:
    count, ratio = a.gap
    versus = f"{a.classes} classes" if a.classes else "no classes (not cross-entropy)"
    if ratio < CLEAR_GAP:
        most = a.largest.values.size
        return f"no group stands out among the top {most} (the widest gap is a factor of {ratio:.2g}), against {versus}"
    if not np.isfinite(ratio):
        return f"{count} eigenvalues stand out (all others are less than a thousandth of the first) against {versus}"
    return f"{count} eigenvalues stand out (the next is {ratio:.2g} times smaller) against {versus}"


def _gauss_newton(a: Analysis) -> str:
    if a.gauss_newton_parts is None or a.gauss_newton_trace is None:
        return _missing(a, PARTS, "not separable: the loss is only known as a number (pass a torch loss to Problem.of)")
    share = np.asarray(a.gauss_newton_parts.value / a.largest.values)
    count = max(1, min(a.gap[0], share.size))
    trace = float(a.gauss_newton_trace) / float(a.trace) if float(a.trace) else float("nan")
    return f"G carries {share[:count].mean():.1%} of the top {count} eigenvalues and {trace:.1%} of the trace"


def _blocks(a: Analysis) -> str:
    layer = a.block_norms("layer")
    if layer is None:
        return _missing(a, LAYERS, "not measured (one layer only, or switched off)")
    sign = "exact" if layer.exact else "estimated"
    return (
        f"{1 - layer.off_diagonal_share:.1%} of ‖H‖² lies in the {len(layer.names)} layers' own blocks ({sign}), "
        f"{layer.off_diagonal_share:.1%} between layers"
    )


def _kronecker(a: Analysis) -> str:
    if not a.kronecker:
        return _missing(a, KRONECKER, "not measured (no linear or convolutional layer, or switched off)")
    parts = [f"{d.layer} {1 - d.frobenius_error:.0%}" for d in a.kronecker[:4]]
    more = f" and {len(a.kronecker) - 4} more" if len(a.kronecker) > 4 else ""
    return f"E[M] ⊗ E[xxᵀ] explains {', '.join(parts)}{more} of each layer's Hessian (1 − relative Frobenius error)"


def _missing(a: Analysis, stage: str, otherwise: str) -> str:
    """Why a number is not there: the budget, where it was that."""
    planned = None if a.plan is None else a.plan.stage(stage)
    if planned is None or (planned.kept and not planned.cut):
        return otherwise
    why = "cut off" if planned.cut else "left out"
    return f"{why} for the budget of {duration(a.plan.budget or 0.0) if a.plan else ''}: about {duration(planned.seconds)}; {MORE_TIME}"


def _theory(a: Analysis) -> str:
    said = [f"{a.classes - 1} outliers for {a.classes} classes"] if a.classes else []
    if a.prediction is not None and a.prediction.largest.size:
        said.append(f"λ_max ≈ {a.prediction.largest[0]:.3g} from mean inputs and E[M] (measured {a.sharpness:.3g})")
    if a.prediction is not None:
        size = float(abs(a.density.nodes) @ a.density.weights)
        distance = a.prediction.measure().wasserstein(a.density) / size if size > 0 else 0.0
        said.append(f"Kronecker factors give the spectrum up to {distance:.0%} of Σ|λ|")
    if a.fit is not None:
        said.append(f"closest limit law {a.fit.family.replace('_', '-')} at {a.fit.kolmogorov:.2f}")
    return "; ".join(said) or "nothing without classes or layers of the known kinds"


def _cost(a: Analysis) -> str:
    method = (
        f"; derivatives by {a.verdict.method}, {'checked' if a.verdict.passed else 'CHECK FAILED'}" if a.verdict else ""
    )
    return f"{a.products:,} matrix-vector products, {a.seconds:.1f} s{method}"


def what_next(a: Analysis) -> str:
    """The one thing most worth a look, from the numbers."""
    if a.verdict is not None and not a.verdict.passed:
        return "the self-check failed: read `hesscope check`, and trust no number above before it passes"
    if a.unused:
        return f"{len(a.unused)} selected parameters do not enter the loss (first: {a.unused[0]}): is that meant?"
    if not a.largest.converged.all():
        return "some eigenpairs did not converge: run again in float64 (problem.cast) or with a larger --tol"
    if a.gradient_norm > 0.1 * max(a.loss, 1e-12) and a.negative_weight > 0.1:
        return (
            f"still far from a minimum (|∇L| = {a.gradient_norm:.2g}): train on, then compare with `hesscope compare`"
        )
    if a.negative_weight > 0.1:
        return "the negative part: `hesscope spectrum` on checkpoints shows whether it fades with training"
    layer = a.block_norms("layer")
    if layer is not None and layer.off_diagonal_share > 0.5:
        return "layers are strongly coupled: a layer-wise optimiser loses most of ‖H‖²; see the block map"
    poor = [d for d in a.kronecker if d.frobenius_error > 0.5]
    if poor:
        return f"{poor[0].layer} is far from Kronecker: `hesscope decouple` compares better factorisations for it"
    if a.classes and abs(a.gap[0] - (a.classes - 1)) > 1:
        return f"{a.gap[0]} outliers for {a.classes} classes: see which classes merge in the top eigenvectors"
    return "the course along training: analyse several checkpoints (return a dict of problems) and watch λ_max"
