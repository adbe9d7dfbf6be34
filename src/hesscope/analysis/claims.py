"""What the papers say of any network, held against this one."""

from __future__ import annotations

import numpy as np

from ..results.analysis import Analysis
from ..results.claims import Claim
from ..results.spectra import Estimate

SIGMAS = 4  # standard errors: a normal estimate of a right trace is further off in one run of 16,000
CAUGHT = 0.2  # of the trace: an error of this share is missed as seldom, where it is twice as far off
DECIDABLE = CAUGHT / 2


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
    return [*claims, _trace_claim(a)]


def _trace_claim(a: Analysis) -> Claim:
    """Structure or sketches on one side, random products alone on the other: neither can repeat the other's mistake.

    Made only where it has power: SIGMAS standard errors below half of what is to be CAUGHT.
    """
    value, products = float(a.trace), _by_products(a)
    stderr = float(np.hypot(a.trace.stderr, products.stderr))
    share = SIGMAS * stderr / abs(value) if value else np.inf
    apart = abs(float(products) - value)
    decidable = share < DECIDABLE
    said = f"{float(products):.4g}" if decidable else f"{float(products):.4g}, but the errors are {share:.0%} of it"
    return Claim(
        "The spectral density and the trace, measured apart, agree",
        "tr H = n · mean of the density",
        f"{value:.4g} ± {SIGMAS * stderr:.1g} ({SIGMAS} standard errors, decided where below {DECIDABLE:.0%})",
        said,
        apart <= SIGMAS * stderr + 1e-4 * abs(value) if decidable else None,
    )


def _by_products(a: Analysis) -> Estimate:
    """n · mean of the density, together with the random vectors that were added to sharpen it."""
    density = Estimate(a.size * a.density.mean, a.size * a.density.moment_stderr(1), 0, a.density.method)
    if a.trace_by_products is None or not float(density.stderr) > 0:
        return density
    both = (density, a.trace_by_products)
    weights = np.array([1 / float(one.stderr) ** 2 for one in both])
    return Estimate(float(weights @ [float(one) for one in both] / weights.sum()), float(weights.sum() ** -0.5), 0, "")


def _of_papers(a: Analysis) -> list[Claim]:
    claims = []
    if a.classes:
        count, ratio = a.gap
        values = a.largest.values
        seen = values.size >= a.classes or bool(values[-1] <= 1e-3 * values[0])  # the gap behind the last of them
        claims.append(
            Claim(
                "As many large eigenvalues stand out as there are classes, less one",
                "Wu et al. (2022), Section 4",
                f"{a.classes - 1}",
                f"{count} (gap {ratio:.2g})" if seen else f"only the top {values.size} are known",
                count == a.classes - 1 if seen else None,
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
        j = min(a.classes - 1 if a.classes else 1, d.overlap.size)
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
