"""What every algorithm asks of an operator before and after a product."""

from __future__ import annotations

import torch
from torch import Tensor

from ..arguments import as_float, is_count
from ..errors import refuse
from ..operators import Counted, LinearOperator, Matrix, as_operator
from ..rng import Rng

# A Hessian product in float32 through a saturated network is off by up to a few per cent; a matrix that is not
# symmetric is off by its whole size.
ASYMMETRY = 0.05
SMALLEST, LARGEST = 1e-100, 1e100  # what can be squared twice
_FLOAT32 = 1e-15, 1e17  # norms of which float32 holds the squares of all entries that count


def innermost(op: LinearOperator) -> LinearOperator:
    """The operator below any counters."""
    while isinstance(op, Counted):
        op = op.inner
    return op


def prepare(given: Matrix, symmetric: bool = True) -> Counted:
    """The operator with a counter, refused unless it is non-empty and (if asked for) square and symmetric."""
    op = as_operator(given)
    rows, columns = op.shape
    if rows < 1 or columns < 1:
        refuse("an operator needs at least one row and column", f"{innermost(op)!r}", "Select at least one parameter.")
    if symmetric and (rows != columns or not op.symmetric):
        refuse(
            "this algorithm needs a symmetric operator",
            f"{innermost(op)!r}, which is not",
            "Symmetrise it as 0.5 * (A + A.T), or use a method for general matrices.",
        )
    if not op.dtype.is_floating_point or op.dtype in (torch.float16, torch.bfloat16):
        refuse("an operator must have dtype float32 or float64", f"{op.dtype}", "Convert the model with .float().")
    return Counted.of(op)


def multiply(op: LinearOperator, block: Tensor) -> Tensor:
    """A V, refused with the operator's name when it is not finite, or so small or large that its squares are not numbers."""
    out = op.apply(block)
    # The norm is a sum over all processes, so that every one of them refuses together.
    norms = op.layout.norms(out)
    if not bool(torch.isfinite(norms).all()):
        refuse(
            f"products of {innermost(op)!r} must be finite",
            "NaN or infinity",
            "Check the loss and its gradient at these parameters; a smaller loss scale or float64 may help.",
        )
    largest = float(norms.max()) if norms.numel() else 0.0
    if largest > LARGEST or (largest < SMALLEST and float(op.layout.sum((out != 0).sum().double()))):
        refuse(
            f"products of {innermost(op)!r} must be between {SMALLEST:.0e} and {LARGEST:.0e} in size",
            f"{largest:.1e}" if largest else "less",
            "Scale the loss or the matrix, and the results back.",
        )
    return out


def require_room_for_squares(op: LinearOperator, norm: float) -> None:
    """Refuse a norm that squares in float32 gave where float32 has none for them; zero is right only of a zero matrix."""
    if op.dtype != torch.float32 or _FLOAT32[0] <= norm <= _FLOAT32[1]:
        return
    if norm == 0:
        drawn = op.layout.draw(Rng(0).child("scale"), 1, "normal", op.dtype, op.device)
        if not float(op.layout.norms(op.apply(drawn)).max()):
            return
    refuse(
        f"in float32, what is squared must be between {_FLOAT32[0]:.0e} and {_FLOAT32[1]:.0e} in size",
        f"a norm of {norm:.1e}" if norm else "less",
        "Use problem.cast(torch.float64), or scale the loss, and the results back.",
    )


def require_symmetry(op: LinearOperator, asymmetry: float, size: float) -> None:
    """Refuse an operator whose own products contradict uᵀ(A v) = vᵀ(A u)."""
    # What products are known to be off by, as finite differences are, is in the error of the result.
    if asymmetry > ASYMMETRY * size + op.shape[0] ** 0.5 * op.product_error:
        refuse(
            "this algorithm needs a symmetric operator",
            f"{innermost(op)!r} whose products differ by {asymmetry:.1e} from symmetry, at norm {size:.1e}",
            "Symmetrise it as 0.5 * (A + A.T), or freeze what is random in it (dropout, sampling).",
        )


def require_products(limit: int | None, least: int, what: str) -> None:
    """Refuse a budget that does not buy the smallest estimate with an error."""
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < least):
        refuse(
            f"max_products must be a whole number >= {least} for {what}",
            f"max_products={limit!r}",
            "Raise it, or leave it out.",
        )


def require_count(name: str, value: int | None, do: str = "Leave it out for the default.") -> None:
    """Refuse what is no whole number of at least one."""
    if not is_count(value, 1):
        refuse(f"{name} must be >= 1, a whole number", f"{name}={value!r}", do)


def require_positive(name: str, value: float) -> None:
    """Refuse a tolerance that can never be met."""
    found = as_float(value)
    if found is None or not 0 < found < float("inf"):
        refuse(f"{name} must be > 0 and finite", f"{name}={value}", "Use 1e-3 for a picture, 1e-6 for a reference.")
