"""Losses that are not outputs against targets: right, or refused in words that help."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hesscope as hs
from hesscope.errors import HesscopeError, InputError

X = torch.randn(10, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
Y = torch.arange(10) % 3


def network(*middle: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), *middle, nn.Tanh(), nn.Linear(5, 3)).double()


def truth(model: nn.Module, loss: Callable[[Callable[..., Any]], Tensor]) -> Tensor:
    """The Hessian by torch alone, of a loss of the network as a function."""
    own = dict(model.named_parameters())

    def value(flat: Tensor) -> Tensor:
        parts = torch.split(flat, [p.numel() for p in own.values()])
        moved = {name: part.view(own[name].shape) for name, part in zip(own, parts, strict=True)}
        return loss(lambda *args: torch.func.functional_call(model, moved, args))

    return torch.autograd.functional.hessian(value, torch.cat([p.detach().flatten() for p in own.values()]))


def same(problem: hs.Problem, expected: Tensor) -> bool:
    return torch.allclose(hs.Hessian(problem).dense(), expected, atol=1e-12 * float(expected.abs().max()) + 1e-14)


def residual(model: Any, x: Tensor) -> Tensor:
    """A differential equation: the sum of squares of Σ_c ∂u_c/∂x + u."""
    x = x.detach().requires_grad_()
    u = model(x)
    slope = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
    return ((slope.sum(1, keepdim=True) + u) ** 2).sum()


def penalised(model: Any, x: Tensor, y: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    out = model(x)
    slope = torch.autograd.grad(out.sum(), x, create_graph=True)[0]
    return F.cross_entropy(out, y, reduction="sum") + 0.1 * ((slope.norm(dim=1) - 1) ** 2).sum()


def contrastive(model: Any, x: Tensor, other: Tensor) -> Tensor:
    a, b = F.normalize(model(x), dim=1), F.normalize(model(other), dim=1)
    return F.cross_entropy(a @ b.T / 0.5, torch.arange(len(a)), reduction="sum")


@pytest.mark.parametrize("grad", [True, False])
def test_losses_with_derivatives_of_the_network_inside(grad: bool) -> None:
    model = network()
    with torch.set_grad_enabled(grad):
        equation = hs.Problem.of(model, lambda m, x: (residual(m, x), len(x)), [X])
        penalty = hs.Problem.of(model, lambda m, batch: (penalised(m, *batch), len(batch[0])), (X, Y))
        found = [hs.Hessian(equation).dense(), hs.Hessian(penalty).dense()]
    assert torch.allclose(found[0], truth(model, lambda m: residual(m, X) / 10), atol=1e-10)
    assert torch.allclose(found[1], truth(model, lambda m: penalised(m, X, Y) / 10), atol=1e-10)


def test_closures_without_arguments() -> None:
    model = network()
    expected = truth(model, lambda m: residual(m, X) / 10)
    before = {name: t.clone() for name, t in model.state_dict().items()}
    assert same(hs.Problem.of(model, lambda: residual(model, X) / 10), expected)
    assert all(torch.equal(before[name], t) for name, t in model.state_dict().items())
    with pytest.raises(InputError, match="holds its own data"):
        hs.Problem.of(model, lambda: residual(model, X) / 10, (X, Y))


def test_distillation() -> None:
    model, teacher = network(), X @ torch.ones(4, 3, dtype=torch.float64) + Y[:, None]

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return 4 * F.kl_div(F.log_softmax(outputs / 2, -1), F.softmax(targets / 2, -1), reduction="none").sum(-1)

    problem = hs.Problem.of(model, loss, (X, teacher))
    assert problem.has_outputs
    assert same(problem, truth(model, lambda m: loss(m(X), teacher).mean()))


def test_contrastive_losses_keep_their_batch() -> None:
    model, other = network(), X + 0.1
    problem = hs.Problem.of(model, lambda m, batch: (contrastive(m, *batch), len(batch[0])), [(X, other)])
    assert same(problem, truth(model, lambda m: contrastive(m, X, other) / 10))
    with pytest.raises(InputError, match="must not see each other"):
        hs.Problem.of(model, lambda m, b: (contrastive(m, *b), len(b[0])), (X, other), batch_size=4)


def test_connectionist_temporal_classification_is_refused_with_the_reason() -> None:
    model = nn.Linear(4, 5)
    x, targets = torch.randn(3, 6, 4), torch.randint(1, 5, (3, 2))
    lengths = torch.full((3,), 6), torch.full((3,), 2)

    def ctc(m: nn.Module, batch: Any) -> tuple[Tensor, int]:
        logits = m(batch[0]).log_softmax(-1).transpose(0, 1)
        return F.ctc_loss(
            logits, batch[1], lengths[0][: len(batch[0])], lengths[1][: len(batch[0])], reduction="sum"
        ), 3

    with pytest.raises(HesscopeError, match="not implemented"):
        hs.trace(hs.Problem.of(model, ctc, [(x, targets)]))
    with pytest.raises(InputError, match="not implemented"):
        hs.Problem.of(model, nn.CTCLoss(), (x, targets))


def test_batch_statistics_are_a_choice() -> None:
    model = network(nn.BatchNorm1d(5)).train()
    with pytest.raises(InputError, match="batch_statistics=True"):
        hs.Problem.of(model, "cross_entropy", (X, Y))
    before = {name: t.clone() for name, t in model.state_dict().items()}
    problem = hs.Problem.of(model, "cross_entropy", (X, Y), batch_statistics=True)
    found = hs.Hessian(problem).dense()
    assert all(torch.equal(before[name], t) for name, t in model.state_dict().items())
    assert torch.allclose(found, truth(model, lambda m: F.cross_entropy(m(X), Y)), atol=1e-12)
    with pytest.raises(InputError, match="training mode"):
        hs.Problem.of(network(nn.Dropout(0.5)).train(), "cross_entropy", (X, Y), batch_statistics=True)


def test_hessians_in_inputs_and_activations() -> None:
    model = network()
    problem = hs.Problem.of(model, "cross_entropy", (X, Y), wrt="inputs")
    expected = torch.autograd.functional.hessian(lambda z: F.cross_entropy(model(z.view(10, 4)), Y), X.flatten())
    assert problem.space.names == ("inputs",)
    assert same(problem, expected)
    hidden = model[0](X).detach()
    expected = torch.autograd.functional.hessian(
        lambda z: F.cross_entropy(model[1:](z.view(10, 5)), Y), hidden.flatten()
    )
    assert same(hs.Problem.of(model, "cross_entropy", (X, Y), wrt="0"), expected)
    assert all(p.requires_grad for p in model.parameters())
    assert not model[0]._forward_hooks


@pytest.mark.parametrize(
    ("wrt", "model", "data", "said"),
    [
        ("fc9", network(), (X, Y), "name of a module"),
        (3, network(), (X, Y), "name of a module"),
        ("inputs", network(), [(X, Y)], r"data=\(inputs, targets\)"),
        ("inputs", nn.Sequential(nn.Embedding(9, 3), nn.Flatten()), (torch.ones(10, 1).long(), Y), "real numbers"),
    ],
)
def test_refusals_of_wrt(wrt: Any, model: nn.Module, data: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        hs.Problem.of(model, "cross_entropy", data, wrt=wrt)


def test_a_variational_model_that_is_frozen_already() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean = nn.Linear(4, 3).double()

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.mean(x)
            return out + torch.randn_like(out)

    with pytest.raises(InputError, match="pass the noise with the data"):
        hs.Problem.of(Noisy(), "cross_entropy", (X, Y), freeze=True)
