"""What to do with each of the ten lines."""

from __future__ import annotations

from collections.abc import Callable

from ..results.analysis import Analysis

CLEAR_GAP = 1.5  # below, the next eigenvalue is as good as the same
PART = 0.1  # of the curvature: less may be missing where one matrix stands for another


def _sharpness(a: Analysis) -> str:
    return "for that optimiser, keep the step below it or warm up" if a.sharpness > 0 else "check the sign of the loss"


def _trace(a: Analysis) -> str:
    if a.layer_table is None:
        return "`hesscope layers` says which layers hold it"
    table = a.layer_table
    first = max(range(len(table.names)), key=lambda k: table.trace[k])
    if not float(table.trace.sum()) > 0:
        return "it is not positive: no layer holds most of it, and negative curvature is not noise"
    return f"most of it is in {table.names[first]} ({table.share[first]:.0%}): prune or quantise elsewhere first"


def _negative(a: Analysis) -> str:
    if a.negative_weight < 0.01:
        return "nothing to do: as good as a minimum along measured directions"
    return "train on, or follow the most negative eigenvector downhill"


def _outliers(a: Analysis) -> str:
    if a.gap[1] < CLEAR_GAP:
        return "raise --settings.k to look further down"
    return f"project gradients on these {a.gap[0]} directions to see what training does in them"


def _gauss_newton(a: Analysis) -> str:
    if a.gauss_newton_trace is None:
        return "give outputs and loss apart to learn how much G explains"
    share = float(a.gauss_newton_trace) / float(a.trace) if float(a.trace) else 0.0
    if not 1 - PART <= share <= 1 + PART:
        return "use H itself: G alone misses part of it"
    # The trace of H - G can vanish where H - G does not, and G has no negative eigenvalues.
    if a.negative_weight > PART:
        return "G can stand for H at the top only: it lacks the negative curvature"
    return "G can stand for H here"


def _blocks(a: Analysis) -> str:
    norms = a.block_norms("layer")
    if norms is None:
        return "`hesscope blocks --by neuron` looks inside one layer"
    return "layers may be treated apart" if norms.off_diagonal_share < 0.3 else "couple layers, or expect slower steps"


def _kronecker(a: Analysis) -> str:
    if not a.kronecker:
        return "raise --settings.decouple, or use H.block(...) for such layers"
    worst = max(a.kronecker, key=lambda d: d.frobenius_error)
    if worst.frobenius_error < 0.3:
        return "K-FAC and Shampoo see these layers nearly as they are"
    return f"`hesscope decouple --layer {worst.layer}` compares better factors for the worst one"


def _theory(a: Analysis) -> str:
    return "--settings.fit looks for the closest limit law" if a.fit is None else "`hesscope theory` explains that law"


def _cost(a: Analysis) -> str:
    return (
        "`hesscope plan` says what a finer look would take" if a.seconds > 60 else "cheap enough for every checkpoint"
    )


ADVICE: dict[str, Callable[[Analysis], str]] = {
    "Sharpness": _sharpness,
    "Trace": _trace,
    "Negative mass": _negative,
    "Outliers": _outliers,
    "Gauss-Newton": _gauss_newton,
    "Blocks": _blocks,
    "Kronecker": _kronecker,
    "Theory": _theory,
    "Cost": _cost,
}
