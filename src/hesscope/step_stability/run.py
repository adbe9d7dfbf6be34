"""hs.stability: everything that is known about the next steps of an optimiser, in one result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

from ..arguments import need_count
from ..curvature import Problem
from ..curvature.given_problem import need_problem
from ..errors import InputError, refuse
from ..linalg import eigenpairs
from ..operators.autocast import own_types
from ..operators.tensors import tensor_of
from ..partition import Grouping
from ..results.spectra import Eigenpairs
from ..results.stability import Binding, Stability
from ..rng import Rng
from .batches import FEWEST, batch_curvature
from .binding_blocks import binding
from .line_search import critical_step
from .matching import members_of
from .optimizer_state import OptimizerState, read_optimizer
from .preconditioned import Preconditioned
from .reading import curvature_of, reading_of

BLOCKS: tuple[Grouping, ...] = ("layer", "head", "neuron")


@own_types()
def stability(
    problem: Problem,
    optimizer: Any,
    *,
    k: int = 6,
    tol: float = 1e-2,
    by: Sequence[Grouping] | None = None,
    gauss_newton: bool = True,
    batch_size: int | None = None,
    batches: int = 16,
    line_search: bool = True,
    names: Sequence[str] | None = None,
    kind: str | None = None,
    rng: Rng | int | None = None,
) -> Stability:
    """Is the next step of `optimizer` stable on `problem`, at which rate does it stop to be, and which layers bind.

    optimizer: the torch optimiser that trains the problem's model (the problem made after its last step), several in a
    list, or a `state_dict()` (`names`, `kind`: see `read_optimizer`). k: eigenvalues of P^(-1/2) H P^(-1/2), to a
    residual of `tol`. by: which blocks to look for ("layer", "head", "neuron", "tensor"; by default the first three,
    heads where there are any). batch_size: the size that training uses, for batch sharpness and the noise scale over
    at most `batches` batches; by default the problem's own batches, where there are at least four. line_search: also
    stretch the real next step until the loss rises, by forward passes.
    The critical rate is a ceiling for full-batch steps, not advice. See docs/theory/stability.md.
    """
    need_problem(problem)
    need_count("batches", batches, FEWEST)
    members = members_of(problem, optimizer, names, kind)
    state = read_optimizer(problem, optimizer, names=names, kind=kind)
    source = Rng.of(rng).child("stability")
    operator = Preconditioned(curvature_of(problem, "hessian"), state)
    top = eigenpairs(operator, k, tol=tol, rng=source)
    notes = _notes(problem, state, top)
    newton = None
    if gauss_newton and problem.has_outputs:
        near = eigenpairs(
            Preconditioned(curvature_of(problem, "gauss_newton"), state), k, tol=tol, rng=source, start=top.vectors
        )
        newton = reading_of(state, "gauss_newton", near.without_vectors())
    elif gauss_newton:
        notes.append("the loss is known as a number only, so there is no Gauss-Newton matrix beside H")
    batch = None
    if not problem.distributed:
        batch = batch_curvature(problem, operator, batch_size, batches, source)
        if batch is None:
            notes.append(f"fewer than {FEWEST} batches: pass batch_size= for batch sharpness and the noise scale")
    return Stability(
        hessian=reading_of(state, "hessian", replace(top, vectors=top.vectors[:, :1])),
        gauss_newton=newton,
        bindings=_bindings(problem, top, by),
        batch=batch,
        step=critical_step(problem, members, state.rate) if line_search else None,
        steps_taken=state.steps,
        parameters=problem.space.size,
        notes=tuple(notes),
    )


def _bindings(problem: Problem, top: Eigenpairs, by: Sequence[Grouping] | None) -> tuple[Binding, ...]:
    if problem.distributed:
        return ()  # vectors are shared out, blocks are not
    if by is not None and (isinstance(by, str) or any(one not in get_args(Grouping) for one in by)):
        refuse("by must be a list of kinds of blocks", f"{by!r}", f"There are: {', '.join(get_args(Grouping))}.")
    found = []
    for one in BLOCKS if by is None else by:
        try:
            found.append(binding(problem, top, one))
        except InputError:
            if by is not None:  # networks without heads have no binding head, unless one was asked for
                raise
    return tuple(found)


def _notes(problem: Problem, state: OptimizerState, top: Eigenpairs) -> list[str]:
    notes = []
    if not bool(top.converged[0]):
        notes.append("the largest eigenvalue did not converge: it is at least what is shown, up to its residual")
    rules = {step.rule for step in state.tensors}
    if len(rules) > 1:
        notes.append(
            f"{len(rules)} groups with their own rates, momenta or decays: rate and edge are those of the group with most "
            "parameters, the others enter with theirs"
        )
    if "Muon" in state.name:
        notes.append(
            "Muon is linearised: the matrix that orthogonalises its momentum is held fixed, which its real step does not do"
        )
    if not problem.distributed:
        # A denominator that is all eps belongs to a parameter that has seen no gradient yet: the first one changes it.
        share = float(tensor_of(top.vectors)[state.floor.to(problem.device), 0].double().square().sum())
        if share > 0.1:
            notes.append(
                f"{share:.0%} of the leading eigenvector lies on parameters whose gradients were below eps so far: their "
                "denominator changes with the next gradient, and the edge with it"
            )
    outside = [name for name, _ in problem.model.named_parameters() if name not in problem.parameters]
    if outside:
        notes.append(f"{len(outside)} tensors are outside the problem and taken as fixed")
    return notes
