"""What cannot be right is refused, with the reason and what to do."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import hesscope as hs
import kron.kron_cases as cases
from hesscope.errors import InputError
from hesscope.kron import (
    approximate_full_eigenpairs,
    correspondence,
    decouple,
    layer_hessian,
    logit_gradients,
    matricize,
    model_overlap,
    predicted_output_eigenspace,
    subspace_overlap,
)
from hesscope.zoo.models import fully_connected


def _problem(model: nn.Module, features: int = 4, classes: int = 4) -> hs.Problem:
    draw = hs.Rng(0).torch()
    x, y = torch.randn(6, features, generator=draw), torch.randint(0, classes, (6,), generator=draw)
    return hs.Problem.of(model, "cross_entropy", (x, y))


def test_unknown_layer_and_layer_without_weight() -> None:
    problem, _ = cases.relu_mlp()
    with pytest.raises(InputError, match=r"fc9.*Layers here: fc1, fc2, fc3"):
        decouple(problem, "fc9")
    with pytest.raises(InputError, match=r"relu1.*ReLU"):
        layer_hessian(problem, "relu1")


def test_tied_weights_are_named() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
            self.b.weight = self.a.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(torch.relu(self.a(x)))

    with pytest.raises(InputError, match=r"'a', tied to b\.weight"):
        layer_hessian(_problem(Tied()), "a")


def test_a_tied_head_alone_is_what_its_refusal_says_to_do() -> None:
    """The remedy is run as it is printed; its Hessian is that of the head's role, by double backward with the roles apart."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 5, bias=False)).double()
        model[3].weight = model[0].weight
        tokens, labels = torch.randint(0, 5, (2, 8))
    with pytest.raises(InputError, match=r"'3', tied to 0\.weight") as told:
        layer_hessian(hs.Problem.of(model, "cross_entropy", (tokens, labels)), "3")
    weight = model[3].weight.detach().clone()

    def loss(head: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(model[1](nn.functional.embedding(tokens, weight)))
        return nn.functional.cross_entropy(hidden @ head.view(5, 3).T, labels)

    truth = torch.autograd.functional.hessian(loss, weight.flatten())
    remedy = str(told.value).partition("again: ")[2].partition(". For all")[0]
    exec(remedy, {"model": model, "torch": torch})
    assert model[0].weight is not model[3].weight
    found = layer_hessian(hs.Problem.of(model, "cross_entropy", (tokens, labels)), "3").dense()
    torch.testing.assert_close(found, truth, rtol=1e-10, atol=1e-12)


class _Model(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "twice":
            return self.b(torch.relu(self.a(torch.relu(self.a(x)))))
        if self.kind == "elsewhere":
            return self.b(torch.relu(self.a(x))) @ self.a.weight
        if self.kind == "unused":
            return self.b(x)
        z = self.a(x)
        return self.b(torch.relu(z - z.mean(0)))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("twice", "used once in a forward pass"),
        ("elsewhere", "act only through"),
        ("unused", "must be called"),
        ("mixes", "must not influence each other"),
    ],
)
def test_layers_whose_hessian_would_be_wrong(kind: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        layer_hessian(_problem(_Model(kind)), "a")


def test_parametrised_weights_are_refused() -> None:
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), nn.ReLU(), nn.Linear(3, 4))
    with pytest.raises(InputError, match="plain parameter"):
        layer_hessian(_problem(model), "0")


def test_k_larger_than_the_space() -> None:
    problem, _ = cases.relu_mlp()
    d = decouple(problem, "fc1")
    for call in (lambda: d.compare(k=31), lambda: d.eigenpairs(31), lambda: d.eigenpairs(0)):
        with pytest.raises(InputError, match="k must lie between 1 and the 30 dimensions"):
            call()
    with pytest.raises(InputError, match="16 dimensions"):
        approximate_full_eigenpairs(problem, k=17)
    with pytest.raises(InputError, match="30 dimensions"):
        model_overlap([problem, problem], "fc1", k=31)


def test_models_of_different_shape() -> None:
    a, b = _problem(fully_connected(3, 1, 4, 4)), _problem(fully_connected(5, 1, 4, 4))
    with pytest.raises(InputError, match=r"same shape.*\(3, 4\), \(5, 4\)"):
        model_overlap([a, b], "fc1", k=2)
    with pytest.raises(InputError, match="at least two models"):
        model_overlap([a], "fc1", k=2)


def test_groups_have_no_decoupled_form() -> None:
    problem, _ = cases.convolutions()
    with pytest.raises(InputError, match="2 groups"):
        decouple(problem, "0")


def test_bases_and_vectors_of_the_wrong_shape() -> None:
    with pytest.raises(InputError, match="same dimension"):
        subspace_overlap(torch.eye(4)[:, :2], torch.eye(4)[:, :3])
    with pytest.raises(InputError, match="independent"):
        subspace_overlap(torch.ones(4, 2), torch.ones(4, 2))
    with pytest.raises(InputError, match="must have 6 entries"):
        matricize(torch.zeros(5), (2, 3))
    with pytest.raises(InputError, match="side="):
        correspondence(torch.zeros(4, 2), torch.eye(2))
    with pytest.raises(InputError, match="square layer"):
        correspondence(torch.zeros(1, 2, 2), torch.eye(2))


def test_predictions_need_a_chain_and_labels() -> None:
    problem, _ = cases.convolutions()
    with pytest.raises(InputError, match="chain of Linear"):
        predicted_output_eigenspace(problem, "2")
    regression, _ = cases.sentences()
    with pytest.raises(InputError, match="class labels"):
        logit_gradients(regression, "join")
    number = hs.Problem.of(nn.Linear(2, 2), lambda net: net(torch.ones(1, 2)).square().sum())
    with pytest.raises(InputError, match="outputs and the loss apart"):
        logit_gradients(number, "")
