"""Pieces of networks that map `(..., d_in)` to `(..., d_out)`, each with one thing that is easy to get wrong."""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize, prune
from torch.nn.utils import spectral_norm as old_spectral_norm
from torch.nn.utils import weight_norm as old_weight_norm
from torch.utils.checkpoint import checkpoint

Make = Callable[[Random, int, int], nn.Module]
DIMS: list[Any] = [0, 1, None]


@dataclass(frozen=True)
class Piece:
    """How to make one piece, and what a network that holds it needs."""

    make: Make
    interacts: bool = False  # examples of a batch see each other
    needs_eval: bool = False  # a fixed function only in eval mode
    flat: bool = False  # takes (B, d) only


PIECES: dict[str, Piece] = {}


def piece(interacts: bool = False, needs_eval: bool = False, flat: bool = False) -> Callable[[Make], Make]:
    """Register the function under its own name."""

    def register(make: Make) -> Make:
        PIECES[make.__name__] = Piece(make, interacts, needs_eval, flat)
        return make

    return register


def activation(r: Random, smooth: bool = False) -> nn.Module:
    """A random activation, in place as often as not."""
    inplace = r.random() < 0.5
    kinked: list[Callable[[], nn.Module]] = [lambda: nn.ReLU(inplace), lambda: nn.LeakyReLU(0.1, inplace)]
    smooth_ones: list[Callable[[], nn.Module]] = [
        nn.Tanh,
        nn.Sigmoid,
        nn.GELU,
        lambda: nn.GELU("tanh"),
        nn.Softplus,
        nn.Softsign,
        lambda: nn.SiLU(inplace),
        lambda: nn.Mish(inplace),
        lambda: nn.Hardswish(inplace),
        lambda: nn.ELU(inplace=inplace),
        lambda: nn.CELU(inplace=inplace),
        lambda: nn.SELU(inplace),
    ]
    return r.choice(smooth_ones if smooth else kinked + smooth_ones)()


class Sum(nn.Module):
    """x + inner(x)."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


class Lambda(nn.Module):
    """A function as a module, with an optional layer in front."""

    def __init__(self, function: Callable[[Tensor], Tensor], inner: nn.Module | None = None) -> None:
        super().__init__()
        self.inner = nn.Identity() if inner is None else inner
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.inner(x))


@piece()
def relu_inplace(r: Random, d: int, m: int) -> nn.Module:
    return nn.Sequential(nn.Linear(d, m), nn.ReLU(inplace=True))


@piece()
def silu_inplace(r: Random, d: int, m: int) -> nn.Module:
    return nn.Sequential(nn.Linear(d, m), nn.SiLU(inplace=True))


@piece()
def hardswish_inplace(r: Random, d: int, m: int) -> nn.Module:
    return nn.Sequential(nn.Linear(d, m), nn.Hardswish(inplace=True))


@piece()
def linear_act(r: Random, d: int, m: int) -> nn.Module:
    return nn.Sequential(nn.Linear(d, m, bias=r.random() < 0.7), activation(r))


@piece()
def functional_inplace(r: Random, d: int, m: int) -> nn.Module:
    functions: list[Callable[[Tensor], Tensor]] = [
        lambda x: x.tanh_(),
        lambda x: F.relu_(x),
        lambda x: x.mul_(1.5).sigmoid_(),
        lambda x: x.add_(0.3).tanh_(),
        lambda x: F.elu_(x),
        lambda x: x.clamp_(-1.2, 1.1),
        lambda x: x.div_(1.7),
    ]
    return Lambda(r.choice(functions), nn.Linear(d, m))


@piece()
def residual(r: Random, d: int, m: int) -> nn.Module:
    inner = nn.Sequential(nn.Linear(m, m), activation(r), *([nn.Linear(m, m)] if r.random() < 0.5 else []))
    return nn.Sequential(nn.Linear(d, m), Sum(inner))


class Twice(nn.Module):
    """One layer, called two times."""

    def __init__(self, d: int, m: int, act: nn.Module) -> None:
        super().__init__()
        self.first, self.layer, self.act = nn.Linear(d, m), nn.Linear(m, m), act

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.act(self.layer(self.first(x))))


@piece()
def called_twice(r: Random, d: int, m: int) -> nn.Module:
    return Twice(d, m, activation(r))


@piece()
def tied_linears(r: Random, d: int, m: int) -> nn.Module:
    first, second = nn.Linear(m, m), nn.Linear(m, m)
    second.weight = first.weight
    return nn.Sequential(nn.Linear(d, m), first, activation(r, smooth=True), second)


class Transposed(nn.Module):
    """W x, an activation, and Wᵀ again."""

    def __init__(self, d: int, m: int, how: str) -> None:
        super().__init__()
        self.enter, self.layer, self.how = nn.Linear(d, m), nn.Linear(m, 3), how

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.layer(self.enter(x)))
        if self.how == "linear":
            return F.linear(hidden, self.layer.weight.t())
        return hidden @ self.layer.weight


@piece()
def tied_transposed(r: Random, d: int, m: int) -> nn.Module:
    return Transposed(d, m, r.choice(["linear", "matmul"]))


class Reused(nn.Module):
    """A layer whose weight serves again, outside its module."""

    def __init__(self, d: int, m: int, how: str) -> None:
        super().__init__()
        self.enter, self.layer, self.how = nn.Linear(d, m), nn.Linear(m, m), how

    def forward(self, x: Tensor) -> Tensor:
        h = self.enter(x)
        z = torch.tanh(self.layer(h))
        if self.how == "linear":
            return F.linear(z, self.layer.weight, self.layer.bias)
        if self.how == "matmul":
            return z + h @ self.layer.weight
        if self.how == "penalty":
            return z + 0.3 * self.layer.weight.square().sum()
        if self.how == "bias":
            return z + self.layer.bias.square()
        return z * self.layer.weight.norm()


@piece()
def weight_reused(r: Random, d: int, m: int) -> nn.Module:
    return Reused(d, m, r.choice(["linear", "matmul", "bias", "norm"]))


@piece()
def penalty_in_forward(r: Random, d: int, m: int) -> nn.Module:
    return Reused(d, m, "penalty")


@piece()
def pruned(r: Random, d: int, m: int) -> nn.Module:
    layer = nn.Linear(d, m)
    if r.random() < 0.5:
        prune.l1_unstructured(layer, "weight", amount=0.4)
    else:
        prune.ln_structured(layer, "weight", amount=0.5, n=2, dim=r.choice([0, 1]))
    return nn.Sequential(layer, activation(r))


@piece()
def weight_norm_old(r: Random, d: int, m: int) -> nn.Module:
    return nn.Sequential(old_weight_norm(nn.Linear(d, m), dim=r.choice(DIMS)), activation(r))


@piece()
def weight_norm_new(r: Random, d: int, m: int) -> nn.Module:
    return nn.Sequential(parametrizations.weight_norm(nn.Linear(d, m), dim=r.choice([0, 1])), activation(r))


@piece(needs_eval=True)
def spectral_norm_old(r: Random, d: int, m: int) -> nn.Module:
    return nn.Sequential(old_spectral_norm(nn.Linear(d, m)), activation(r))


@piece(needs_eval=True)
def spectral_norm_new(r: Random, d: int, m: int) -> nn.Module:
    return nn.Sequential(parametrizations.spectral_norm(nn.Linear(d, m)), activation(r))


class Symmetric(nn.Module):
    """X ↦ the symmetric matrix of its upper half, or its exponential."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def forward(self, x: Tensor) -> Tensor:
        return x.triu() + x.triu(1).t() if self.how == "symmetric" else 0.3 * x.exp()


@piece()
def parametrized(r: Random, d: int, m: int) -> nn.Module:
    layer = nn.Linear(m, m)
    parametrize.register_parametrization(layer, "weight", Symmetric(r.choice(["symmetric", "exp"])))
    return nn.Sequential(nn.Linear(d, m), layer, activation(r))


@piece()
def forward_hook(r: Random, d: int, m: int) -> nn.Module:
    layer = nn.Linear(d, m)
    hooks: list[Callable[..., Any]] = [
        lambda module, args, output: output.square(),
        lambda module, args, output: output * 1.7 + 0.2,
        lambda module, args, output: output.tanh_(),
        lambda module, args, output: output + 0.5 * module.weight.sum(),
    ]
    layer.register_forward_hook(r.choice(hooks))
    return nn.Sequential(layer, activation(r, smooth=True))


@piece()
def forward_pre_hook(r: Random, d: int, m: int) -> nn.Module:
    layer = nn.Linear(d, m)
    hooks: list[Callable[..., Any]] = [
        lambda module, args: (args[0] * 2 - 0.5,),
        lambda module, args: (torch.tanh(args[0]),),
        lambda module, args: args[0] ** 2,
    ]
    layer.register_forward_pre_hook(r.choice(hooks))
    return nn.Sequential(layer, activation(r))


def _scaled_forward(self: nn.Linear, x: Tensor) -> Tensor:
    return 1.5 * F.linear(x, self.weight, self.bias) + x.sum(-1, keepdim=True)


@piece()
def patched_bound(r: Random, d: int, m: int) -> nn.Module:
    layer = nn.Linear(d, m)
    layer.forward = types.MethodType(_scaled_forward, layer)  # type: ignore[method-assign]
    return nn.Sequential(layer, activation(r))


@piece()
def patched_closure(r: Random, d: int, m: int) -> nn.Module:
    layer = nn.Linear(d, m)
    before = layer.forward
    how = r.choice(["scale", "square", "reuse"])

    def forward(x: Tensor) -> Tensor:
        z = before(x)
        if how == "scale":
            return 2.0 * z
        return z.square() if how == "square" else z * layer.weight.mean()

    layer.forward = forward  # type: ignore[method-assign, assignment]
    return nn.Sequential(layer, activation(r, smooth=True))


class Relu(torch.autograd.Function):
    """Named like torch's own, but x³/(1 + x²) with a differentiable backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3 / (1 + x**2)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return slope * (x**4 + 3 * x**2) / (1 + x**2) ** 2


class Addmm(torch.autograd.Function):
    """Named like the node of a linear layer, but elementwise: sin x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return slope * x.cos()


class Threshold(torch.autograd.Function):
    """x² sign(x): its backward depends on x, though thresholds' do not."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x.abs()

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return slope * 2 * x.abs()


@piece()
def custom_function(r: Random, d: int, m: int) -> nn.Module:
    function: Any = r.choice([Relu, Addmm, Threshold])
    return Lambda(lambda x: function.apply(x), nn.Linear(d, m))


class ReLU(nn.ReLU):
    """A subclass of torch's that is not piecewise linear."""

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(input).square()


class Linear(nn.Linear):
    """A subclass of torch's that is not linear in its weight."""

    how = "abs"

    def forward(self, input: Tensor) -> Tensor:
        if self.how == "abs":
            return F.linear(input, self.weight.exp() * 0.4, self.bias)
        if self.how == "standardised":
            w = self.weight - self.weight.mean(1, keepdim=True)
            return F.linear(input, w / (w.square().mean(1, keepdim=True) + 0.1).sqrt(), self.bias)
        return F.linear(input, self.weight, self.bias) * torch.sigmoid(input.mean(-1, keepdim=True))


@piece()
def subclassed(r: Random, d: int, m: int) -> nn.Module:
    layer = Linear(d, m)
    layer.how = r.choice(["abs", "standardised", "gated"])
    return nn.Sequential(layer, ReLU() if r.random() < 0.5 else nn.ReLU())


@piece(interacts=True)
def minus_batch_mean(r: Random, d: int, m: int) -> nn.Module:
    return Lambda(lambda x: torch.tanh(x - x.mean(0, keepdim=True)), nn.Linear(d, m))


@piece(interacts=True)
def running_mean(r: Random, d: int, m: int) -> nn.Module:
    def mean(x: Tensor) -> Tensor:
        counts = torch.arange(1, len(x) + 1, dtype=x.dtype).reshape(-1, *[1] * (x.dim() - 1))
        return torch.tanh(x.cumsum(0) / counts)

    return Lambda(mean, nn.Linear(d, m))


@piece(interacts=True)
def sorts_batch(r: Random, d: int, m: int) -> nn.Module:
    return Lambda(lambda x: torch.tanh(x.sort(0).values), nn.Linear(d, m))


@piece(interacts=True)
def last_over_batch(r: Random, d: int, m: int) -> nn.Module:
    """Only the last example of the batch reaches the others: the first half looks independent."""
    return Lambda(lambda x: torch.tanh(x) * (1 + 0.5 * x[-1:].sin()), nn.Linear(d, m))


@piece()
def sorts_features(r: Random, d: int, m: int) -> nn.Module:
    functions: list[Callable[[Tensor], Tensor]] = [
        lambda x: torch.tanh(x.sort(-1).values),
        lambda x: torch.tanh(x - x.quantile(0.3, -1, keepdim=True)),
        lambda x: x * (x >= x.topk(2).values[..., -1:]),  # routed: the others do not get through
        lambda x: torch.cat([x[..., :1], torch.tanh(x).cumprod(-1)[..., 1:]], -1),
    ]
    return Lambda(r.choice(functions), nn.Linear(d, m))


class Branch(nn.Module):
    """Another function for a single example than for many."""

    def __init__(self, d: int, m: int, above: int) -> None:
        super().__init__()
        self.layer, self.other, self.above = nn.Linear(d, m), nn.Linear(d, m), above

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > self.above:
            return torch.tanh(self.layer(x)) * 2
        return torch.sigmoid(self.other(x))


@piece(interacts=True)
def branches_on_size(r: Random, d: int, m: int) -> nn.Module:
    return Branch(d, m, r.choice([1, 2, 3]))


class Buffered(nn.Module):
    """A layer with a buffer that scales it; it may count its calls too."""

    scale: Tensor
    calls: Tensor

    def __init__(self, d: int, m: int, counts: bool) -> None:
        super().__init__()
        self.layer, self.counts = nn.Linear(d, m), counts
        self.register_buffer("scale", torch.ones(m))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long), persistent=not counts)

    def forward(self, x: Tensor) -> Tensor:
        if self.counts:
            self.calls += 1
        return torch.tanh(self.layer(x) * self.scale)


@piece()
def buffer(r: Random, d: int, m: int) -> nn.Module:
    return Buffered(d, m, False)


@piece()
def counting_buffer(r: Random, d: int, m: int) -> nn.Module:
    return Buffered(d, m, True)


class Checkpointed(nn.Module):
    """A checkpointed part; `plain` runs the same function without it, for the truth."""

    plain = False

    def __init__(self, inner: nn.Module, reentrant: bool) -> None:
        super().__init__()
        self.inner, self.reentrant = inner, reentrant

    def forward(self, x: Tensor) -> Tensor:
        if self.plain:
            return self.inner(x)
        return checkpoint(self.inner, x, use_reentrant=self.reentrant)


@piece()
def checkpoint_reentrant(r: Random, d: int, m: int) -> nn.Module:
    return nn.Sequential(nn.Linear(d, m), Checkpointed(nn.Sequential(nn.Linear(m, m), activation(r)), True))


@piece()
def checkpoint_new(r: Random, d: int, m: int) -> nn.Module:
    return Checkpointed(nn.Sequential(nn.Linear(d, m), activation(r)), False)


class Autocast(nn.Module):
    """A part in bfloat16 where the network is float32; without effect in float64."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.inner(x).to(x.dtype)


@piece()
def autocast(r: Random, d: int, m: int) -> nn.Module:
    return Autocast(nn.Sequential(nn.Linear(d, m), nn.Tanh()))


@piece()
def layer_norm(r: Random, d: int, m: int) -> nn.Module:
    m_norm: nn.Module = nn.LayerNorm(m, eps=0.1, elementwise_affine=r.random() < 0.8)
    return nn.Sequential(nn.Linear(d, m), m_norm, activation(r))


@piece()
def rms_norm(r: Random, d: int, m: int) -> nn.Module:
    return nn.Sequential(nn.Linear(d, m), nn.RMSNorm(m, eps=0.1), activation(r))


@piece(flat=True)
def group_norm(r: Random, d: int, m: int) -> nn.Module:
    return nn.Sequential(nn.Linear(d, m), nn.GroupNorm(1, m, eps=0.1), activation(r))


@piece(needs_eval=True, flat=True)
def batch_norm(r: Random, d: int, m: int) -> nn.Module:
    return nn.Sequential(nn.Linear(d, m), nn.BatchNorm1d(m, affine=r.random() < 0.8), activation(r))


@piece(needs_eval=True)
def dropout(r: Random, d: int, m: int) -> nn.Module:
    return nn.Sequential(nn.Linear(d, m), nn.Dropout(0.5, inplace=r.random() < 0.5), activation(r))


class Raw(nn.Module):
    """Parameters that belong to no layer, used in ways of their own."""

    def __init__(self, d: int, m: int, how: str) -> None:
        super().__init__()
        self.matrix, self.shift, self.how = nn.Parameter(torch.zeros(m, d)), nn.Parameter(torch.zeros(m)), how

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "einsum":
            return torch.einsum("...i,ji->...j", x, self.matrix).tanh() * self.shift
        if self.how == "square":
            return x @ self.matrix.square().t() + self.shift.sin()
        return torch.cos(x @ self.matrix.t() + self.shift)


@piece()
def raw_parameters(r: Random, d: int, m: int) -> nn.Module:
    return Raw(d, m, r.choice(["einsum", "square", "cosine"]))


class Gated(nn.Module):
    """Two layers, multiplied."""

    def __init__(self, d: int, m: int) -> None:
        super().__init__()
        self.value, self.gate = nn.Linear(d, m), nn.Linear(d, m)

    def forward(self, x: Tensor) -> Tensor:
        return self.value(x) * torch.sigmoid(self.gate(x))


@piece()
def gated(r: Random, d: int, m: int) -> nn.Module:
    return nn.Sequential(nn.Linear(d, 2 * m), nn.GLU()) if r.random() < 0.4 else Gated(d, m)


class Unused(nn.Module):
    """Parameters that nothing uses, beside a layer."""

    def __init__(self, d: int, m: int) -> None:
        super().__init__()
        self.layer, self.spare, self.alone = nn.Linear(d, m), nn.Linear(2, 2), nn.Parameter(torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x))


@piece()
def unused(r: Random, d: int, m: int) -> nn.Module:
    return Unused(d, m)


@piece()
def bare_linear(r: Random, d: int, m: int) -> nn.Module:
    return nn.Linear(d, m, bias=r.random() < 0.6)


@piece(flat=True)
def bilinear(r: Random, d: int, m: int) -> nn.Module:
    layer = nn.Bilinear(d, d, m)
    return Lambda(lambda x: x) if d * d * m > 40 and d == m else _Bilinear(layer)


class _Bilinear(nn.Module):
    def __init__(self, layer: nn.Bilinear) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x, x)


class Parallel(nn.Module):
    """Branches whose names are full of glob characters; "[ab]" as a glob means its neighbours a and b."""

    def __init__(self, d: int, m: int) -> None:
        super().__init__()
        self.parts = nn.ModuleDict({"[ab]": nn.Linear(d, m), "a": nn.Linear(d, m, bias=False), "?": nn.Linear(d, m)})

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.parts["[ab]"](x)) * self.parts["a"](x) + torch.sigmoid(self.parts["?"](x))


@piece()
def glob_names(r: Random, d: int, m: int) -> nn.Module:
    return Parallel(d, m)
