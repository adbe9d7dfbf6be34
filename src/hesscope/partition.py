"""Which parameters belong together: every parameter carries the number of its block."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NoReturn, get_args

import torch
from torch import Tensor, nn

from .arguments import listed
from .curvature.given_problem import need_problem
from .errors import refuse
from .layers.attention import along, head_slices
from .layers.kinds import kind_of_module, neuron_axis
from .space import ParameterSpace

if TYPE_CHECKING:
    from .curvature import Problem

Grouping = Literal["layer", "tensor", "neuron", "class", "head"]


@dataclass(frozen=True, eq=False)
class Partition:
    """Blocks of a flat parameter vector: `labels[k]` is the block of parameter k, `layers[b]` the layer of block b.

    "layer": the tensors of one module. "tensor": each tensor alone. "neuron": a row of a weight and its bias (an output
    channel, a token of an embedding, a gate of a recurrent layer); other tensors stay whole. "class": the rows of the output layer, other layers
    whole. "head": the slices of attention projections that one head owns, other layers whole.
    """

    labels: Tensor
    names: tuple[str, ...]
    layers: tuple[str, ...]

    @staticmethod
    def by(kind: Grouping, problem: Problem) -> Partition:
        """The blocks of one kind, in the order of the problem's parameters."""
        if kind not in get_args(Grouping):
            refuse(f"a partition must be one of {', '.join(get_args(Grouping))}", f"{kind!r}", "Or use Partition.of.")
        space, model = need_problem(problem).space, problem.model
        last = _output_layer(space, model) if kind == "class" else None
        heads = head_slices(space, model) if kind == "head" else {}
        numbers: dict[str, int] = {}
        layers: list[str] = []
        labels = torch.empty(space.size, dtype=torch.int64, device="cpu")
        for (name, place), shape in zip(space.slices(), space.shapes, strict=True):
            layer = _layer_of(model, name)
            axis = (
                _neuron_axis(model, name, len(shape))
                if kind == "neuron"
                else 0
                if kind == "class" and layer == last
                else None
            )
            if kind == "tensor":
                parts, owner = [name], torch.zeros(shape, dtype=torch.int64, device="cpu")
            elif axis is not None:
                whose = _rows_of(layer, name)
                parts, owner = [f"{whose}[{i}]" for i in range(shape[axis])], along(shape, axis, shape[axis])
            elif name in heads:
                parts, owner = heads[name]
            else:
                parts, owner = [layer], torch.zeros(shape, dtype=torch.int64, device="cpu")
            for part in parts:
                if part not in numbers:
                    numbers[part] = len(numbers)
                    layers.append(layer)
            labels[place] = torch.tensor([numbers[part] for part in parts], device="cpu")[owner.reshape(-1)]
        return Partition(labels, tuple(numbers), tuple(layers))

    @staticmethod
    def of(problem: Problem, blocks: Mapping[str, str | Iterable[str]]) -> Partition:
        """Blocks by name, each the parameters that its globs select; together they must cover every parameter once."""
        space = need_problem(problem).space
        if not isinstance(blocks, Mapping):
            refuse("blocks must be globs by name", type(blocks).__name__, "Pass {name: globs}.")
        labels = torch.full((space.size,), -1, device="cpu")
        for number, (name, globs) in enumerate(blocks.items()):
            chosen = space.indices(globs)
            if bool((labels[chosen] >= 0).any()):
                refuse("blocks must not overlap", f"{name!r} repeats parameters", "Make the globs disjoint.")
            labels[chosen] = number
        missing = [name for name, place in space.slices() if bool((labels[place] < 0).any())]
        if missing:
            _uncovered(missing)
        return Partition(labels, tuple(blocks), tuple(blocks))

    @property
    def count(self) -> int:
        """The number of blocks."""
        return len(self.names)

    @property
    def sizes(self) -> Tensor:
        """The number of parameters of every block."""
        return torch.bincount(self.labels, minlength=self.count)

    def indices(self, block: int | str) -> Tensor:
        """The flat positions of one block."""
        named = isinstance(block, str)
        if block not in (self.names if named else range(self.count)):
            some = ", ".join(self.names[:8])
            refuse("a block must be one of the partition", f"{block!r}", f"There are {self.count}: {some}.")
        number = self.names.index(block) if isinstance(block, str) else block
        return torch.nonzero(self.labels == number).squeeze(1)

    def check(self, space: ParameterSpace) -> None:
        """Refuse a partition that does not cover these parameters."""
        if len(self.labels) != space.size:
            refuse(
                f"a partition must cover the {space.size} selected parameters",
                f"one of {len(self.labels)} parameters",
                "Make it from the same problem: Partition.by(kind, problem).",
            )
        if bool((self.labels < 0).any()) or bool((self.labels >= self.count).any()) or int(self.sizes.min()) == 0:
            refuse(
                "every parameter must have a block and every block a parameter",
                "labels that miss some",
                "Use Partition.of.",
            )


def as_partition(partition: Partition | Grouping, problem: Problem) -> Partition:
    """A partition from a kind or as it is, checked against the problem."""
    chosen = partition if isinstance(partition, Partition) else Partition.by(partition, problem)
    chosen.check(problem.space)
    return chosen


def _neuron_axis(model: nn.Module, name: str, axes: int) -> int | None:
    """Which axis of a tensor counts neurons, channels or tokens; a number that a layer also holds has none."""
    path, _, local = name.rpartition(".")
    axis = neuron_axis(dict(model.named_modules(remove_duplicate=False))[path], local)
    return axis if axis is not None and axis < axes else None


def _rows_of(layer: str, name: str) -> str:
    """Whose rows these are: the layer's, or one of the layers inside a recurrent module."""
    inner = re.fullmatch(r"(?:weight|bias)_[ih]h_(l\d+\w*)", name.rpartition(".")[2])
    return f"{layer}.{inner[1]}" if inner else layer


def _layer_of(model: nn.Module, name: str) -> str:
    """The module that owns a tensor; a model that is one layer is called after its class, loose tensors after themselves."""
    return name.rpartition(".")[0] or (type(model).__name__ if kind_of_module(model) is not None else name)


def _output_layer(space: ParameterSpace, model: nn.Module) -> str:
    """The layer of the last matrix: its rows are the classes."""
    matrices = [name for name, shape in zip(space.names, space.shapes, strict=True) if len(shape) == 2]
    if not matrices:
        refuse('a partition by "class" needs an output matrix', "no matrix", "Select the output layer's weight.")
    return _layer_of(model, matrices[-1])


def _uncovered(missing: list[str]) -> NoReturn:
    refuse(
        "a partition must cover every selected parameter",
        f"none for {listed(missing)}",
        "Add a block with a glob for them.",
    )
