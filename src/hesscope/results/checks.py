"""What is said about the numbers themselves: are the derivatives right, and what would a run cost."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..result import Result

TOLERANCE = 1e-4


@dataclass(frozen=True)
class MethodCheck(Result):
    """One way to compute products: its error against finite differences and its time relative to "kept"."""

    name: str
    error: float
    relative_time: float
    note: str = ""

    @property
    def right(self) -> bool:
        return self.error <= TOLERANCE


@dataclass(frozen=True)
class Verdict(Result):
    """What the self-check found; every result of the problem's operators carries `str(verdict)`."""

    passed: bool
    method: str
    agreement: float
    symmetry: float
    linearity: float
    noise_floor: float
    methods: tuple[MethodCheck, ...]
    faulty_modules: tuple[str, ...] = ()
    unused_parameters: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        if not self.passed:
            named = "; ".join(self.faulty_modules) or "no single module found"
            return f"FAILED: products differ from float64 central differences by {self.agreement:.1e} ({named})"
        unused = f", unused parameters: {', '.join(self.unused_parameters)}" if self.unused_parameters else ""
        return (
            f"passed: within {self.agreement:.0e} of float64 central differences, asymmetry {self.symmetry:.0e}, "
            f"noise floor {self.noise_floor:.0e}, method {self.method}{unused}"
        )


@dataclass(frozen=True)
class CostPlan(Result):
    """What a run will take: measured on a few examples, scaled to all. `kept` is the share of data whose graph fits."""

    task: str
    products: int
    seconds: float
    bytes: int
    graph_bytes: int
    basis_bytes: int
    gradient_seconds: float
    kept: float
    note: str

    def __str__(self) -> str:
        return (
            f"{self.task}: about {self.products} products, {self.seconds:.1f} s and {self.bytes / 1e9:.2f} GB "
            f"({self.kept:.0%} of the data keeps its graph). {self.note}"
        )
