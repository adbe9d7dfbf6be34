"""What is asked of the library about one case, and whether each answer is right."""

from __future__ import annotations

import contextlib
import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import hesscope as hs
from fuzz.cases import Case, exact_copy, make, own_copy
from fuzz.truth import Truth, Undecided
from hesscope.errors import HesscopeError

FIRST = ("loss_value", "gradient", "H @ v")
TORCH = str(Path(torch.__file__).parent)


@dataclass(frozen=True)
class Answer:
    """One number (or array) of the library beside the truth; `allowed` is what it says of itself it may be off."""

    got: Any
    truth: Any
    scale: float
    allowed: Any = 0.0
    exact64: bool = False  # computed in float64 whatever the problem's type


@dataclass(frozen=True)
class Finding:
    """What became of one check: right, refused, crashed or wrong."""

    check: str
    outcome: str
    detail: str = ""


@dataclass
class Outcome:
    """All findings of one case."""

    seed: int
    tags: tuple[str, ...]
    findings: list[Finding] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        outcomes = {finding.outcome for finding in self.findings}
        return next(name for name in ("wrong", "crashed", "refused", "no truth", "right") if name in outcomes)

    def of(self, *outcomes: str) -> list[Finding]:
        return [finding for finding in self.findings if finding.outcome in outcomes]


def snapshot(model: nn.Module) -> dict[str, Any]:
    """Everything of the user's that must not change."""
    tensors = {**dict(model.named_parameters()), **{f"buffer {k}": b for k, b in model.named_buffers()}}
    return {
        "values": {name: t.detach().clone() for name, t in tensors.items()},
        "identities": {name: id(t) for name, t in tensors.items()},
        "modes": {name: m.training for name, m in model.named_modules()},
        "requires_grad": {name: t.requires_grad for name, t in tensors.items()},
        "grad": {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()},
        "hooks": {n: (len(m._forward_hooks), len(m._forward_pre_hooks)) for n, m in model.named_modules()},
        "attributes": {name: sorted(vars(m)) for name, m in model.named_modules()},
        "torch rng": torch.get_rng_state(),
        "numpy rng": np.random.get_state()[1].tolist(),  # type: ignore[index]  # noqa: NPY002
        "python rng": random.getstate(),
        "default dtype": torch.get_default_dtype(),
        "modes of grad": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
    }


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num())
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    return bool(a == b)


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What differs, by name."""
    found = []
    for key, was in before.items():
        now = after[key]
        if not _same(was, now):
            parts = [k for k in was if k not in now or not _same(was[k], now[k])] if isinstance(was, dict) else []
            found.append(f"{key} {parts}".strip())
    return found


def _context(name: str) -> contextlib.AbstractContextManager[Any]:
    if name == "no_grad":
        return torch.no_grad()
    return torch.inference_mode() if name == "inference_mode" else contextlib.nullcontext()


def _warned(caught: list[warnings.WarningMessage]) -> str:
    """What the library (not torch) warned of."""
    ours = [str(w.message) for w in caught if not w.filename.startswith(TORCH) and "torch" not in w.category.__module__]
    # Torch's own warnings from C++ carry the caller's file; their text tells them.
    own = [text for text in ours if "Triggered internally" not in text and "torch.nn.utils" not in text]
    return own[0] if own else ""


class Examiner:
    """Runs the checks of one case, one after the other, and judges each."""

    def __init__(self, seed: int, thorough: bool) -> None:
        self.case: Case = make(seed)
        self.thorough = thorough
        self.outcome = Outcome(seed, self.case.tags)
        self.half = "autocast" in self.case.tags and self.case.dtype == torch.float32

    def tolerance(self, exact64: bool) -> float:
        """Relative to the norm. Autocast rounds to eight bits, so that two right answers differ by per cents."""
        if self.case.dtype == torch.float64 or exact64:
            return 1e-6
        return 1e-1 if self.half else 2e-3

    def run(self) -> Outcome:
        """The outcome of all checks."""
        case = self.case
        rng = (torch.get_rng_state(), random.getstate())
        before = snapshot(case.model)
        with _context(case.context):
            args, options = case.arguments()
            problem: Any = None

            def build() -> Iterator[Answer]:
                nonlocal problem
                problem = hs.Problem.of(*args, **options)
                yield from ()

            self._check("Problem.of", build)
        if problem is None:
            self._check_unchanged(before)
            return self.outcome
        if case.moves:
            with torch.no_grad():
                for tensor in (*case.model.parameters(), *case.model.buffers()):
                    if tensor.is_floating_point():
                        tensor.add_(0.37)
            before = snapshot(case.model)
        self.truth = Truth(exact_copy(case.seed), problem.space.names)
        try:
            with torch.random.fork_rng(devices=[]):
                self.scales()
        except (Undecided, RuntimeError, ValueError) as reason:  # what cannot be trained has no truth either
            self.outcome.findings.append(Finding("truth", "no truth", str(reason)))
            return self.outcome
        torch.set_rng_state(rng[0])
        random.setstate(rng[1])
        with _context(case.context):
            for name, check in self.checks(problem):
                self._check(name, check)
                if name in FIRST and self.outcome.findings[-1].outcome in ("wrong", "crashed"):
                    break  # all that follows rests on these, and would only repeat the failure
        self._check_unchanged(before)
        return self.outcome

    def _check_unchanged(self, before: dict[str, Any]) -> None:
        different = changes(before, snapshot(self.case.model))
        outcome = "wrong" if different else "right"
        self.outcome.findings.append(Finding("nothing of the user's changed", outcome, "; ".join(different)))

    def scales(self) -> None:
        """What errors are compared with."""
        truth = self.truth
        self.H = truth.hessian
        floor = 1e-6 * (1 + abs(truth.value) + float(truth.gradient.norm()))
        if self.case.dtype == torch.float64:
            floor *= 1e-3
        self.norm = float(self.H.norm()) + floor
        self.G = truth.gauss_newton if truth.splits else None
        self.norm_g = float(self.G.norm()) + floor if self.G is not None else 0.0

    def _check(self, name: str, check: Callable[[], Iterator[Answer]]) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                bad = [text for text in map(self._judge, check()) if text]
            except HesscopeError as error:
                # A loss that is only known as a number has no Gauss-Newton matrix: to say so is the right answer.
                undefined = self.case.loss.by_batch is not None and " G" in f" {name} ".replace("R dense", "G")
                outcome = "right" if undefined else "refused"
                self.outcome.findings.append(Finding(name, outcome, f"{type(error).__name__}: {error}"))
                return
            except Exception as error:
                self.outcome.findings.append(Finding(name, "crashed", f"{type(error).__name__}: {error}"))
                return
        warning = _warned(caught)
        if not bad:
            self.outcome.findings.append(Finding(name, "right"))
        elif warning:
            self.outcome.findings.append(Finding(name, "refused", f"warned: {warning}"))
        else:
            self.outcome.findings.append(Finding(name, "wrong", bad[0]))

    def _judge(self, answer: Answer) -> str:
        got, truth = _array(answer.got), _array(answer.truth)
        if got.shape != truth.shape:
            return f"shape {got.shape} instead of {truth.shape}"
        if got.size == 0:
            return ""
        tolerance = self.tolerance(answer.exact64) + 10 * self.truth.known.error
        excess = np.abs(got - truth) - 5 * _array(answer.allowed)
        worst = float(np.max(excess))
        if worst <= tolerance * answer.scale:  # also catches values that are not numbers
            return ""
        return f"off by {worst / answer.scale:.1e} of the norm: {np.ravel(got)[:3]} instead of {np.ravel(truth)[:3]}"

    def checks(self, problem: Any) -> Iterator[tuple[str, Callable[[], Iterator[Answer]]]]:
        """Every check by name, in the order in which they run."""
        yield "names", lambda: self._names(problem)
        yield "loss_value", lambda: self._loss(problem)
        yield "gradient", lambda: self._gradient(problem)
        yield "H @ v", lambda: self._products(problem, "auto")
        for method in ("kept", "batched"):
            yield f"H dense, {method}", lambda method=method: self._dense(problem, method)  # type: ignore[misc]
        yield "G dense", lambda: self._gauss_newton(problem)
        yield "R dense", lambda: self._functional(problem)
        yield "Fisher exact", lambda: self._fisher(problem, "exact")
        yield "Fisher empirical", lambda: self._fisher(problem, "empirical")
        for matrix in ("H", "G"):
            yield f"trace {matrix}", lambda m=matrix: self._trace(problem, m)  # type: ignore[misc]
            yield f"diagonal {matrix}", lambda m=matrix: self._diagonal(problem, m)  # type: ignore[misc]
            yield f"frobenius_norm {matrix}", lambda m=matrix: self._frobenius(problem, m)  # type: ignore[misc]
            yield f"row_norms {matrix}", lambda m=matrix: self._rows(problem, m)  # type: ignore[misc]
            yield f"dense_hessian {matrix}", lambda m=matrix: self._dense_hessian(problem, m)  # type: ignore[misc]
            for kind in ("layer", "tensor", "neuron"):
                yield f"block_norms {kind} {matrix}", lambda m=matrix, k=kind: self._blocks(problem, m, k)  # type: ignore[misc]
        yield "trace H by probes", lambda: self._probed_trace(problem)
        yield "eigenpairs largest", lambda: self._eigenpairs(problem, "largest")
        yield "eigenpairs both", lambda: self._eigenpairs(problem, "both")
        yield "spectral_density", lambda: self._density(problem)
        yield "block_spectra", lambda: self._spectra(problem)
        yield "select", lambda: self._select(problem)
        yield "block", lambda: self._block(problem)
        yield "cast", lambda: self._cast(problem)
        for name in self._layers():
            yield f"layer_hessian {name}", lambda n=name: self._layer(problem, n)  # type: ignore[misc]
            yield f"decouple {name}", lambda n=name: self._decouple(problem, n)  # type: ignore[misc]
        if self.thorough or self.case.seed % 6 == 3:
            yield "check", lambda: self._verdict(problem)
            yield "H dense, after check", lambda: self._dense(problem, "auto")

    def _matrix(self, problem: Any, matrix: str) -> tuple[Any, Tensor | None, float]:
        if matrix == "H":
            return hs.Hessian(problem), self.H, self.norm
        return hs.GaussNewton(problem), self.G, self.norm_g

    def _names(self, problem: Any) -> Iterator[Answer]:
        trained = [n for n, p in self.case.model.named_parameters() if p.requires_grad]
        if self.case.params == "*":
            yield Answer(sorted(problem.space.names) == sorted(trained), True, 1.0)
        elif not isinstance(self.case.params, str):
            yield Answer(sorted(problem.space.names) == sorted(self.case.params), True, 1.0)
        yield Answer(problem.space.size, self.truth.size, 1.0)

    def _loss(self, problem: Any) -> Iterator[Answer]:
        yield Answer(problem.loss_value(), self.truth.value, abs(self.truth.value) + 1e-3)

    def _gradient(self, problem: Any) -> Iterator[Answer]:
        g = self.truth.gradient
        if (
            self.half
        ):  # what cancels in eight bits is not there in more: the gradient is that of the steps that are taken
            g = Truth(own_copy(self.case.seed), self.truth.names).plain_gradient
        yield Answer(problem.gradient(), g, float(g.norm()) + 1e-4 * (1 + abs(self.truth.value)))

    def _products(self, problem: Any, method: Any) -> Iterator[Answer]:
        H = hs.Hessian(problem, method=method)
        generator = torch.Generator().manual_seed(1)
        V = torch.randn(self.truth.size, 3, generator=generator, dtype=torch.float64)
        yield Answer(H @ V[:, 0].to(H.dtype), self.H @ V[:, 0], self.norm * float(V[:, 0].norm()))
        yield Answer(H @ V.to(H.dtype), self.H @ V, self.norm * float(V.norm()))

    def _dense(self, problem: Any, method: Any) -> Iterator[Answer]:
        yield Answer(hs.Hessian(problem, method=method).dense(), self.H, self.norm)

    def _gauss_newton(self, problem: Any) -> Iterator[Answer]:
        got = hs.GaussNewton(problem).dense()
        if self.G is not None:
            yield Answer(got, self.G, self.norm_g)

    def _functional(self, problem: Any) -> Iterator[Answer]:
        got = hs.FunctionalHessian(problem).dense()
        if self.G is not None:
            yield Answer(got, self.H - self.G, self.norm + self.norm_g)

    def _fisher(self, problem: Any, kind: Any) -> Iterator[Answer]:
        if not (self.case.loss.likelihood and self.G is not None):
            return
        truth = self.G if kind == "exact" else self.truth.empirical_fisher
        yield Answer(hs.Fisher(problem, kind=kind).dense(), truth, float(truth.norm()) + self.norm_g)

    def _estimate(self, found: Any, truth: Any, scale: float) -> Answer:
        return Answer(found.value, truth, scale, 0.0 if found.exact else found.stderr)

    def _trace(self, problem: Any, matrix: str) -> Iterator[Answer]:
        op, truth, norm = self._matrix(problem, matrix)
        found = hs.trace(op)
        if truth is not None:
            yield self._estimate(found, truth.trace(), norm)

    def _probed_trace(self, problem: Any) -> Iterator[Answer]:
        found = hs.trace(hs.Hessian(problem), tol=0.2, method="xtrace")
        yield Answer(found.value, self.H.trace(), self.norm, found.stderr)

    def _diagonal(self, problem: Any, matrix: str) -> Iterator[Answer]:
        op, truth, norm = self._matrix(problem, matrix)
        found = hs.diagonal(op)
        if truth is not None:
            yield self._estimate(found, truth.diagonal(), norm)

    def _frobenius(self, problem: Any, matrix: str) -> Iterator[Answer]:
        op, truth, norm = self._matrix(problem, matrix)
        found = hs.frobenius_norm(op)
        if truth is not None:
            yield self._estimate(found, truth.norm(), norm)

    def _rows(self, problem: Any, matrix: str) -> Iterator[Answer]:
        op, truth, norm = self._matrix(problem, matrix)
        found = hs.row_norms(op)
        if truth is not None:
            yield self._estimate(found, truth.norm(dim=1), norm)

    def _dense_hessian(self, problem: Any, matrix: str) -> Iterator[Answer]:
        if matrix == "H":
            yield Answer(hs.dense_hessian(problem), self.H, self.norm)
        elif self.G is not None:
            yield Answer(hs.dense_hessian(problem, matrix="gauss_newton"), self.G, self.norm_g)

    def _blocks(self, problem: Any, matrix: str, kind: Any) -> Iterator[Answer]:
        truth, norm = (self.H, self.norm) if matrix == "H" else (self.G, self.norm_g)
        if truth is None:
            return
        found = hs.block_norms(problem, kind, matrix="hessian" if matrix == "H" else "gauss_newton")
        indices = _indices(hs.Partition.by(kind, problem))
        if kind == "tensor":
            yield Answer(sorted(found.names) == sorted(problem.space.names), True, 1.0)
            indices = [np.arange(self.truth.size)[problem.space.slice_of(name)] for name in found.names]
        dense = truth.numpy()
        wanted = [[np.linalg.norm(dense[np.ix_(a, b)]) for b in indices] for a in indices]
        # A norm that is nearly zero is known to the root of the precision only.
        yield Answer(found.norms, wanted, norm, 0.0 if found.exact else found.stderr)

    def _eigenpairs(self, problem: Any, which: Any) -> Iterator[Answer]:
        n = self.truth.size
        k = max(1, min(3, n // 2))
        found = hs.eigenpairs(hs.Hessian(problem), k=k, which=which)
        values = torch.linalg.eigvalsh(self.H).numpy()
        wanted = values[::-1][:k] if which == "largest" else np.concatenate([values[::-1][:k], values[:k]])
        if n > 1 or which == "largest":
            yield Answer(found.values, wanted, self.norm, found.residuals / 5)

    def _density(self, problem: Any) -> Iterator[Answer]:
        found = hs.spectral_density(hs.Hessian(problem))
        n = self.truth.size
        for k, truth in ((1, self.H.trace() / n), (2, self.H.square().sum() / n)):
            stderr = 0.0 if found.exact else found.moment_stderr(k)
            yield Answer(found.moment(k), truth, self.norm**k, stderr)

    def _spectra(self, problem: Any) -> Iterator[Answer]:
        found = hs.block_spectra(problem, "neuron")
        indices = _indices(hs.Partition.by("neuron", problem))
        for nodes, exact, part in zip(found.nodes, found.exact, indices, strict=True):
            rows = torch.as_tensor(part)
            if exact:
                yield Answer(np.sort(nodes), torch.linalg.eigvalsh(self.H[rows][:, rows]), self.norm)

    def _select(self, problem: Any) -> Iterator[Answer]:
        name = problem.space.names[-1]
        part = problem.select([name])
        yield Answer(list(part.space.names) == [name], True, 1.0)
        own = problem.space.slice_of(name)
        yield Answer(hs.Hessian(part).dense(), self.H[own, own], self.norm)
        yield Answer(part.gradient(), self.truth.gradient[own], float(self.truth.gradient.norm()) + self.norm)

    def _block(self, problem: Any) -> Iterator[Answer]:
        first, last = problem.space.names[0], problem.space.names[-1]
        rows, columns = problem.space.slice_of(first), problem.space.slice_of(last)
        H = hs.Hessian(problem)
        yield Answer(H.block([first]).dense(), self.H[rows, rows], self.norm)
        if first != last:
            yield Answer(H.block([first], [last]).dense(), self.H[rows, columns], self.norm)

    def _cast(self, problem: Any) -> Iterator[Answer]:
        if self.case.dtype == torch.float32:
            exact = problem.cast(torch.float64)
            yield Answer(hs.Hessian(exact).dense(), self.H, self.norm, exact64=True)

    def _layers(self) -> list[str]:
        kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
        found = [name for name, m in self.case.model.named_modules() if isinstance(m, kinds)]
        return [name for name in found if f"{name}.weight" in self.truth.names]

    def _weight(self, name: str) -> Tensor:
        place, size = 0, 0
        for other, p in zip(self.truth.names, self.truth.parameters, strict=True):
            if other == f"{name}.weight":
                size = p.numel()
                break
            place += p.numel()
        return self.H[place : place + size, place : place + size]

    def _layer(self, problem: Any, name: str) -> Iterator[Answer]:
        yield Answer(hs.layer_hessian(problem, name).dense(), self._weight(name), self.norm)

    def _decouple(self, problem: Any, name: str) -> Iterator[Answer]:
        layer = self.truth.case.model.get_submodule(name)
        found = hs.decouple(problem, name)
        yield Answer(found.exact.dense(), self._weight(name), self.norm)
        plain = self.case.loss.plain_mean and not self.case.interacts and self.truth.splits
        hooked = len(layer._forward_hooks) + len(layer._forward_pre_hooks) or "forward" in vars(layer)
        if type(layer) is not nn.Linear or not plain or hooked:
            return
        factors = self.truth.factors(layer)
        if factors is not None:
            wanted = torch.kron(*factors)
            yield Answer(found.operator.dense(), wanted, float(wanted.norm()) + self.norm)

    def _verdict(self, problem: Any) -> Iterator[Answer]:
        """A check that passes what is wrong is wrong; one that fails has said so."""
        verdict = hs.check(problem)
        if verdict.passed:
            wrong = [f.check for f in self.outcome.of("wrong") if f.check.startswith(("H @", "H dense, kept"))]
            yield Answer(len(wrong), 0, 1.0)
        else:
            raise HesscopeError(f"the check failed: {verdict}")


def _indices(partition: hs.Partition) -> list[np.ndarray[Any, np.dtype[np.int64]]]:
    return [partition.indices(block).numpy() for block in range(partition.count)]


def _array(x: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    if isinstance(x, Tensor):
        x = x.detach().double().numpy()
    return np.asarray(x, dtype=np.float64)


def examine(seed: int, thorough: bool = False) -> Outcome:
    """Everything about the case of one seed; `thorough` adds what takes seconds to every case, not to some."""
    return Examiner(seed, thorough).run()
