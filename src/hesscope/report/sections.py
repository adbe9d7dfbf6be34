"""The parts of a report: what each kind of result shows, and how to read it."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from ..plots.analysis import pictures_of
from ..plots.run import run_picture
from ..plots.stability import stability_figure
from ..plots.style import png_of
from ..result import Result
from ..results.analysis import Analysis
from ..results.claims import Outcome
from ..results.monitoring import MonitoredRun
from ..results.plan import AnalysisPlan, duration
from ..results.stability import Stability
from ..tables import field_values
from . import markup
from .advice import CLEAR_GAP
from .evidence import evidence_of
from .glossary import GLOSSARY
from .summary import summary_lines

SPECTRUM = (
    "Each curve says how the eigenvalues of a matrix are spread: H is the Hessian of the loss, G its Gauss-Newton part. "
    "Most eigenvalues crowd around zero (flat directions); the diamonds are large ones, resolved one by one, and what is "
    "left of zero is negative curvature. Where G covers H, the loss's own curvature explains it; what H has beyond G comes from "
    "the curvature of the network. Orange is theory: the Kronecker factors of every layer give the curve, "
    "mean inputs and output Hessians the open diamonds, both without a single Hessian product."
)
BLOCKS = (
    "Every cell is the Frobenius norm of one block of the Hessian, coloured by decades below the largest one. Bright cells on "
    "the diagonal and dark ones elsewhere mean that the blocks hardly interact, and that an optimiser may treat them apart. "
    "Where the Hessian's own are too dear, finer maps are of its Gauss-Newton part. Outlines mark layers. Point at a cell for names and norms, drag to zoom, double-click to zoom out."
)
LAYERS = (
    "One bar for each layer, of its own block of the Hessian. A large share of the trace is where the curvature lies, and where "
    "pruning or quantising costs most; a large top eigenvalue is what limits the step size. The stable rank says in how "
    "many directions a layer is curved: near 1, a single direction carries it all. A small Kronecker error means that K-FAC "
    "or Shampoo see that layer nearly as it is."
)
DECOUPLING = (
    "The Hessian of a layer is compared with E[M] ⊗ E[xxᵀ], a Kronecker product of two small matrices. A small error and an "
    "overlap near 1 mean that methods such as K-FAC or Shampoo see nearly the true curvature of that layer."
)
LANDSCAPE = (
    "The loss as one walks away from the parameters (points) beside the parabola that gradient and Hessian predict (dashed). "
    "The diamond marks where the two part: up to there, what the spectrum says of steps along this direction is true; beyond "
    "it, the loss has more to say than its second derivatives."
)
HISTORY = (
    "The same numbers at checkpoints along training. Sharpness that rises to 2 / step size and stays there is the edge of "
    "stability; a trace that falls with the loss is the Gauss-Newton part shrinking as predictions become sure."
)
RUN = (
    "What a monitor read while the network was trained, on a batch of its own. Sharpness is the largest eigenvalue of the "
    "Hessian; seen through the optimiser's preconditioner and divided by its edge it says how far the step is from "
    "instability: above 1 the step, its preconditioner held fixed, is unstable. For mini-batch training that is a ceiling, "
    "not advice. The layers that bind hold most of that direction. Open diamonds are readings that had not converged."
)


@dataclass(frozen=True)
class Part:
    """One section: its place in the navigation, its title there, its markup."""

    anchor: str
    title: str
    html: str


def parts_of(name: str, result: Result) -> list[Part]:
    """The sections of one result."""
    if isinstance(result, Analysis):
        return _analysis(result)
    if isinstance(result, MonitoredRun):
        return _run(result)
    if isinstance(result, Stability):
        return [_stability(name, result)]
    return [_outcome(name, result)] if isinstance(result, Outcome) else [_plain(name, result)]


def _analysis(a: Analysis) -> list[Part]:
    parts = [Part("summary-section", "Summary", _summary(a))]
    for picture in pictures_of(a):
        title, read, more = FIGURES[picture.name]
        parts.append(Part(f"{picture.name}-section", title, markup.figure(picture, read, more(a))))
    if a.claims:
        note = (
            '<p class="read">The first rows check this run; the others hold what papers say of networks against '
            "yours. A statement that does not hold is a finding, not an error.</p>"
        )
        made = f'<section id="claims-section"><h2>Claims</h2>{markup.claims_table(a.claims)}{note}</section>'
        parts.append(Part("claims-section", "Claims", made))
    parts.append(Part("evidence-section", "Evidence", _evidence(a)))
    parts.append(Part("provenance-section", "Provenance", _provenance(a)))
    parts.append(Part("glossary-section", "Glossary", _glossary()))
    return parts


def _with_code(text: str) -> str:
    """A plain line for the page: what stands between backticks is to be typed."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _summary(a: Analysis) -> str:
    error = float(a.largest.residuals[0])
    trace_error = "exact" if a.trace.exact else f"± {a.trace.stderr:.2g}"
    versus = f"against {a.classes} classes" if a.classes else "large eigenvalues before the widest gap"
    outliers = str(a.gap[0]) if a.gap[1] >= CLEAR_GAP else "none"
    tiles = [
        markup.tile("Sharpness λ_max", f"{a.sharpness:.4g}", f"± {error:.1g} (residual)"),
        markup.tile("Trace", f"{float(a.trace):.4g}", trace_error),
        markup.tile("Outliers", outliers, versus),
        markup.tile("Negative curvature", f"{a.negative_weight:.2%}", "of Σ|λ|"),
    ]
    layer = a.block_norms("layer")
    if layer is not None:
        tiles.append(markup.tile("In the layers' own blocks", f"{1 - layer.off_diagonal_share:.1%}", "of ‖H‖²"))
    lines = "".join(
        f"<dt>{escape(name)}</dt><dd>{_with_code(text.strip())}</dd>"
        for name, _, text in (line.partition(":") for line in summary_lines(a))
    )
    alarm = "".join(f'<p class="alarm" role="alert">{escape(note)}</p>' for note in a.notes if "failed" in note)
    return (
        f'{alarm}<div class="tiles">{"".join(tiles)}</div>'
        f'<section id="summary-section"><h2>In ten lines</h2><dl class="lines">{lines}</dl>'
        '<p class="read">Words are explained in the <a href="#glossary-section">glossary</a>.</p></section>'
    )


def _eigenvalues(a: Analysis) -> str:
    e, low, parts = a.largest, a.smallest, a.gauss_newton_parts
    rows = [
        (
            f"{rank + 1}",
            f"{value:.6g}",
            f"{e.residuals[rank]:.1e}",
            "" if parts is None else f"{np.asarray(parts.value)[rank] / value:.1%}",
        )
        for rank, value in enumerate(e.values)
    ]
    rows += [(f"{-i - 1}", f"{v:.6g}", f"{low.residuals[i]:.1e}", "") for i, v in enumerate(low.values)]
    head = ("Rank", "Eigenvalue", "Residual", "Gauss-Newton share")
    return markup.disclosure("Eigenvalues as a table", markup.table(head, rows))


def _layer_rows(a: Analysis) -> str:
    if a.layer_table is None:
        return ""
    columns = a.layer_table.table()
    cells = [[text if isinstance(text, str) else _number(text) for text in column] for column in columns.values()]
    return markup.disclosure("Layers as a table", markup.table(tuple(columns), list(zip(*cells, strict=True))))


def _number(value: Any) -> str:
    return "" if np.isnan(value) else f"{value:.4g}"


def _norms(a: Analysis) -> str:
    layer = a.block_norms("layer")
    if layer is None or len(layer.names) > 30:
        return ""
    rows = [(name, *(f"{value:.3g}" for value in row)) for name, row in zip(layer.names, layer.norms, strict=True)]
    return markup.disclosure("Norms by layer as a table", markup.table(("", *layer.names), rows))


def _errors(a: Analysis) -> str:
    j = max(1, (a.classes or 2) - 1)
    rows = [
        (d.layer, f"{d.size:,}", f"{d.frobenius_error:.2%}", f"{d.spectral_error:.2%}", f"{d.overlap_at(j):.3f}")
        for d in a.kronecker
    ]
    head = ("Layer", "Parameters", "Frobenius error", "Spectral error", f"Overlap of the top {j}")
    return markup.disclosure("Errors as a table", markup.table(head, rows))


def _history(a: Analysis) -> str:
    c = a.history
    if c is None:
        return ""
    series = {"Loss": c.loss, "λ_max": c.sharpness, "Trace": c.trace, "Between layers": 1 - c.diagonal_share}
    measured = {name: values for name, values in series.items() if values.size}
    rows = [
        (label, *(f"{one:.4g}" for one in values)) for label, *values in zip(c.labels, *measured.values(), strict=True)
    ]
    return markup.disclosure("Numbers as a table", markup.table(("Step", *measured), rows))


def _breaks(a: Analysis) -> str:
    if a.landscape is None:
        return ""
    rows = [
        (line.name, f"{line.slope:.4g}", f"{line.curvature:.4g}", str(line.backward), str(line.forward))
        for line in a.landscape.lines
    ]
    head = ("Direction", "Slope gᵀd", "Curvature dᵀHd", "Breaks at −t", "Breaks at t")
    note = f"Where |L − model| exceeds {a.landscape.share:.0%} of |gᵀd t| + |dᵀHd| t²/2; the error is that of the search and of rounding."
    return markup.disclosure("Breaking distances as a table", markup.table(head, rows) + f'<p class="read">{note}</p>')


# Name of a picture -> its title in the navigation, how to read it, the numbers behind it.
FIGURES = {
    "spectrum": ("Spectrum", SPECTRUM, _eigenvalues),
    "layers": ("Layers", LAYERS, _layer_rows),
    "blocks": ("Blocks", BLOCKS, _norms),
    "decoupling": ("Kronecker", DECOUPLING, _errors),
    "landscape": ("Landscape", LANDSCAPE, _breaks),
    "history": ("Training", HISTORY, _history),
}


def _evidence(a: Analysis) -> str:
    rows = [(e.name, e.value, e.error, e.method, e.check) for e in evidence_of(a)]
    made = markup.table(("Number", "Value", "Error", "Method", "Verified"), rows)
    verdict = f'<p class="read"><strong>Self-check.</strong> {escape(str(a.verdict))}.</p>' if a.verdict else ""
    return f'<section id="evidence-section"><h2>How each number was found</h2>{made}{verdict}</section>'


def _glossary() -> str:
    words = "".join(f"<dt>{escape(word)}</dt><dd>{escape(said)}</dd>" for word, said in GLOSSARY.items())
    return f'<section id="glossary-section"><h2>Glossary</h2><dl class="lines">{words}</dl></section>'


def _provenance(a: Analysis) -> str:
    run = [*a.provenance.items(), ("products", f"{a.products:,}"), ("seconds", f"{a.seconds:.1f}")]
    run += [("note", note) for note in a.notes]
    plan = "" if a.plan is None else markup.disclosure("Plan", "".join((_said(a.plan), _planned(a.plan))))
    shapes = [(name, " × ".join(str(size) for size in shape)) for name, shape in a.parameters.items()]
    return (
        '<section id="provenance-section"><h2>Settings and provenance</h2>'
        f"{markup.pairs_table(run)}"
        f"{plan}"
        f"{markup.disclosure('Settings', markup.pairs_table(a.settings.items()))}"
        f"{markup.disclosure(f'{len(shapes)} parameter tensors', markup.pairs_table(shapes))}"
        f"{markup.disclosure('Model', f'<pre>{escape(a.model)}</pre>')}</section>"
    )


def _run(run: MonitoredRun) -> list[Part]:
    head = ("Step", "Loss", "λ_max", "Error", "Of the edge", "Trace", "Converged", "Products")
    rows = [
        (
            f"{r.step}",
            *(_or_dash(v) for v in (r.loss, r.sharpness, r.sharpness_error, r.edge_ratio, r.trace)),
            {True: "yes", False: "no", None: r.error or ""}[r.converged],
            f"{r.products}",
        )
        for r in run.readings
    ]
    more = markup.disclosure("Readings as a table", markup.table(head, rows))
    more += markup.disclosure("Settings", markup.pairs_table(run.settings.items()))
    picture = run_picture(run)
    if not picture.panels:
        body = f'<section id="run-section"><h2>{escape(picture.title)}</h2><p class="read">No reading yet.</p>{more}</section>'
        return [Part("run-section", "Run", body)]
    return [Part("run-section", "Run", markup.figure(picture, RUN, more))]


def _stability(name: str, found: Stability) -> Part:
    said = "".join(f"<li>{escape(line)}</li>" for line in str(found).splitlines())
    tables = "".join(
        markup.disclosure(
            f"Binding {one.by}s",
            markup.table(
                (
                    one.by.capitalize(),
                    "Share of the leading eigenvector",
                    "λ without it",
                    "at most",
                    "λ at half its rate",
                ),
                [
                    (
                        one.names[i],
                        f"{one.share[i]:.1%}",
                        *(f"{v[i]:.4g}" for v in (one.frozen, one.frozen_at_most, one.halved)),
                    )
                    for i in one.order[:20]
                ],
            ),
        )
        for one in found.bindings
    )
    still = f'<img class="still" alt="Eigenvalues against the edge" src="{_still(stability_figure(found))}">'
    anchor = _anchor(name)
    title = f"Stability of {found.optimizer}"
    return Part(
        anchor, title, f'<section id="{anchor}"><h2>{escape(title)}</h2><ul>{said}</ul>{still}{tables}</section>'
    )


def _or_dash(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _said(plan: AnalysisPlan) -> str:
    return "".join(f'<p class="read">{escape(line)}</p>' for line in plan.lines())


def _planned(plan: AnalysisPlan) -> str:
    rows = []
    for stage in plan.stages:
        ended = "left out" if not stage.kept else "cut off" if stage.cut else ""
        took = "" if stage.took is None else duration(stage.took)
        limit = "" if stage.products is None else f"{stage.products:,}"
        rows.append((stage.said, duration(stage.seconds), took, limit, ended))
    return markup.table(("Stage", "Planned", "Took", "Products at most", ""), rows)


def _outcome(name: str, outcome: Outcome) -> Part:
    from ..experiments import outcome_figures

    stills = "".join(
        f'<h3>{escape(title)}</h3><img class="still" alt="{escape(outcome.name)}: {escape(title)}" src="{_still(made)}">'
        for title, made in outcome_figures(outcome).items()
    )
    settings = markup.disclosure("Settings", markup.pairs_table(outcome.config.items()))
    anchor = _anchor(name)
    said = f'<p class="read"><strong>Synthetic data stand in for {escape(", ".join(outcome.stand_ins))}.</strong></p>'
    head = f"<h2>{escape(outcome.name)}</h2>{said if outcome.stand_ins else ''}"
    body = f'<section id="{anchor}">{head}{markup.claims_table(outcome.claims)}{stills}{settings}</section>'
    return Part(anchor, outcome.name, body)


def _still(figure: Any) -> str:
    return "data:image/png;base64," + base64.b64encode(png_of(figure)).decode()


def _plain(name: str, result: Result) -> Part:
    rows = [(field, on_one_line(value)) for field, value in field_values(result)]
    anchor = _anchor(name)
    return Part(
        anchor,
        name,
        f'<section id="{anchor}"><h2>{escape(name)}: {result.kind}</h2>{markup.pairs_table(rows)}</section>',
    )


def on_one_line(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, np.ndarray):
        inner = np.array2string(value, precision=5, threshold=12)
        return f"{' × '.join(map(str, value.shape)) or 'scalar'}: {inner}"
    return str(value)[:500]


def _anchor(name: str) -> str:
    return "result-" + "".join(c if c.isascii() and c.isalnum() else "-" for c in name)
