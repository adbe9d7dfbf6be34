"""Attention in closed form: values and derivatives of three orders against torch's plain kernel, and whole networks."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import hesscope as hs
from hesscope.curvature.models import attention

DRAW = torch.Generator().manual_seed(0)


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=DRAW, dtype=torch.float64)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every size is long, and blocks end inside of the smallest."""
    monkeypatch.setattr(attention, "LEAST_SCORES", 1)
    monkeypatch.setattr(attention, "_ROWS", 3)
    monkeypatch.setattr(attention, "_BLOCK_BYTES", 2 * 3 * 8 * 8)


def blind(rows: int, columns: int) -> Tensor:
    """A mask with a query that may see nothing."""
    mask = torch.rand(rows, columns, generator=DRAW) > 0.4
    mask[2] = False
    return mask


MASKS: dict[str, Callable[[int, int], dict[str, Any]]] = {
    "none": lambda rows, columns: {},
    "causal": lambda rows, columns: {"is_causal": True},
    "scaled": lambda rows, columns: {"scale": 0.3},
    "negative scale": lambda rows, columns: {"scale": -0.7},
    "bool": lambda rows, columns: {"attn_mask": torch.rand(rows, columns, generator=DRAW) > 0.3},
    "float": lambda rows, columns: {"attn_mask": draw(rows, columns)},
    "bool for all queries": lambda rows, columns: {"attn_mask": torch.rand(1, columns, generator=DRAW) > 0.3},
    "float of one row, expanded": lambda rows, columns: {"attn_mask": draw(columns).expand(rows, columns)},
    "a query that sees nothing": lambda rows, columns: {"attn_mask": blind(rows, columns)},
}


def derivatives(out: Tensor, inputs: Sequence[Tensor], along: Sequence[Tensor]) -> list[Tensor]:
    """The output, the gradient of a curved function of it, a Hessian product, and the gradient of its square."""
    first = torch.autograd.grad(out.sin().sum(), inputs, create_graph=True)
    plain = torch.autograd.grad(first, inputs, along, retain_graph=True)
    second = torch.autograd.grad(first, inputs, along, create_graph=True)
    third = torch.autograd.grad(sum((g**2).sum() for g in second), inputs)
    return [t.detach() for t in (out, *first, *plain, *second, *third)]


@pytest.mark.parametrize("lead", [(), (4,), (2, 3)])
@pytest.mark.parametrize(("rows", "columns"), [(7, 7), (5, 8), (8, 5)])
@pytest.mark.parametrize("mask", MASKS)
def test_three_derivatives_are_those_of_the_plain_kernel(
    lead: tuple[int, ...], rows: int, columns: int, mask: str
) -> None:
    inputs = [draw(*lead, *shape).requires_grad_() for shape in ((rows, 4), (columns, 4), (columns, 6))]
    along, settings = [draw(*t.shape) for t in inputs], MASKS[mask](rows, columns)
    with sdpa_kernel(SDPBackend.MATH):
        truth = derivatives(F.scaled_dot_product_attention(*inputs, **settings), inputs, along)
    with attention.ClosedFormAttention():
        out = F.scaled_dot_product_attention(*inputs, **settings)
    nodes = {type(node).__name__ for node, _ in out.grad_fn.next_functions} | {type(out.grad_fn).__name__}
    assert "_AttentionBackward" in nodes
    for ours, theirs in zip(derivatives(out, inputs, along), truth, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("shape", [(2, 1, 9, 16), (1, 3, 9, 16), (3, 1, 16), (2, 1, 1, 16), (2, 3, 1, 1)])
@pytest.mark.parametrize("expanded", [False, True])
def test_masks_that_heads_or_sequences_share(shape: tuple[int, ...], expanded: bool) -> None:
    q, k, v = inputs = [draw(2, 3, *shape).requires_grad_() for shape in ((9, 2), (16, 2), (16, 2))]
    along = [draw(*t.shape) for t in inputs]
    mask = draw(*shape).expand(2, 3, 9, 16) if expanded else draw(*shape)
    with sdpa_kernel(SDPBackend.MATH):
        truth = derivatives(F.scaled_dot_product_attention(q, k, v, mask), inputs, along)
    saved: list[Tensor] = []

    def pack(t: Tensor) -> Tensor:
        saved.append(t)
        return t

    with attention.ClosedFormAttention(), torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = F.scaled_dot_product_attention(q, k, v, mask)
    assert max(t.numel() for t in saved) <= 3 * 9 * 16  # all scores are twice as many
    for ours, theirs in zip(derivatives(out, inputs, along), truth, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-11, atol=1e-12)


def test_grouped_queries() -> None:
    q, k, v = (draw(2, heads, 6, 4).requires_grad_() for heads in (4, 2, 2))
    along = [draw(*t.shape) for t in (q, k, v)]
    with sdpa_kernel(SDPBackend.MATH):
        truth = derivatives(F.scaled_dot_product_attention(q, k, v, enable_gqa=True), (q, k, v), along)
    with attention.ClosedFormAttention():
        ours = derivatives(F.scaled_dot_product_attention(q, k, v, enable_gqa=True), (q, k, v), along)
    assert all(torch.allclose(a, b, rtol=1e-11, atol=1e-12) for a, b in zip(ours, truth, strict=True))


@pytest.mark.parametrize("what", ["dropout", "half", "learnt mask", "broadcast keys", "vmap"])
def test_what_is_not_served_is_left_to_torch(what: str) -> None:
    q, k, v = (draw(2, 6, 4) for _ in range(3))
    mask = draw(6, 6).requires_grad_() if what == "learnt mask" else None
    if what == "half":
        q, k, v = q.half(), k.half(), v.half()
    if what == "broadcast keys":
        k, v = k[:1], v[:1]

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, mask, 1e-9 if what == "dropout" else 0.0)

    run = torch.func.vmap(attend) if what == "vmap" else attend
    with sdpa_kernel(SDPBackend.MATH):
        truth = run(q, k, v)
        with attention.ClosedFormAttention():
            ours = run(q, k, v)
    assert torch.equal(ours, truth)
    assert ours.grad_fn is None or "_Attention" not in type(ours.grad_fn).__name__


class Attends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside, self.qkv, self.out = nn.Linear(3, 4), nn.Linear(4, 12), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.inside(x))
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 2)).permute(2, 0, 3, 1, 4)
        return self.out(x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("operator", ["Hessian", "GaussNewton", "FunctionalHessian"])
def test_products_of_a_network_that_attends(operator: str) -> None:
    torch.manual_seed(0)
    model, x, y = Attends().double(), draw(3, 7, 3), torch.randint(0, 2, (3, 7), generator=DRAW)
    problem = hs.Problem.of(
        model, "cross_entropy", (x, y), forward=lambda m, b: (m(b[0]).flatten(0, 1), b[1].flatten())
    )
    assert problem._evaluation.attends
    ours = getattr(hs, operator)(problem).dense()
    names = dict(model.named_parameters())

    def outputs(*values: Tensor) -> Tensor:
        return torch.func.functional_call(model, dict(zip(names, values, strict=True)), (x,)).flatten(0, 1)

    at = tuple(names.values())
    with sdpa_kernel(SDPBackend.MATH):
        hessian = dense(lambda *v: F.cross_entropy(outputs(*v), y.flatten()), at)
        slope = torch.autograd.grad(F.cross_entropy(f := outputs(*at), y.flatten()), f)[0].detach()
        functional = dense(lambda *v: (slope * outputs(*v)).sum(), at)
    truth = {"Hessian": hessian, "FunctionalHessian": functional, "GaussNewton": hessian - functional}[operator]
    assert torch.allclose(ours, truth, atol=1e-12)


UNSEEN = torch.ones(5, 5, dtype=torch.bool).triu(1)
PADDING = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
CALLS: dict[str, dict[str, Any]] = {
    "alone": {"need_weights": False},
    "causal": {"need_weights": False, "attn_mask": UNSEEN, "is_causal": True},
    "padded": {"need_weights": False, "key_padding_mask": PADDING},
    "both": {"need_weights": False, "attn_mask": UNSEEN, "key_padding_mask": PADDING},
    "with weights": {},
    "with weights, causal": {"attn_mask": UNSEEN, "is_causal": True},
    "with weights of every head": {"key_padding_mask": PADDING, "average_attn_weights": False},
}


class ManyHeads(nn.Module):
    """torch's own module for attention, and what is made of its weights where it gives any."""

    def __init__(self, call: str, weigh: bool = True) -> None:
        super().__init__()
        self.attention, self.out = nn.MultiheadAttention(4, 2, batch_first=True), nn.Linear(4, 2)
        self.call, self.weigh = CALLS[call], weigh

    def forward(self, x: Tensor) -> Tensor:
        mixed, weights = self.attention(x, x, x, **self.call)
        more = 0.0 if weights is None or not self.weigh else weights.flatten(1).square().sum(1)
        return self.out(torch.tanh(mixed)).sum(1) + torch.as_tensor(more).view(-1, 1)


@pytest.mark.parametrize("call", CALLS)
def test_torchs_own_module_for_attention(call: str) -> None:
    torch.manual_seed(0)
    same_as_double_backward(ManyHeads(call).double(), draw(2, 5, 4))


@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_layers(norm_first: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(4, 2, 5, 0.0, batch_first=True, norm_first=norm_first)
    model = nn.Sequential(layer, nn.Flatten(), nn.Linear(12, 2)).double()
    same_as_double_backward(model, draw(2, 3, 4))


def same_as_double_backward(model: nn.Module, x: Tensor) -> None:
    y = torch.arange(len(x)) % 2
    problem = hs.Problem.of(model, "cross_entropy", (x, y))
    assert problem._evaluation.attends
    nodes = nodes_behind(problem.evaluate((x, y), problem.leaves()).f)
    assert "_AttentionBackward" in nodes
    ours = hs.Hessian(problem).dense()
    with sdpa_kernel(SDPBackend.MATH):
        truth = dense(lambda *_: F.cross_entropy(model(x), y), tuple(model.parameters()))
    assert torch.allclose(ours, truth, rtol=1e-10, atol=1e-12)


def nodes_behind(out: Tensor) -> set[str]:
    waiting, names = [out.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is not None:
            names.add(type(node).__name__)
            waiting += [behind for behind, _ in node.next_functions]
    return names


def test_a_query_without_weights_is_not_a_number_as_in_torch() -> None:
    blind = ManyHeads("with weights").double()
    blind.call = {"attn_mask": torch.ones(5, 5, dtype=torch.bool)}
    x = draw(2, 5, 4)
    with attention.ClosedFormAttention():
        assert bool(blind(x).isnan().all())


def test_scores_of_weights_that_nobody_uses_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_ROWS", 32)
    torch.manual_seed(0)
    x = torch.zeros(2, 64, 4)
    held: list[weakref.ref[Tensor]] = []

    def pack(t: Tensor) -> Tensor:
        copy = t.detach()
        held.append(weakref.ref(copy))
        return copy

    model = ManyHeads("with weights", weigh=False)
    model.call = {}
    with attention.ClosedFormAttention(), torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = model(x)
        gradient = torch.autograd.grad(out.sum(), list(model.parameters()), create_graph=True)
    alive = [t for t in (ref() for ref in held) if t is not None]
    assert alive
    assert gradient
    assert max(t.numel() for t in alive) < 64 * 64


def dense(function: Callable[..., Tensor], at: tuple[Tensor, ...]) -> Tensor:
    """By double backward, row by row."""
    first = torch.autograd.grad(function(*at), at, create_graph=True)
    flat = torch.cat([g.reshape(-1) for g in first])
    rows = [torch.autograd.grad(entry, at, retain_graph=True, allow_unused=True) for entry in flat]
    return torch.stack(
        [
            torch.cat(
                [torch.zeros_like(t).reshape(-1) if g is None else g.reshape(-1) for g, t in zip(r, at, strict=True)]
            )
            for r in rows
        ]
    )


def test_scores_are_not_kept() -> None:
    saved: list[int] = []
    q, k, v = (torch.zeros(8, 512, 4, requires_grad=True) for _ in range(3))

    def pack(t: Tensor) -> Tensor:
        saved.append(t.numel())
        return t

    with attention.ClosedFormAttention(), torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = F.scaled_dot_product_attention(q, k, v)
        torch.autograd.grad(out.sum(), (q, k, v), create_graph=True)
    assert saved
    assert max(saved) < 512 * 512
