"""How each number of an analysis was found: its error, its method, and what was verified."""

from __future__ import annotations

from dataclasses import dataclass

from ..results.analysis import Analysis
from ..results.spectra import Eigenpairs, Estimate, SpectralDensity


@dataclass(frozen=True)
class Evidence:
    """One number or picture: `error` is "exact" or an error bar, `check` what was verified of the matrix behind it."""

    name: str
    value: str
    error: str
    method: str
    check: str


def evidence_of(a: Analysis) -> list[Evidence]:
    """A row for every number that the analysis reports."""
    rows = [_pairs(a, "λ_max", a.largest), _pairs(a, "λ_min", a.smallest), _estimate(a, "tr H", a.trace)]
    if a.gauss_newton_trace is not None:
        rows.append(_estimate(a, "tr G", a.gauss_newton_trace))
    if a.trace_by_products is not None:
        rows.append(_estimate(a, "tr H, once more", a.trace_by_products))
    rows.append(_density(a, "spectral density of H", a.density))
    if a.gauss_newton_density is not None:
        rows.append(_density(a, "spectral density of G", a.gauss_newton_density))
    for norms in a.blocks:
        error = "exact" if norms.exact else f"standard errors up to {norms.stderr.max():.2g}"
        what = f"{norms.diagonal_share:.2%} of ‖{norms.letter}‖² on the diagonal"
        rows.append(
            Evidence(
                f"block norms of {norms.letter} by {norms.partition}", what, error, norms.method, _said(a, norms.check)
            )
        )
    rows += _lines(a)
    for d in a.kronecker:
        error = "exact" if d.frobenius_stderr == 0 else f"± {d.frobenius_stderr:.1g}"
        what = f"{d.frobenius_error:.2%} (Frobenius)"
        rows.append(Evidence(f"Kronecker error of {d.layer}", what, error, d.curvature, _said(a, d.check)))
    return rows


def _pairs(a: Analysis, name: str, found: Eigenpairs) -> Evidence:
    met = "" if found.converged[0] else ", NOT converged"
    method = f"block Lanczos, {found.products} products"
    return Evidence(
        name, _signed(float(found.values[0])), f"residual {found.residuals[0]:.1e}{met}", method, _said(a, found.check)
    )


def _estimate(a: Analysis, name: str, found: Estimate) -> Evidence:
    error = "exact" if found.exact else f"± {found.stderr:.2g} (standard error)"
    return Evidence(name, f"{float(found):.6g}", error, found.method, _said(a, found.check))


def _density(a: Analysis, name: str, found: SpectralDensity) -> Evidence:
    error = "exact" if found.exact else f"± {found.error:.1g} in W₁, ± {found.sup_error:.1g} in the cdf"
    kinds = {
        "slq": "Lanczos quadrature",
        "slq without a basis": "Lanczos quadrature without room for a basis, outliers not taken out",
        "chebyshev": "Chebyshev moments",
    }
    kind = kinds.get(found.method, found.method)
    method = f"{kind}, {len(found.probe_nodes)} random vectors, {found.products} products"
    return Evidence(name, f"mean {found.mean:.4g}", error, method, _said(a, found.check))


def _lines(a: Analysis) -> list[Evidence]:
    around = a.landscape
    if around is None:
        return []
    rows = []
    for line in around.lines:
        error = f"± {line.breaks.error:.1g} (search and rounding)" if line.breaks.found else "a lower bound"
        method = f"losses in {around.dtype}, parting by {line.share:.0%} of the model"
        rows.append(
            Evidence(f"quadratic along {line.name}", f"|t| = {line.breaks}", error, method, _said(a, around.check))
        )
    return rows


def _signed(value: float) -> str:
    return f"{value:.6g}".replace("-", "−", 1) if value < 0 else f"{value:.6g}"


def _said(a: Analysis, check: str) -> str:
    """The whole text of the self-check stands once, below the table."""
    if a.verdict is not None and check == str(a.verdict):
        return "self-check\N{NO-BREAK SPACE}passed" if a.verdict.passed else "self-check FAILED"
    return check
