"""What the papers say of any network, held against this one."""

from __future__ import annotations

from ..results.analysis import Analysis
from ..results.claims import Claim


def claims_of(a: Analysis) -> tuple[Claim, ...]:
    """Checks of the run itself first, then statements of the papers; a statement that fails here is a finding."""
    return tuple(claim for group in (_internal(a), _of_papers(a)) for claim in group)


def _internal(a: Analysis) -> list[Claim]:
    claims = []
    if a.verdict is not None:
        claims.append(
            Claim(
                "The second derivatives agree with central differences in float64",
                "self-check",
                "passed",
                f"{'passed' if a.verdict.passed else 'failed'}, noise {a.verdict.noise_floor:.1e}",
                a.verdict.passed,
            )
        )
    worst = float(max(a.largest.residuals / abs(a.largest.values)))
    claims.append(
        Claim(
            "Every large eigenpair has converged",
            "residuals",
            f"relative residual ≤ {a.settings.get('tol', 1e-3):g}",
            f"{worst:.1e} at worst",
            bool(a.largest.converged.all()),
        )
    )
    mean, stderr = _mean_of_density(a)
    claims.append(
        Claim(
            "The spectral density and the trace, measured apart, agree",
            "tr H = n · mean of the density",
            f"{float(a.trace):.4g} ± {4 * stderr:.1g} (4 standard errors)",
            f"{mean:.4g}",
            abs(mean - float(a.trace)) <= 4 * stderr + 1e-4 * abs(float(a.trace)),
        )
    )
    return claims


def _mean_of_density(a: Analysis) -> tuple[float, float]:
    """n · E[λ] of the density, and the standard error of its difference from the trace."""
    own = a.size * a.density.moment_stderr(1)
    return a.size * a.density.mean, (float(a.trace.stderr) ** 2 + own**2) ** 0.5


def _of_papers(a: Analysis) -> list[Claim]:
    claims = []
    if a.classes:
        count, ratio = a.gap
        claims.append(
            Claim(
                "As many large eigenvalues stand out as there are classes, less one",
                "Wu et al. (2022), Section 4",
                f"{a.classes - 1}",
                f"{count} (gap {ratio:.2g})",
                count == a.classes - 1,
            )
        )
    if a.gauss_newton_parts is not None:
        top = max(1, min(a.gap[0], a.largest.values.size))
        share = float((a.gauss_newton_parts.value / a.largest.values)[:top].mean())
        claims.append(
            Claim(
                "The outliers come from the Gauss-Newton part",
                "H = G + R; Sagun et al. (2018)",
                "at least 90 % of the outliers",
                f"{share:.1%}",
                share >= 0.9,
            )
        )
    by_neuron = a.block_norms("neuron")
    if by_neuron is not None and a.classes and by_neuron.layers.count(by_neuron.layers[-1]) == a.classes:
        own = by_neuron.norms[-a.classes :, -a.classes :]
        ratio = float((own.sum() - own.trace()) / (a.classes - 1) / own.trace()) if own.trace() > 0 else 0.0
        claims.append(
            Claim(
                "In the output layer, blocks of different classes are weaker than a class's own",
                "Dong et al. (2025), Theorem 1",
                f"mean ‖H_ij‖ / ‖H_ii‖ ≤ 0.5 (at initialisation about {1 / (a.classes - 1):.2f})",
                f"{ratio:.2f}",
                ratio <= 0.5,
            )
        )
    for d in a.kronecker[:1] if a.classes else ():
        j = a.classes - 1 if a.classes else 1
        claims.append(
            Claim(
                f"The top eigenspace of {d.layer} is that of a Kronecker product",
                "Wu et al. (2022), Section 4",
                f"overlap ≥ 0.9 of the top {j}",
                f"{d.overlap_at(j):.2f}",
                d.overlap_at(j) >= 0.9,
            )
        )
    return claims
