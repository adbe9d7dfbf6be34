"""Where the classes of logits are: torch puts them second, language models put them last."""

from __future__ import annotations

from torch import Tensor

from ...errors import refuse


def class_last(outputs: Tensor, targets: Tensor, soft: bool) -> Tensor:
    """Logits with the classes last; the targets tell, and where they fit both ways nothing is guessed."""
    if outputs.ndim == 1:
        outputs = outputs[None]
    shape, given = tuple(outputs.shape), tuple(targets.shape)
    if outputs.ndim == 2:
        if shape == given if soft else targets.numel() == shape[0]:
            return outputs
        rest: tuple[int, ...] = shape[:1]
    else:
        rest = (shape[0], *shape[2:])
        second, last = given == (shape if soft else rest), not soft and given == shape[:-1]
        if second and last and shape[1] > 1:
            refuse(
                f"the axis of the classes must be clear from the shapes {shape} of the outputs and {given} of the targets",
                "as many classes as positions",
                "Pass forward=lambda model, batch: (logits.flatten(0, 1), labels.flatten()) with the classes last "
                "(or logits.transpose(1, 2) before that, if they come second).",
            )
        if second:
            return outputs.movedim(1, -1)
        if last:
            return outputs
    refuse(
        f"cross-entropy targets must fit outputs of shape {shape}",
        f"targets of shape {given}",
        f"Expected class indices of shape {rest}; pass forward= to reshape or shift them.",
    )


def class_second(outputs: Tensor, targets: Tensor) -> Tensor:
    """The same logits as torch's own loss reads them."""
    last = outputs.ndim > 2 and not targets.is_floating_point() and targets.shape == outputs.shape[:-1]
    second = outputs.ndim > 2 and targets.shape == (outputs.shape[0], *outputs.shape[2:])
    return outputs.movedim(-1, 1) if last and not second else outputs
