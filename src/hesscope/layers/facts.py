"""What is true of each layer in this problem, proven once on a few of the user's own examples, in float64, and then
looked for in all data.

A layer is exact where its weight acts through this one call only, examples do not see each other, and the gradient and
a product with its block of the Hessian, both computed from what the layer was given, are those of plain double backward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch

from ..curvature.data import examples_in, map_tensors, take
from ..curvature.gradient_mode import differentiable
from ..curvature.losses.base import OutputLoss
from ..curvature.problem import Problem, ScalarLoss
from ..errors import refuse
from .capturing import Capture, CapturedLayer, capture, every_parameter
from .everywhere import hold_everywhere
from .layer import LayerFacts, described
from .proof import TOLERANCE, LayerProof, every_second

Terms = OutputLoss | ScalarLoss


@dataclass(frozen=True, eq=False)
class ProblemFacts:
    """Every layer that was seen, in the order they ran, and why the other parameters belong to none.

    `columns`: how many columns a factor of the loss's curvature has (0: none is known). `rows_are_examples`: the loss
    counts each example once, in their order.
    """

    layers: dict[str, LayerFacts]
    reasons: dict[str, str]
    columns: int = 0
    rows_are_examples: bool = False

    @property
    def exact(self) -> list[LayerFacts]:
        """The layers that may be used as structure."""
        return [layer for layer in self.layers.values() if layer.exact]

    def layer(self, name: str) -> LayerFacts:
        """One layer by name, exact or not; refuses a name that is none."""
        if name not in self.layers:
            known = ", ".join(list(self.layers)[:12]) or "none"
            because = next((why for parameter, why in self.reasons.items() if parameter.startswith(f"{name}.")), "")
            refuse(
                "a layer must use its parameters in a way that is understood",
                f"{name!r}{': ' + because if because else ''}",
                f"Layers here: {known}.",
            )
        return self.layers[name]

    def covered(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Those of these parameters that an exact layer owns."""
        own = {name for layer in self.exact for name in layer.parameters}
        return tuple(name for name in names if name in own)


_KNOWN: WeakKeyDictionary[Problem, ProblemFacts] = WeakKeyDictionary()


@differentiable()
def facts_of(problem: Problem) -> ProblemFacts:
    """The facts about the layers of this problem, whichever parameters are selected; found once, then remembered."""
    whole = problem.selected_from or problem
    if whole not in _KNOWN:
        _KNOWN[whole] = _find(whole)
    return _KNOWN[whole]


def share_facts(known: Problem, part: Problem) -> None:
    """What is known of a problem, or would be found out of it, holds for it on a part of the data, too."""
    known, part = known.selected_from or known, part.selected_from or part
    if known in _KNOWN:
        _KNOWN[part] = _KNOWN[known]


def _find(problem: Problem) -> ProblemFacts:
    probe = problem.probe
    batch = max(probe.batches, key=lambda batch: examples_in(batch) or 0)
    whole = capture(probe, batch)
    once, reasons = _used_once(whole, tuple(every_parameter(probe)))
    examples = examples_in(batch)
    # Where every batch is one example there is nothing to take apart, and all of it belongs to that example.
    alone = examples == 1 and all(examples_in(one) == 1 for one in problem.batches)
    if examples is None or not (alone or problem.divisible):
        return _refused(once, reasons, "examples of a batch influence each other, or cannot be told apart")
    if isinstance(whole.terms, OutputLoss) and not len(whole.terms.f):
        return _refused(once, reasons, "the loss counts none of the examples that it was tried on")
    if examples < 2 and not alone:
        return _refused(once, reasons, "one example does not show how examples are arranged")
    part = capture(probe, map_tensors(batch, every_second))
    try:
        proof = LayerProof(probe, batch, whole, part, examples)
        found = {name: proof.facts(layer) for name, layer in once.items()}
    except RuntimeError as error:
        return _refused(once, reasons, f"its derivatives cannot be computed ({error})")
    if any(layer.exact for layer in found.values()):
        everywhere = hold_everywhere(problem, found, alone)
        if everywhere is None:
            return _refused(once, reasons, "examples of a batch influence each other")
        found = everywhere
    columns = whole.terms.columns() if isinstance(whole.terms, OutputLoss) else 0
    return ProblemFacts(found, reasons, columns, _rows_are_examples(probe, batch, whole.terms, part.terms, examples))


def _rows_are_examples(probe: Problem, batch: Any, terms: Terms, of_odd: Terms, examples: int) -> bool:
    """Whether each example gives one row of the loss: its own among those of all.

    Examples do not see each other, so that those with a one at some place of their binary number give the rows that are
    theirs; where these are the rows with a one there, for every place, the row of each example has its number. Those
    `of_odd` examples are there.
    """
    if not isinstance(terms, OutputLoss) or len(terms.f) != examples:
        return False
    tolerance = TOLERANCE.get(terms.f.dtype, 1e-3) * float(terms.f.detach().abs().max())
    with torch.no_grad():
        for place in range((examples - 1).bit_length()):
            some = torch.tensor([i for i in range(examples) if i >> place & 1], device="cpu")
            try:
                found = of_odd if place == 0 else probe.evaluate(take(batch, some), probe.parameters)
            except (RuntimeError, ValueError):  # a model that refuses so few examples
                return False
            assert isinstance(found, OutputLoss)
            rows = terms.f[some.to(terms.f.device)]
            if found.f.shape != rows.shape or float((found.f - rows).abs().max()) > tolerance:
                return False
    return True


def _used_once(run: Capture, names: tuple[str, ...]) -> tuple[dict[str, CapturedLayer], dict[str, str]]:
    """The layers whose parameters are used by this one call only, and what became of all other parameters."""
    once: dict[str, CapturedLayer] = {}
    reasons: dict[str, str] = {}
    for layer in run.layers:
        own = [name for name in (layer.weight, layer.bias) if name]
        several = [name for name in own if run.uses[name] > 1]
        if several:
            reasons |= dict.fromkeys(own, f"{several[0]} is used {run.uses[several[0]]} times")
        elif not layer.intact:
            reasons |= dict.fromkeys(own, "the layer's input is changed in place afterwards")
        else:
            once[layer.name] = layer
    known = {name for layer in once.values() for name in (layer.weight, layer.bias) if name}
    for name in names:
        if name in known or name in reasons:
            continue
        if name in run.recomputed:
            reasons[name] = "activation checkpointing computes it again in the backward pass"
        else:
            reasons[name] = "not used as the weight or bias of a known layer" if run.uses.get(name) else "not used"
    return once, reasons


def _refused(once: dict[str, CapturedLayer], reasons: dict[str, str], why: str) -> ProblemFacts:
    return ProblemFacts({name: described(layer, why) for name, layer in once.items()}, reasons)
