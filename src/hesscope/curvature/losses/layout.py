"""Where the classes of logits are: torch puts them second, language models put them last."""

from __future__ import annotations

from typing import NoReturn

from torch import Tensor

from ...errors import refuse


class ClassAxis:
    """Logits with the classes last; the shape of the targets tells where they were. Where it fits both ways, an earlier
    batch decides, and nothing is guessed."""

    def __init__(self) -> None:
        self._last: bool | None = None

    def moved_last(self, outputs: Tensor, targets: Tensor, soft: bool) -> Tensor:
        """The logits of one batch."""
        if outputs.ndim == 1:
            outputs = outputs[None]
        shape, given = tuple(outputs.shape), tuple(targets.shape)
        if outputs.ndim == 2:
            if given == shape if soft else given == shape[:1] or (not given and shape[0] == 1):
                return outputs
            self._refuse(shape, given, shape[:1])
        rest = (shape[0], *shape[2:])
        second, last = given == (shape if soft else rest), not soft and given == shape[:-1]
        if not second and not last:
            self._refuse(shape, given, rest)
        if second and last and shape[1] > 1 and self._last is None:
            refuse(
                f"the axis of the classes must be clear from the shapes {shape} of the outputs and {given} of the targets",
                "as many classes as positions",
                "Pass forward=lambda model, batch: (logits.flatten(0, 1), labels.flatten()) with the classes last "
                "(or logits.transpose(1, 2) before that, if they come second).",
            )
        if second != last:
            if self._last not in (None, last):
                refuse(
                    "the classes must be on the same axis in every batch",
                    f"outputs of shape {shape} with targets of shape {given} after others",
                    "Pass forward= to bring them to one form.",
                )
            self._last = last
        return outputs if self._last else outputs.movedim(1, -1)

    @staticmethod
    def _refuse(shape: tuple[int, ...], given: tuple[int, ...], expected: tuple[int, ...]) -> NoReturn:
        refuse(
            f"cross-entropy targets must fit outputs of shape {shape}",
            f"targets of shape {given}",
            f"Expected class indices of shape {expected}; pass forward= to reshape or shift them.",
        )


def class_second(outputs: Tensor, targets: Tensor) -> Tensor:
    """The same logits as torch's own loss reads them."""
    last = outputs.ndim > 2 and not targets.is_floating_point() and targets.shape == outputs.shape[:-1]
    second = outputs.ndim > 2 and targets.shape == (outputs.shape[0], *outputs.shape[2:])
    return outputs.movedim(-1, 1) if last and not second else outputs
