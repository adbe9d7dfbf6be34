"""Where the examples are in a tensor that a layer was given or returned, found by running different numbers of them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Arrangement:
    """Examples along `axis`, each with `fold` neighbouring entries of it (frames or tokens folded into the batch).

    `fold` is 0 where the whole tensor is one example, whatever its axes mean.
    """

    axis: int = 0
    fold: int = 1

    def examples(self, t: Tensor) -> int:
        """How many there are."""
        return t.shape[self.axis] // self.fold if self.fold else 1

    def first(self, t: Tensor) -> Tensor:
        """The tensor with its examples in the first axis, and what is folded in behind it."""
        moved = t.movedim(self.axis, 0)
        return moved if self.fold == 1 else moved.reshape(self.examples(t), -1, *moved.shape[1:])

    def back(self, t: Tensor) -> Tensor:
        """The inverse of `first`."""
        flat = t if self.fold == 1 else t.flatten(0, 1)
        return flat.movedim(0, self.axis)

    @staticmethod
    def of(many: Tensor, few: Tensor, examples: int, fewer: int) -> Arrangement | None:
        """The axis whose length goes with the number of examples; None unless there is exactly one."""
        if examples == fewer == 1:
            return Arrangement() if many.ndim and many.shape[0] == 1 else Arrangement(fold=0)
        if many.ndim != few.ndim:
            return None
        changed = [axis for axis in range(many.ndim) if many.shape[axis] != few.shape[axis]]
        if len(changed) != 1:
            return None
        fold, rest = divmod(many.shape[changed[0]], examples)
        if rest or fold * fewer != few.shape[changed[0]]:
            return None
        return Arrangement(changed[0], fold)
