"""Which stages an analysis runs within its time, and how much of each: by value per price, before it starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..curvature import Problem
from ..errors import HesscopeError
from ..kron import decouplable_layers
from ..partition import Grouping, Partition
from ..results.plan import (
    CHECK,
    FINE,
    GN_SPECTRUM,
    KRONECKER,
    LANDSCAPE,
    LARGEST,
    LAYER_TABLE,
    LAYERS,
    NEURONS,
    PARTS,
    SECOND,
    SMALLEST,
    SPECTRUM,
    TRACE,
    TRAINING,
    TRAINING_BLOCKS,
    AnalysisPlan,
    PlannedStage,
)
from ..structure import norm_products
from ..structure.sampled.shared_norms import can_share
from ..structure.source import source_of
from .config import AnalyzeConfig
from .layer_prices import expected_flops, expected_products
from .prices import Prices

# What a reader would miss most, per stage; divided by its price it decides what is left out.
VALUES = {LAYERS: 20, PARTS: 10, KRONECKER: 6, LANDSCAPE: 5, LAYER_TABLE: 5, TRAINING: 5, GN_SPECTRUM: 4, NEURONS: 4, FINE: 4, SECOND: 2, TRAINING_BLOCKS: 2}  # fmt: skip
RESERVE = 0.1  # of the budget: for what prices miss, and for writing the report
CORE_SHARE = 0.5  # of the time: what the core takes more than that is cut down, so that a map fits beside it
NORM_PROBES, FEWEST_PROBES = 16, 4
SECOND_OPINION = 24  # random vectors that confirm a trace, where the density's own do not
# Products that stages usually take; limits, where there is a budget, are a share of it and no less than FACTOR of this.
CHECKPOINT_PRODUCTS, TRACE_PRODUCTS, FACTOR = 30, 60, 1.5
SHARES = {LARGEST: 0.3, SMALLEST: 0.15, TRACE: 0.15}
FEWEST = {LARGEST: 9, SMALLEST: 10, TRACE: 10}  # products of the core where even these take too long
PRODUCTS = "products"
PASSES = 270  # over the data, of a landscape of three lines
PASS, WIDE = 0.4, 2.5  # the price of a pass in gradients, and of float64 in float32
FACTOR_GRADIENTS = 40  # of all Kronecker factors together, where they come in a few passes


@dataclass(frozen=True)
class Wish:
    """A stage that may be left out, with smaller versions of it: (amount, seconds), the whole one first."""

    name: str
    versions: tuple[tuple[int | None, float], ...]
    unit: str = ""
    products: int | None = None

    @property
    def value_per_second(self) -> float:
        return VALUES[self.name] / max(self.versions[-1][1], 1e-9)


def make_plan(
    problem: Problem,
    config: AnalyzeConfig,
    prices: Prices | None,
    checkpoints: int,
    budget: float | None,
    spent: float = 0.0,
) -> AnalysisPlan:
    """The core (both ends, trace, spectrum) always; everything else by value per price until the time is gone.

    `spent`: seconds that are gone, without those of the self-check.
    """
    cost = prices or Prices(0.0, 0.0, 0.0)
    time = float("inf") if budget is None else (1 - RESERVE) * budget - spent
    core, wishes = _core(config, cost, budget, time), _wishes(problem, config, cost, checkpoints, budget)
    left = time - sum(stage.seconds for stage in core)
    # First the smallest version of each stage, then larger ones with what is left. Blocks along training come last:
    # without the rest of it there is nothing to draw them over.
    chosen: dict[str, PlannedStage] = {}
    wishes_by_worth = sorted(wishes, key=lambda wish: (wish.name == TRAINING_BLOCKS, -wish.value_per_second))
    for wish in wishes_by_worth:
        possible = wish.name != TRAINING_BLOCKS or chosen[TRAINING].kept
        kept = possible and wish.versions[-1][1] <= left
        chosen[wish.name] = _planned(wish, wish.versions[-1 if kept else 0], kept)
        left -= chosen[wish.name].seconds if kept else 0.0
    if NEURONS in chosen and FINE in chosen and chosen[NEURONS].kept:  # of H itself: its stand-in is not missed
        left += chosen[FINE].seconds if chosen[FINE].kept else 0.0
        del chosen[FINE]
    for wish in wishes_by_worth:
        if wish.name in chosen and chosen[wish.name].kept:
            room = left + chosen[wish.name].seconds
            best = next(version for version in wish.versions if version[1] <= room)
            chosen[wish.name] = _planned(wish, best, kept=True)
            left = room - best[1]
    ordered = [chosen[wish.name] for wish in wishes if wish.name in chosen]
    return AnalysisPlan(budget, cost.gradient, cost.product, cost.gauss_newton, (*core, *ordered))


def _planned(wish: Wish, version: tuple[int | None, float], kept: bool) -> PlannedStage:
    whole = wish.versions[0][0]
    products = version[0] if wish.unit == PRODUCTS and version[0] != whole else wish.products
    return PlannedStage(wish.name, version[1], kept, version[0], whole, wish.unit, products)


def _core(config: AnalyzeConfig, cost: Prices, budget: float | None, time: float) -> list[PlannedStage]:
    """What every analysis has: as asked for where that fits into its share of the time, else less, down to a least.

    With a budget each has a limit on its products: some more than it usually takes, or what it takes at most if cut down.
    """
    each = _per_probe(config)
    usual: dict[str, float] = {LARGEST: 3 * config.k, SMALLEST: 40 + 10 * config.smallest, TRACE: TRACE_PRODUCTS}
    usual[SPECTRUM] = config.probes * each
    least = {**FEWEST, SPECTRUM: min(2, config.probes) * each}
    room = CORE_SHARE * time / cost.product if cost.product else float("inf")
    part = min(1.0, max(0.0, room - sum(least.values())) / max(1e-9, sum(usual.values()) - sum(least.values())))
    given = {name: least[name] + part * (usual[name] - least[name]) for name in usual}

    def limit(name: str, cut_down: float) -> int | None:
        if budget is None:
            return None
        if part < 1:
            return int(cut_down)
        return int(max(FACTOR * usual[name], SHARES[name] * budget / max(cost.product, 1e-9)))

    def stage(name: str, amount: float, whole: float, unit: str, most: int | None) -> PlannedStage:
        return PlannedStage(name, given[name] * cost.product, True, int(amount), int(whole), unit, most)

    pairs = max(3, min(config.k, given[LARGEST] / 3))
    bottom, traced = given[SMALLEST], given[TRACE]
    probes = config.probes if part == 1 else given[SPECTRUM] / each
    checking = [PlannedStage(CHECK, 10 * cost.gradient + 2 * cost.product)] if config.check else []
    return [
        *checking,
        stage(LARGEST, pairs, config.k, "", limit(LARGEST, FACTOR * given[LARGEST])),
        stage(SMALLEST, bottom, usual[SMALLEST], PRODUCTS, min(400, limit(SMALLEST, bottom) or 400)),
        stage(TRACE, traced, usual[TRACE], PRODUCTS, limit(TRACE, traced)),
        stage(SPECTRUM, probes, config.probes, "random vectors", None),
    ]


def _per_probe(config: AnalyzeConfig) -> float:
    """Products that a random vector usually takes: most stop early."""
    return config.steps / 4


def _wishes(
    problem: Problem, config: AnalyzeConfig, cost: Prices, checkpoints: int, budget: float | None
) -> list[Wish]:
    found = []
    if config.gauss_newton and problem.has_outputs:
        traces = None if budget is None else max(90, int(SHARES[TRACE] * budget / max(cost.gauss_newton, 1e-9)))
        parts = tuple((n, (config.k + n) * cost.gauss_newton) for n in (TRACE_PRODUCTS, TRACE_PRODUCTS // 3))
        found.append(Wish(PARTS, parts, PRODUCTS, traces))
        fewer = max(2, config.probes // 3)
        price = _per_probe(config) * cost.gauss_newton
        found.append(Wish(GN_SPECTRUM, tuple((n, n * price) for n in {fewer: 0, 2: 0}), "random vectors"))
    found.append(Wish(SECOND, ((SECOND_OPINION, SECOND_OPINION * cost.product),), "random vectors"))
    if config.block_maps:
        found += _block_wishes(problem, config, cost)
    layers = _guarded(lambda: len(decouplable_layers(problem)), 0) if config.decouple else 0
    if layers:
        each = 2.5 * config.k * cost.product
        most = min(layers, config.decouple)
        amounts = [n for n in (most, most // 2, 1) if n]
        prices = tuple((n, n * each + FACTOR_GRADIENTS * cost.gradient) for n in dict.fromkeys(amounts))
        found.append(Wish(KRONECKER, prices, "layers compared"))
    if config.landscape:
        wide = 1.0 if problem.dtype.itemsize == 8 else WIDE
        found.append(Wish(LANDSCAPE, ((None, wide * (PASSES * PASS * cost.gradient + 6 * cost.product)),)))
    table = expected_products(problem) if config.per_layer else None
    if table is not None and table <= config.most_products:
        price = table * cost.product + 10 * cost.gradient + expected_flops(problem) * cost.flop
        found.append(Wish(LAYER_TABLE, ((None, price),)))
    if checkpoints:
        each = (CHECKPOINT_PRODUCTS + TRACE_PRODUCTS) * cost.product + 12 * cost.gradient
        limit = None if budget is None else TRACE_PRODUCTS
        amounts = [n for n in (checkpoints, checkpoints // 2, 2) if 2 <= n <= checkpoints] or [checkpoints]
        found.append(Wish(TRAINING, tuple((n, n * each) for n in dict.fromkeys(amounts)), "checkpoints", limit))
        if config.block_maps and Partition.by("layer", problem).count > 1:
            blocks = _layer_norm_versions(problem, cost)
            found.append(
                Wish(TRAINING_BLOCKS, tuple((n, checkpoints * price) for n, price in blocks), "random vectors a block")
            )
    return found


def _block_wishes(problem: Problem, config: AnalyzeConfig, cost: Prices) -> Iterable[Wish]:
    if Partition.by("layer", problem).count > 1:
        yield Wish(LAYERS, _layer_norm_versions(problem, cost), "random vectors a block")
    if 2 <= _count(problem, "neuron") <= config.most_blocks:
        products = norm_products(problem, "neuron")
        if products <= config.most_products:
            yield Wish(NEURONS, ((None, products * cost.product + 20 * cost.gradient),))
    if finer_grouping(problem, config) is not None:
        yield Wish(FINE, ((NORM_PROBES, 2 * NORM_PROBES * cost.gradient + 2 * cost.gauss_newton),), "random gradients")


def finer_grouping(problem: Problem, config: AnalyzeConfig) -> Grouping | None:
    """The finest blocks whose Gauss-Newton norms random gradients can give at once, where those of H are too dear."""
    if not config.gauss_newton or not can_share(source_of(problem, "gauss_newton")):
        return None
    layers = Partition.by("layer", problem).count
    kinds: tuple[Grouping, ...] = ("neuron", "head")
    return next((kind for kind in kinds if layers < _count(problem, kind) <= config.most_blocks), None)


def _count(problem: Problem, kind: Grouping) -> int:
    """How many groups of this kind there are; none where a network has nothing of the kind (heads without attention)."""
    return _guarded(lambda: Partition.by(kind, problem).count, 0)


# A map makes graphs of its own beside those that are kept: where memory is short, its products build them anew.
_UNKEPT = 2.0


def _layer_norm_versions(problem: Problem, cost: Prices) -> tuple[tuple[int | None, float], ...]:
    """Norms by layer as they are found by themselves, or with 16, 8 or 4 random vectors a block."""

    def price(products: int) -> float:
        return _UNKEPT * products * cost.product + 20 * cost.gradient

    found: list[tuple[int | None, float]] = [(None, price(norm_products(problem, "layer", NORM_PROBES)))]
    probes = NORM_PROBES
    while probes >= FEWEST_PROBES:
        sampled = price(norm_products(problem, "layer", probes, "stochastic"))
        if sampled < found[-1][1]:
            found.append((probes, sampled))
        probes //= 2
    return tuple(found)


def _guarded(count: Callable[[], int], otherwise: int) -> int:
    try:
        return count()
    except HesscopeError:
        return otherwise
