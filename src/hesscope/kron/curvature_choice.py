"""Which layers have a Hessian Σ M ⊗ x xᵀ, and how their output Hessians M are computed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NoReturn

from torch import Tensor

from ..arguments import listed
from ..curvature import Problem
from ..curvature.given_problem import need_problem
from ..curvature.gradient_mode import differentiable
from ..errors import refuse
from ..layers import CapturedLayer, LayerFacts, ProblemFacts, facts_of
from .directions import Directions, affordable, derivative_passes, need_directions, number_of_directions

Curvature = Literal["auto", "gauss_newton", "second_derivative"]
_BLOCK = "Use hs.Hessian(problem).block(...) for it."


@dataclass(frozen=True, eq=False)
class LayerCurvature:
    """One layer, and how M is found: by factors of the loss's curvature, or by second derivatives.

    A unit is what interacts behind the layer: an example, or one of its positions where those do not see each other.
    """

    layer: LayerFacts
    gauss_newton: bool
    directions: int = 0  # random ones in the outputs, of which factors are made; 0: every one

    @property
    def exact(self) -> bool:
        return self.layer.gauss_newton or not self.gauss_newton

    @property
    def flat(self) -> bool:
        """Whether every position is a unit of its own; columns of a factor belong to terms, which must then be apart."""
        layer = self.layer
        return layer.positions_apart and (layer.terms_apart or not self.gauss_newton or self.directions > 0)

    @property
    def with_terms(self) -> LayerCurvature:
        """The same with units that no term of the loss is shared by: positions of an example together, where one is."""
        if not self.flat or self.layer.terms_apart:
            return self
        return replace(self, layer=replace(self.layer, positions_apart=False))

    @property
    def positions(self) -> int:
        """Positions of a unit (where their number varies, of those the layer was tried on)."""
        return 1 if self.flat else self.layer.positions

    @property
    def curvature(self) -> str:
        """In words, for results."""
        if not self.gauss_newton:
            return "second derivative, exact"
        drawn = f" from {self.directions} random directions" if self.directions else ""
        return f"Gauss-Newton factors{drawn}, " + ("exact here" if self.exact else "an approximation here")

    def units(self, z: Tensor) -> Tensor:
        """An output, or a gradient in it, as `(U, P, m)`."""
        found = self.layer.units(z)
        return found.flatten(0, 1).unsqueeze(1) if self.flat else found

    def raw(self, units: Tensor, like: Tensor) -> Tensor:
        """The inverse of `units`."""
        return self.layer.raw(units, like)

    def patches(self, seen: CapturedLayer) -> Tensor:
        """Inputs as `(U, P, groups, n)`."""
        found = self.layer.patches(seen)
        return found.flatten(0, 1).unsqueeze(1) if self.flat else found


@differentiable()
def layer_curvature(
    problem: Problem, name: str, curvature: Curvature = "auto", directions: Directions = "all"
) -> LayerCurvature:
    """The layer called `name` with what is known of it; refuses what would give a wrong Hessian."""
    need_directions(directions)
    if curvature not in ("auto", "gauss_newton", "second_derivative"):
        refuse("curvature must be auto, gauss_newton or second_derivative", f"{curvature!r}", "Leave it at 'auto'.")
    _ = need_problem(problem).scale  # refuses a loss that is not finite, in its own words
    layer = exact_layer(problem, name)
    if curvature == "gauss_newton":
        problem.need_outputs("the Gauss-Newton factor of a layer")
        if not facts_of(problem).columns:
            refuse(
                "Gauss-Newton factors need a convex loss with a known factor", "another loss", "Use curvature='auto'."
            )
    factors = curvature == "gauss_newton" or (curvature == "auto" and _factors_fit(problem, layer, directions))
    return LayerCurvature(layer, factors, number_of_directions(problem, layer, directions) if factors else 0)


def _factors_fit(problem: Problem, layer: LayerFacts, directions: Directions) -> bool:
    """Where factors are exact; and where second derivatives over many positions would take more than seconds."""
    if layer.gauss_newton or directions == "all" or not facts_of(problem).columns:
        return layer.gauss_newton
    return directions != "auto" or (layer.positions > 1 and not affordable(problem, derivative_passes(layer)))


@differentiable()
def matrix_layers(problem: Problem) -> list[LayerFacts]:
    """The layers that are exact and give every output the same input, in the model's order."""
    need_problem(problem)
    order = {name: place for place, (name, _) in enumerate(problem.model.named_parameters())}
    found = [layer for layer in facts_of(problem).exact if layer.multiplies and layer.groups == 1]
    return sorted(found, key=lambda layer: order[layer.weight or ""])


def decouplable_layers(problem: Problem) -> list[str]:
    """The names of those whose weight is selected."""
    return [layer.name for layer in matrix_layers(problem) if layer.weight in problem.parameters]


def exact_layer(problem: Problem, name: str) -> LayerFacts:
    """A layer whose Hessian is Σ M ⊗ x xᵀ; anything else is refused with the reason."""
    facts = facts_of(problem)
    layer = facts.layers.get(name)
    if layer is None or layer.weight is None:
        _refuse_missing(problem, facts, name)
    if not layer.multiplies:
        refuse("the layer's weight must be a matrix that multiplies its input", f"{name!r} ({layer.kind.name})", _BLOCK)
    if not layer.exact and "influence each other" in layer.reason:
        refuse(
            "examples of a batch must not influence each other behind the layer",
            f"{name!r}: {layer.reason}",
            "Put the examples in the first axis, and normalisations in eval mode.",
        )
    if not layer.exact:
        refuse("what the layer computes must be z = W x + b, once per example", f"{name!r}: {layer.reason}", _BLOCK)
    return layer


def _apart(name: str) -> str:
    """What to do about a tied weight: both of its uses together are no Kronecker product, one of them is near one."""
    module = f"model.get_submodule({name!r})"
    return (
        f"For the role of this layer alone, give it the same weight as one of its own and make the problem again: "
        f"{module}.weight = torch.nn.Parameter({module}.weight.detach().clone()). "
        "For all roles together, hs.Hessian(problem).block(...)."
    )


def _refuse_missing(problem: Problem, facts: ProblemFacts, name: str) -> NoReturn:
    """Say why there is no layer of this name."""
    here = f"Layers here: {_shown([layer.name for layer in facts.layers.values() if layer.multiplies])}."
    modules = dict(problem.model.named_modules(remove_duplicate=False))
    module = modules.get(name)
    own = None if module is None else dict(module.named_parameters(recurse=False)).get("weight")
    weight = f"{name}.weight".lstrip(".")
    tied = [
        f"{path}.{local}".lstrip(".")
        for path, other in modules.items()
        for local, parameter in other.named_parameters(recurse=False)
        if own is not None and parameter is own and other is not module
    ]
    reason = next((facts.reasons[key] for key in (weight, f"{name}_weight", name) if key in facts.reasons), "")
    if tied or "times" in reason:
        refuse(
            "a layer's weight must be used once in a forward pass, and act only through z = W x + b of this layer",
            f"{name!r}, tied to {_shown(tied)}" if tied else f"{name!r}: {reason}",
            _apart(name) if tied else "Use hs.Hessian(problem).block(...) for weights that are used several times.",
        )
    if reason == "not used":
        refuse("the layer must be called in every forward pass", f"{name!r}, which is not", here)
    if reason:
        refuse("what the layer computes must be z = W x + b, once per example", f"{name!r}: {reason}", _BLOCK)
    if module is None:
        refuse("the layer must be a module of the model", f"{name!r}", here)
    if hasattr(module, "weight"):
        refuse(
            "the layer's weight must be a plain parameter",
            f"{name!r}, whose weight is computed from other parameters or missing",
            "Remove the parametrisation, for example with torch.nn.utils.parametrize.remove_parametrizations.",
        )
    refuse(
        "the layer must multiply its input by a weight",
        f"{name!r}, a {type(module).__name__}",
        f"{here} For other parameters, hs.Hessian(problem).block(...).",
    )


def _shown(names: list[str]) -> str:
    return listed(names, 12) or "none"
