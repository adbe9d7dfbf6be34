"""Never pay twice for the primal pass: graphs that are kept and reused, under the memory budget of the problem."""

from __future__ import annotations

import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from threading import RLock
from typing import Any, Generic, Protocol, TypeVar

import torch

from ...errors import refuse
from ...memory import give_back
from ...scratch import scratch_bytes, scratch_folder
from ..data import bytes_of, examples_in, first_examples, halves, in_batches_of, in_larger_batches, tensors_of
from ..problem import Problem
from ..proofs.probing import give_back_of
from .memory import bytes_in_graph, counting_saved_bytes, is_out_of_memory
from .saved_elsewhere import CountedOperations, GraphFile, HalfPrecision, NoRoom

_HOOKED = "saved tensor hooks"  # of which torch.func inside a model knows nothing, and says so
_FEW, _MORE = 8, 32  # examples on which graphs are measured
_JOINED_BYTES = 500_000_000  # of a graph of joined batches
_PARTS = 8  # joined batches take at most this part of the budget, so that it can be filled
_TRANSIENT = 1.5  # of a graph is alive beside it in a backward pass (measured: 1 to 2; convolutions unfold)
# Reading a byte takes a core about as long as so many operations: graphs are read where building them takes twice that.
_OPERATIONS_OF_A_BYTE = 25


class Traced(Protocol):
    """The graph of a batch, with the value of its loss, and the bytes it holds beside what autograd saves."""

    value: float

    @property
    def held_bytes(self) -> int: ...


_Graph = TypeVar("_Graph", bound=Traced)
_T = TypeVar("_T")


@dataclass(frozen=True)
class GraphSize:
    """Bytes that autograd saves for a batch: some for every graph, some for every example.

    The examples themselves are there anyway, unless a graph holds a copy of its own.
    """

    fixed: float
    per_example: float
    example: float = 0.0

    def of(self, examples: int, copied: bool = False) -> int:
        return int(self.fixed + (self.per_example + copied * self.example) * examples)

    def examples_in(self, size: float) -> int:
        """How many examples make a graph of this size."""
        return max(1, int((size - self.fixed) / max(self.per_example, 1.0)))


@dataclass(frozen=True)
class Forecast:
    """Bytes of all graphs, of those that will be kept in memory and in a file, and of what a product adds.

    `share` is that of the examples whose graphs are kept; `runs` are the graphs that a product passes through: how many
    are kept, and how many are built for it.
    """

    total: int
    kept: int
    in_file: int
    working: int
    share: float
    runs: tuple[int, int]


class KeptGraphs(ABC, Generic[_Graph]):
    """Common to all engines: a prefix of the batches has its graph kept, the others are rebuilt for every block.

    Every evaluation compares the batch's loss with the one that was recorded when the problem was first evaluated.
    """

    def __init__(self, problem: Problem, half: bool = False) -> None:
        """With `half`, what memory holds of graphs has half of its digits."""
        self.problem, self._half = problem, HalfPrecision() if half else None
        self.leaves = problem.leaves()
        self.kept_batches = 0
        self.kept_bytes = 0
        self.everything_kept = False
        self._built = False
        self._building = RLock()

    @abstractmethod
    def trace(self, batch: Any) -> _Graph:
        """The graph of one batch."""

    @abstractmethod
    def hold(self, graph: _Graph) -> None:
        """Keep a graph for all products to come."""

    @abstractmethod
    def forget(self) -> None:
        """Let go of every graph that is held."""

    def build(self) -> None:
        """Keep as many graphs as the budget allows; called by the first product."""
        with self._building:  # two threads would add up every batch twice
            if self._built:
                return
            try:
                self.everything_kept = self._keep()
                self.finish()
            except BaseException:
                # A part of the data must never pass for all of it in the next product.
                self.forget()
                self._file = None
                self.problem.memory_budget.release(self.kept_bytes)
                self.kept_batches = self.kept_bytes = 0
                raise
            give_back_of(self.problem)
            self._built = True
            weakref.finalize(self, self.problem.memory_budget.release, self.kept_bytes)

    def finish(self) -> None:
        """Called once, when everything that is kept is held."""

    def _keep(self) -> bool:
        """Hold the graphs of the first batches; whether those are all."""
        for batch, count in in_larger_batches(self.problem.batches, self.joined_examples):
            graphs = self._in_memory(batch, count)
            graphs = self._in_file(batch) if graphs is None else graphs
            if graphs is None:
                return False
            value = 0.0
            for graph in graphs:
                self.hold(graph)
                value += graph.value
            self.problem.confirm(self.kept_batches, value, count)
            self.kept_batches += count
        return True

    def _in_memory(self, batch: Any, count: int) -> Iterable[_Graph] | None:
        size = self.size.of(examples_in(batch) or 1, self._copied(count))
        measured, self._spare = self._spare, None
        if self._file is not None or not self.problem.memory_budget.reserve(size):
            return None
        self.kept_bytes += size
        if self._half is not None:
            with self._half.saving(self._own(batch)):
                return list(in_pieces(self.problem, batch, self.trace))
        return [measured[1]] if measured and measured[0] is batch else in_pieces(self.problem, batch, self.trace)

    def _in_file(self, batch: Any) -> list[_Graph] | None:
        """The graphs of a batch with what they saved in a file; all of them or, where there is no room, None."""
        if self._file is None and (room := self._room()):
            self._file = GraphFile.new(*room)
        if self._file is None:
            return None
        try:
            with self._file.saving(self._own(batch)):
                graphs = list(self._pieces(batch))
        except NoRoom:
            return None
        except RuntimeError as error:
            if _HOOKED not in str(error):
                raise
            return None
        give_back()  # the nodes that stay lie between what went: of many graphs, most of the memory would be such gaps
        return graphs

    def _own(self, batch: Any) -> set[int]:
        """Addresses of what is in memory anyway."""
        model = self.problem.model
        there = (*self.leaves.values(), *model.parameters(), *model.buffers(), *tensors_of(batch))
        return {t.untyped_storage().data_ptr() for t in there}

    def _room(self) -> tuple[Path, int] | None:
        """A folder for graphs that memory does not hold, and how many bytes it takes, where reading them pays."""
        where = scratch_folder() if self.problem.memory_budget.limit and self.problem.device.type == "cpu" else None
        if where is None or self._operations_of_a_byte() < 2 * _OPERATIONS_OF_A_BYTE * torch.get_num_threads():
            return None
        return where, scratch_bytes(where)

    def _operations_of_a_byte(self) -> float:
        """Operations that build a graph, for each of its bytes, on one example where batches can be cut."""
        batch = next(iter(self.problem.batches))
        few = first_examples(batch, 1) if self.problem.divisible else batch
        try:
            operations = CountedOperations()
            with operations:
                self.trace(few)
        except Exception:
            return 0.0  # what cannot be counted, or does not fit, is built again; what else is wrong shows there
        return operations.count / max(1, self.size.of(examples_in(few) or 1))

    def _pieces(self, batch: Any) -> Iterator[_Graph]:
        """The graphs of a batch, of as many examples at a time as are rebuilt at a time."""
        for part in in_batches_of(batch, self.working_examples):
            yield from in_pieces(self.problem, part, self.trace)

    def rebuilt(self) -> Iterator[_Graph]:
        """The graphs of the batches beyond the kept ones, one after the other, of pieces that fit beside the kept."""
        for index, batch in enumerate(islice(iter(self.problem.batches), self.kept_batches, None), self.kept_batches):
            value = 0.0
            for graph in self._pieces(batch):
                value += graph.value
                yield graph
            self.problem.confirm(index, value)

    def forecast(self, counts: Sequence[int]) -> Forecast:
        """What `build` and a product will take for batches of so many examples, if they are of one form."""
        joined, free = _joined_counts(counts, self.joined_examples), self.problem.memory_budget.free
        sizes = [self.size.of(count, self._copied(together)) for count, together in joined]
        kept = examples = batches = graphs = 0
        for size, (count, together) in zip(sizes, joined, strict=True):
            if kept + size > free:
                break
            kept, examples, batches, graphs = kept + size, examples + count, batches + together, graphs + 1
        most = self.working_examples
        alone = [min(count, most or count) for count in counts]
        built = sum(-(-count // most) if most else 1 for count in counts[batches:])
        working = _TRANSIENT * max((self.size.of(count) for count, _ in joined[:1]), default=0)
        in_file = 0
        if examples < sum(counts):
            working = (1 + _TRANSIENT) * self.size.of(max(alone), self._copied(1))
            rest, room = sum(sizes) - kept, self._room()
            if room is not None and rest <= room[1]:
                in_file, examples, graphs, built = rest, sum(counts), graphs + built, 0
        share = examples / sum(counts) if counts else 1.0
        return Forecast(sum(sizes), kept, in_file, int(working), share, (graphs, built))

    def _copied(self, together: int) -> bool:
        """Whether the graph of so many batches together holds examples that nobody else holds."""
        return together > 1 or not self.problem.batches.held

    @property
    def size(self) -> GraphSize:
        """What a graph takes, measured once on a few examples."""
        if self._size is None:
            batch = next(iter(self.problem.batches), None)
            size = GraphSize(0.0, 0.0) if batch is None else self._measured(batch)
            share = 1.0 if self._half is None else 0.5
            self._size = GraphSize(share * size.fixed, share * size.per_example, size.example)
        return self._size

    _size: GraphSize | None = None
    _file: GraphFile | None = None
    _spare: tuple[Any, _Graph] | None = None  # the first batch, where all of it was measured, and its graph

    @property
    def joined_examples(self) -> int:
        """Small batches waste time on reading and writing gradients: so many examples are run as one batch, where they
        do not see each other."""
        if self.problem.batches.single or not self.problem.joinable:
            return 0
        return self.size.examples_in(min(_JOINED_BYTES, self.problem.memory_budget.free / _PARTS))

    @property
    def working_examples(self) -> int | None:
        """How many examples of a batch are rebuilt at a time; None for all, as where they see each other."""
        if not self.problem.divisible:
            return None
        return self.size.examples_in(max(_JOINED_BYTES / 5, min(_JOINED_BYTES, self.problem.memory_budget.limit / 2)))

    def _measured(self, batch: Any) -> GraphSize:
        size = examples_in(batch) or 1
        example = bytes_of(batch) / size
        # A graph of all examples that were measured may as well be kept, where reading it computes nothing again.
        few_enough = self.problem.batches.single and size <= _MORE and not self.problem._evaluation.recomputes
        if size < 2 or few_enough or not self.problem.divisible:
            # A look at what a checkpointed part saved computes it again, and holds it.
            whole = self._saved_bytes if self.problem._evaluation.recomputes else self._whole_bytes
            return GraphSize(0.0, whole(batch) / size, example)
        few, more = min(_FEW, size // 2), min(_MORE, size)
        small, large = (self._saved_bytes(first_examples(batch, count)) for count in (few, more))
        per_example = max(0.0, (large - small) / (more - few))
        return GraphSize(max(0.0, small - few * per_example), per_example, example)

    def _whole_bytes(self, batch: Any) -> float:
        """The same of a batch that is not cut. Its graph is read as it is, without hooks, and may then be kept."""
        own = {t.untyped_storage().data_ptr() for t in (*self.leaves.values(), *tensors_of(batch))}
        graphs = list(in_pieces(self.problem, batch, self.trace))
        alone = self.problem.batches.single or not self.problem.joinable
        self._spare = (batch, graphs[0]) if len(graphs) == 1 and alone else None
        return float(sum(bytes_in_graph(graph, own) + graph.held_bytes for graph in graphs))

    def _saved_bytes(self, batch: Any) -> float:
        """What autograd saves, without the parameters and the examples themselves: a few of these are a view of all."""
        there = [*self.leaves.values(), *tensors_of(batch)]
        own = {t.untyped_storage().data_ptr() for t in there}

        def saved(piece: Any) -> int:
            try:
                with counting_saved_bytes(own) as count:
                    graph = self.trace(piece)
                    total = count()
            except RuntimeError as error:
                if _HOOKED not in str(error):
                    raise
                graph = self.trace(piece)
                total = bytes_in_graph(graph, own)
            return total + graph.held_bytes

        return float(sum(in_pieces(self.problem, batch, saved)))


def _joined_counts(counts: Sequence[int], most: int) -> list[tuple[int, int]]:
    """Examples of the batches that run as one, and how many of the batches given each is made of."""
    joined: list[tuple[int, int]] = []
    for count in counts:
        examples, together = joined[-1] if joined else (0, 0)
        if joined and examples + count <= most:
            joined[-1] = (examples + count, together + 1)
        else:
            joined.append((count, 1))
    return joined


def in_pieces(problem: Problem, batch: Any, work: Callable[[Any], _T]) -> Iterator[_T]:
    """Do `work` on a batch; where memory runs out, on its halves instead, and say so."""
    try:
        yield work(batch)
        return
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        size = examples_in(batch) or 0
        parts = halves(batch) if problem.divisible else None
        if parts is None:
            if size < 2:
                raise
            refuse(
                "a batch whose examples see each other must fit in memory",
                f"{size} examples, for which memory ran out",
                "Pass smaller batches, as you train on them.",
            )
    warnings.warn(f"out of memory with {size} examples at a time; going on with halves of {size // 2}", stacklevel=3)
    for part in parts:
        yield from in_pieces(problem, part, work)
