"""Which numbers a draw of networks decides: those that lie clear of their threshold when the networks are drawn again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...rng import Rng
from ..declared import Declared, Measured
from ._two_layer import Measured as Networks

CERTAIN = 4.0  # standard errors
DRAWS = 200  # of which the standard error is known to a twentieth
Numbers = Mapping[str, float]
UNDECIDED = f"; undecided within {CERTAIN:g} standard errors of it, by a bootstrap over the networks"


def decided(
    claims: Sequence[Declared], numbers: Callable[[NDArray[np.int64]], Numbers], networks: int, rng: Rng
) -> dict[str, Measured]:
    """`numbers` of all networks, each beside its bootstrap standard error; a text where that does not clear the claim's limit."""
    draw = rng.numpy()
    found = numbers(np.arange(networks))
    again = [numbers(draw.integers(networks, size=networks)) for _ in range(DRAWS)]
    limits = {one.id: one.limit for one in claims}
    said: dict[str, Measured] = {}
    for name, value in found.items():
        limit, error = limits[name], float(np.std([one[name] for one in again], ddof=1))
        assert isinstance(limit, float | int)
        shown = f"{value:.3g} ± {error:.2g}"
        clear = abs(value - limit) > CERTAIN * error
        said[name] = (value, shown) if clear else f"not decidable from {networks} networks: {shown}"
    return said


def taken(found: Networks, index: NDArray[np.int64]) -> Networks:
    """The same arrays of these networks alone, the last axis being that of networks."""
    norms = {kind: values[..., index] for kind, values in found.norms.items()}
    alignments = {kind: values[..., index] for kind, values in found.alignments.items()}
    return replace(
        found, sharpness=found.sharpness[..., index], trace=found.trace[..., index], norms=norms, alignments=alignments
    )
