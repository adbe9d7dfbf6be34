"""What one step of each torch optimiser does to one tensor, its denominators held as they are now.

Every optimiser here is, with its preconditioner frozen, of one form (docs/theory/stability.md):

    g ← ± gradient + κ θ;   m ← β m + γ g;   θ ← (1 − δ) θ − rate · S (a m + b g).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor

from ..arguments import as_float
from ..errors import refuse


@dataclass(frozen=True)
class StepRule:
    """The numbers of that form that a whole tensor shares."""

    rate: float
    momentum: float = 0.0  # β
    intake: float = 1.0  # γ
    from_buffer: float = 0.0  # a
    from_gradient: float = 1.0  # b
    coupled_decay: float = 0.0  # κ
    decoupled_decay: float = 0.0  # δ, which is rate · weight_decay
    maximize: bool = False

    @property
    def response(self) -> float:
        """C: at the edge, where steps alternate in sign, the optimiser is gradient descent with C times its rate."""
        return self.from_buffer * self.intake / (1 + self.momentum) + self.from_gradient

    @property
    def edge(self) -> float:
        """The eigenvalue of the preconditioned curvature at which this rule turns unstable."""
        if self.rate * self.response == 0:
            return math.inf
        return (2 - self.decoupled_decay) / (self.rate * self.response)


@dataclass(frozen=True, eq=False)
class TensorStep:
    """The rule of one tensor and S: `scale`, one number per entry; or `matrix`, from the left (or from the right)."""

    rule: StepRule
    scale: Tensor | None = None
    matrix: Tensor | None = None
    from_right: bool = False
    floor: Tensor | None = None  # which entries have a second moment below eps²: S is then set by eps alone


Group = Mapping[str, Any]
State = Mapping[str, Any]
Rule = Callable[[str, Group, State, Tensor], TensorStep]


def sgd(name: str, group: Group, state: State, value: Tensor) -> TensorStep:
    beta = _number(name, group, "momentum", 0.0, 1.0)
    intake = 1 - _number(name, group, "dampening", 0.0, 1.0, closed=True)
    if beta == 0:
        return TensorStep(StepRule(**_common(name, group)))
    if group.get("nesterov"):
        rule = StepRule(**_common(name, group), momentum=beta, intake=intake, from_buffer=beta, from_gradient=1.0)
    else:
        rule = StepRule(**_common(name, group), momentum=beta, intake=intake, from_buffer=1.0, from_gradient=0.0)
    return TensorStep(rule)


def rmsprop(name: str, group: Group, state: State, value: Tensor) -> TensorStep:
    _steps(name, state)
    square = _moment(name, state, "square_avg", value)
    if group.get("centered"):
        square = square - _moment(name, state, "grad_avg", value, signed=True).square()
    beta = _number(name, group, "momentum", 0.0, 1.0)
    buffer: dict[str, Any] = {"momentum": beta, "from_buffer": 1.0, "from_gradient": 0.0} if beta > 0 else {}
    return _divided(name, StepRule(**_common(name, group), **buffer), square, _eps(name, group))


def adam(name: str, group: Group, state: State, value: Tensor) -> TensorStep:
    steps = _steps(name, state)
    beta, beta2 = _betas(name, group)
    square = _moment(name, state, "max_exp_avg_sq" if group.get("amsgrad") else "exp_avg_sq", value)
    rule = StepRule(
        **_common(name, group), momentum=beta, intake=1 - beta, from_buffer=1 / (1 - beta**steps), from_gradient=0.0
    )
    return _divided(name, rule, square / (1 - beta2**steps), _eps(name, group))


def nadam(name: str, group: Group, state: State, value: Tensor) -> TensorStep:
    steps = _steps(name, state)
    beta, beta2 = _betas(name, group)
    decay = _number(name, group, "momentum_decay", 0.0, math.inf)
    now, following = (beta * (1 - 0.5 * 0.96 ** (t * decay)) for t in (steps, steps + 1))
    product = _number(name, state, "mu_product", 0.0, 1.0)
    rule = StepRule(
        **_common(name, group),
        momentum=beta,
        intake=1 - beta,
        from_buffer=following / (1 - product * following),
        from_gradient=(1 - now) / (1 - product),
    )
    square = _moment(name, state, "exp_avg_sq", value) / (1 - beta2**steps)
    return _divided(name, rule, square, _eps(name, group))


def radam(name: str, group: Group, state: State, value: Tensor) -> TensorStep:
    steps = _steps(name, state)
    beta, beta2 = _betas(name, group)
    rule = StepRule(
        **_common(name, group), momentum=beta, intake=1 - beta, from_buffer=1 / (1 - beta**steps), from_gradient=0.0
    )
    longest = 2 / (1 - beta2) - 1
    length = longest - 2 * steps * beta2**steps / (1 - beta2**steps)
    square = _moment(name, state, "exp_avg_sq", value)
    if length <= 5:  # too few steps for a second moment: plain momentum
        return TensorStep(rule)
    rectified = math.sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length))
    # Here eps stands beside the moment before its bias is corrected.
    return _divided(name, rule, square, _eps(name, group), rectified * math.sqrt(1 - beta2**steps))


def adagrad(name: str, group: Group, state: State, value: Tensor) -> TensorStep:
    steps = _steps(name, state)
    slower = 1 / (1 + (steps - 1) * _number(name, group, "lr_decay", 0.0, math.inf))
    return _divided(
        name, StepRule(**_common(name, group)), _moment(name, state, "sum", value), _eps(name, group), slower
    )


def adamax(name: str, group: Group, state: State, value: Tensor) -> TensorStep:
    steps = _steps(name, state)
    beta, _ = _betas(name, group)
    rule = StepRule(
        **_common(name, group), momentum=beta, intake=1 - beta, from_buffer=1 / (1 - beta**steps), from_gradient=0.0
    )
    return TensorStep(rule, _inverse(name, _moment(name, state, "exp_inf", value)))


def adadelta(name: str, group: Group, state: State, value: Tensor) -> TensorStep:
    _steps(name, state)
    eps = _eps(name, group)
    square, moved = (_moment(name, state, key, value) for key in ("square_avg", "acc_delta"))
    return TensorStep(
        StepRule(**_common(name, group)), (moved + eps).sqrt() * _inverse(name, (square + eps).sqrt()), floor=None
    )


def muon(name: str, group: Group, state: State, value: Tensor) -> TensorStep:
    """Linearised: the matrix that orthogonalises the momentum as it is now, held fixed."""
    if value.ndim != 2:
        refuse("Muon steps matrices", f"{name!r} of shape {tuple(value.shape)}", "Is it the state of another model?")
    buffer = _moment(name, state, "momentum_buffer", value, signed=True)
    beta = _number(name, group, "momentum", 0.0, 1.0)
    buffers: dict[str, Any] = {
        "momentum": beta,
        "intake": 1 - beta,
        "from_buffer": beta if group.get("nesterov") else 1.0,
    }
    common = _common(name, group, decoupled=True)
    rule = StepRule(**common, **buffers, from_gradient=(1 - beta) if group.get("nesterov") else 0.0)
    from_right = value.shape[0] > value.shape[1]
    wide = buffer.T if from_right else buffer
    size = float(wide.norm())
    if size == 0:
        _never(name, "a momentum of zero")
    left, singular, _ = torch.linalg.svd(wide, full_matrices=False)
    gain = _newton_schulz_gain(name, group, singular / max(size, float(group["eps"]))) / max(size, float(group["eps"]))
    return TensorStep(rule, matrix=_adjusted(group, value) * (left * gain) @ left.T, from_right=from_right)


def _newton_schulz_gain(name: str, group: Group, singular: Tensor) -> Tensor:
    """f(σ)/σ of the polynomial that Muon applies to singular values in place of their sign."""
    a, b, c = (float(x) for x in group["ns_coefficients"])
    gain, now = torch.ones_like(singular), singular
    for _ in range(int(group["ns_steps"])):
        factor = a + b * now**2 + c * now**4
        gain, now = gain * factor, now * factor
    if not bool((gain > 0).all()):
        refuse(
            "Muon's polynomial must keep the signs of singular values",
            f"ns_coefficients {group['ns_coefficients']} for {name!r}",
            "Its default keeps them.",
        )
    return gain


def _adjusted(group: Group, value: Tensor) -> float:
    rows, columns = value.shape
    kind = group.get("adjust_lr_fn") or "original"
    if kind == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    if kind != "original":
        refuse("adjust_lr_fn must be original or match_rms_adamw", f"{kind!r}", "Is it torch.optim.Muon's state?")
    return math.sqrt(max(1.0, rows / columns))


def _common(name: str, group: Group, decoupled: bool = False) -> dict[str, Any]:
    rate = _number(name, group, "lr", 0.0, math.inf)
    decay = _number(name, group, "weight_decay", 0.0, math.inf)
    apart = decoupled or bool(group.get("decoupled_weight_decay"))
    if apart and rate * decay >= 1:
        refuse(
            "rate · weight decay must be below 1",
            f"{rate:g} · {decay:g} for {name!r}",
            "Each step would turn the weights' signs by decay alone.",
        )
    return {
        "rate": rate,
        "coupled_decay": 0.0 if apart else decay,
        "decoupled_decay": rate * decay if apart else 0.0,
        "maximize": bool(group.get("maximize", False)),
    }


def _number(name: str, where: Mapping[str, Any], key: str, low: float, high: float, closed: bool = False) -> float:
    found = as_float(where.get(key, 0.0))
    inside = (
        found is not None and math.isfinite(found) and low <= found and (found < high or (closed and found == high))
    )
    if found is None or not inside:
        bound = "finite" if high == math.inf else f"{'at most' if closed else 'below'} {high:g}"
        refuse(
            f"{key} must be a number of at least {low:g} and {bound}",
            f"{where.get(key)!r} for {name!r}",
            "There is no stable step otherwise, or the state is damaged.",
        )
    return found


def _betas(name: str, group: Group) -> tuple[float, float]:
    betas = group.get("betas")
    if not isinstance(betas, tuple | list) or len(betas) != 2:
        refuse("betas must be two numbers", f"{betas!r} for {name!r}", "Is it the state of this optimiser?")
    named = {"the first of betas": betas[0], "the second of betas": betas[1]}
    first, second = (_number(name, named, key, 0.0, 1.0) for key in named)
    return first, second


def _eps(name: str, group: Group) -> float:
    return _number(name, group, "eps", 0.0, math.inf)


def _steps(name: str, state: State) -> int:
    steps = _number(name, state, "step", 0.0, math.inf)
    if steps < 1:
        _never(name, "no step")
    return int(steps)


def _moment(name: str, state: State, key: str, value: Tensor, signed: bool = False) -> Tensor:
    found = state.get(key)
    if found is None:
        _never(name, f"no {key!r} of it")
    if not isinstance(found, Tensor) or tuple(found.shape) != tuple(value.shape):
        shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        refuse(
            f"the state of {name!r} must have its shape {tuple(value.shape)}",
            f"{key!r} of {shape}",
            "It is the state of another model, or in another order.",
        )
    moment = found.detach().to(device=value.device, dtype=torch.float64)
    if not bool(torch.isfinite(moment).all()) or (not signed and bool((moment < 0).any())):
        refuse(
            "the optimiser's state must be finite" + ("" if signed else ", and second moments not negative"),
            f"otherwise in {key!r} of {name!r}",
            "The run has diverged: load an earlier checkpoint.",
        )
    return moment


def _divided(name: str, rule: StepRule, square: Tensor, eps: float, factor: float = 1.0) -> TensorStep:
    """S = factor / (√square + eps)."""
    root = square.sqrt()
    return TensorStep(rule, factor * _inverse(name, root + eps), floor=root < eps)


def _inverse(name: str, denominator: Tensor) -> Tensor:
    if not bool((denominator > 0).all()):
        refuse(
            "the optimiser's denominators must be positive",
            f"zero or NaN for {name!r}",
            "Set eps > 0, or load an earlier checkpoint.",
        )
    return 1 / denominator


def _never(name: str, found: str) -> NoReturn:
    refuse(
        "the optimiser must have stepped every parameter, its state is what is read",
        f"{found} for {name!r}",
        "Take a step first; leave parameters without gradients out: Problem.of(..., params=[...]), problem.only([...]).",
    )
