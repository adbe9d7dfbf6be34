"""Networks that no grammar of layers makes: every number against float64 differences of the gradient, or a refusal."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.utils.checkpoint import checkpoint

import hesscope as hs
from hesscope.errors import HesscopeError
from hesscope.partition import Partition

DRAW = hs.Rng(4).torch()
X = torch.randn(7, 3, generator=DRAW, dtype=torch.float64)
Y = torch.randint(0, 3, (7,), generator=DRAW)


class Runs(nn.Module):
    """Two linear layers and whatever `run` does with them."""

    def __init__(self, run: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.run, self.a, self.b = run, nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


class Cube(torch.autograd.Function):
    """x³/3, differentiable twice."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3 / 3

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grads[0] * x**2


class ConstantSlope(torch.autograd.Function):
    """tanh, whose slope is taken for a constant: the gradient is right, its derivative is not."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = torch.tanh(x)
        ctx.slope = 1 - out.detach() ** 2
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * ctx.slope


def slope_forgotten(s: Any, x: Tensor) -> Tensor:
    return s.b(ConstantSlope.apply(s.a(x)))


def cubed(s: Any, x: Tensor) -> Tensor:
    return s.b(Cube.apply(s.a(x)))


def views_in_place(s: Any, x: Tensor) -> Tensor:
    h = s.a(x).clone()
    part = h[:, :2]
    part.mul_(2)
    part.sin_()
    return s.b(torch.cat([h[:, :2], h[:, 2:].exp()], 1))


def output_in_place(s: Any, x: Tensor) -> Tensor:
    out: Tensor = s.b(torch.tanh(s.a(x)))
    out[:, 0] += out[:, 1].clone() ** 2
    out /= 2.0
    return out


def transposed_again(s: Any, x: Tensor) -> Tensor:
    return F.linear(torch.tanh(s.a(x)), s.a.weight.t())


def complex_between(s: Any, x: Tensor) -> Tensor:
    h = s.a(x)
    wave = torch.fft.fft(h) * torch.polar(torch.ones_like(h), h)
    return s.b(wave.abs())


def gradient_inside(s: Any, x: Tensor) -> Tensor:
    return s.b(vmap(grad(lambda z: (s.a(z).tanh() ** 2).sum()))(x))


def mapped(s: Any, x: Tensor) -> Tensor:
    return s.b(vmap(lambda z: torch.tanh(functional_call(s.a, dict(s.a.named_parameters()), (z,))))(x))


def by_batch_size(s: Any, x: Tensor) -> Tensor:
    return s.b(torch.tanh(s.a(x)) * (2 if len(x) % 2 else 1))


def recomputed(s: Any, x: Tensor) -> Tensor:
    return s.b(checkpoint(lambda z: torch.tanh(s.a(z)), x, use_reentrant=False))


def forgets_a_branch(s: Any, x: Tensor) -> Tensor:
    h = torch.tanh(s.a(x))
    return s.b(h + h.detach() * h)


def without_gradients(s: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        h = torch.tanh(s.a(x))
    return s.b(h)


def halved_on_the_way_back(s: Any, x: Tensor) -> Tensor:
    h = torch.tanh(s.a(x))
    if h.requires_grad:
        h.register_hook(lambda g: g * 0.5)
    return s.b(h)


RIGHT = [
    cubed,
    views_in_place,
    output_in_place,
    transposed_again,
    complex_between,
    gradient_inside,
    mapped,
    by_batch_size,
    recomputed,
]
WRONG_DERIVATIVES = [slope_forgotten, forgets_a_branch, without_gradients, halved_on_the_way_back]


def truth(model: nn.Module) -> Tensor:
    """Differences of the gradient, of fourth order."""
    own = copy.deepcopy(model)
    parameters = list(own.parameters())
    flat = nn.utils.parameters_to_vector(parameters).detach().clone()

    def gradient(theta: Tensor) -> Tensor:
        nn.utils.vector_to_parameters(theta, parameters)
        found = torch.autograd.grad(F.cross_entropy(own(X), Y), parameters, materialize_grads=True)
        return torch.cat([g.reshape(-1) for g in found])

    columns = []
    for unit in torch.eye(len(flat), dtype=torch.float64) * 3e-5:
        near, far = (gradient(flat + k * unit) - gradient(flat - k * unit) for k in (1, 2))
        columns.append((8 * near - far) / (12 * 3e-5))
    return torch.stack(columns)


@pytest.mark.parametrize("run", RIGHT)
def test_every_number_of_an_odd_network_is_right_or_refused(run: Callable[[Any, Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    model = Runs(run).double()
    problem, expected = hs.Problem.of(model, nn.CrossEntropyLoss(), (X, Y)), truth(model)
    size = float(expected.abs().max())
    labels = Partition.by("layer", problem).labels
    member = F.one_hot(labels).double()

    def near(found: Any, exact: Tensor) -> None:
        assert float((torch.as_tensor(found) - exact).abs().max()) <= 1e-6 * size

    near(hs.Hessian(problem).dense(), expected)
    near(hs.dense_hessian(problem), expected)
    near(hs.trace(problem).value, expected.trace())
    near(hs.diagonal(problem).value, expected.diag())
    near(hs.block_norms(problem, "layer").norms, (member.T @ expected**2 @ member).sqrt())
    near(hs.eigenpairs(problem, 3, tol=1e-8).values.copy(), torch.linalg.eigvalsh(expected).flip(0)[:3])
    for name, place in problem.space.slices():
        try:
            layer = hs.layer_hessian(problem, name.removesuffix(".weight"))
        except HesscopeError:
            continue
        near(layer.dense(), expected[place, place])
    assert hs.check(problem).passed


@pytest.mark.parametrize("run", WRONG_DERIVATIVES)
def test_numbers_of_wrong_derivatives_are_refused(run: Callable[[Any, Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    problem = hs.Problem.of(Runs(run).double(), nn.CrossEntropyLoss(), (X, Y))
    asked: list[Callable[[hs.Problem], Any]] = [hs.trace, hs.diagonal, hs.block_norms, hs.dense_hessian, hs.eigenpairs]
    asked += [hs.per_layer, lambda p: hs.per_layer(p, kronecker=False), hs.block_spectra, hs.heat_map, hs.landscape]
    for ask in asked:
        with pytest.raises(HesscopeError, match="every derivative must be right"):
            ask(problem)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not hs.check(problem).passed


def summed_in_logarithms(s: Any, x: Tensor) -> Tensor:
    return s.b(torch.logcumsumexp(s.a(x), 1))


def test_what_takes_logarithms_of_gradients_has_its_matrices() -> None:
    """Jᵀ u is linear in u, but torch's formula for logcumsumexp has no derivative in it at zero."""
    torch.manual_seed(0)
    model = Runs(summed_in_logarithms).double()
    problem = hs.Problem.of(model, nn.CrossEntropyLoss(), (X, Y))
    rows = []
    for f in model(X).reshape(-1):
        found = torch.autograd.grad(f, list(model.parameters()), retain_graph=True)
        rows.append(torch.cat([g.reshape(-1) for g in found]))
    jacobian, p = torch.stack(rows), model(X).detach().softmax(1)
    curvature = torch.block_diag(*(torch.diag(row) - torch.outer(row, row) for row in p)) / len(X)
    expected = jacobian.T @ curvature @ jacobian
    torch.testing.assert_close(hs.GaussNewton(problem).dense(), expected)
    torch.testing.assert_close(hs.dense_hessian(problem, "gauss_newton"), expected)
    torch.testing.assert_close(hs.dense_hessian(problem), truth(model), rtol=1e-6, atol=1e-8)
    own = problem.space.slice_of("a.weight")
    by_layer = hs.layer_hessian(problem, "a", curvature="gauss_newton").dense()
    torch.testing.assert_close(by_layer, expected[own, own])


class Padded(nn.Module):
    """torch's encoder, told that the last position is padding."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(4, 2, 3, 0.0, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 1), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        padding = torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device)
        padding[:, -1] = True
        found: Tensor = self.head(self.encoder(x, src_key_padding_mask=padding).mean(1))
        return found


def test_encoders_with_padding_in_evaluation_are_those_of_training() -> None:
    """Without gradients torch sets padded positions to zero, in nested tensors that cannot be differentiated."""
    torch.manual_seed(0)
    model = Padded().double().eval()
    x, y = torch.randn(3, 3, 4).double(), torch.tensor([0, 1, 1])
    problem = hs.Problem.of(model, "cross_entropy", (x, y))
    value = nn.functional.cross_entropy(model(x), y)
    assert abs(problem.loss_value() - value.item()) < 1e-12
    weight = model.head.weight
    (gradient,) = torch.autograd.grad(value, weight, create_graph=True)
    truth = torch.stack([torch.autograd.grad(g, weight, retain_graph=True)[0].flatten() for g in gradient.flatten()])
    torch.testing.assert_close(hs.Hessian(problem).block(["head.weight"]).dense(), truth, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(hs.layer_hessian(problem, "head").dense(), truth, rtol=1e-9, atol=1e-12)
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.filterwarnings("ignore:Sparse CS. tensor support is in beta")
def test_sparse_inputs_and_adjacency_are_whole_batches() -> None:
    """Sparse tensors are not cut along examples; all else is as with dense ones."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    x, y = torch.randn(6, 3).double().relu(), torch.arange(6) % 2
    links = (torch.rand(6, 6) > 0.5).double()

    def nodes(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, int]:
        inputs, links, targets = batch
        return F.cross_entropy(links @ model(inputs), targets, reduction="sum"), len(targets)

    dense = hs.Hessian(hs.Problem.of(model, nodes, [(x, links, y)])).dense()
    for sparse in (Tensor.to_sparse, Tensor.to_sparse_csr):
        problem = hs.Problem.of(model, nodes, [(x, sparse(links), y)])
        torch.testing.assert_close(hs.Hessian(problem).dense(), dense)
        assert hs.check(problem).passed
    plain, given = (hs.Problem.of(model, "cross_entropy", (inputs, y)) for inputs in (x, x.to_sparse()))
    assert abs(float(hs.trace(hs.Hessian(given)).value) - float(hs.trace(hs.Hessian(plain)).value)) < 1e-10
    assert hs.Hessian(given).fingerprint != hs.Hessian(plain).fingerprint


class WithNothing(nn.Module):
    """A parameter without entries, as optional parts of models have."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.none = nn.Linear(3, 2), nn.Parameter(torch.empty(0))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x) + self.none.sum()
        return found


def test_parameters_without_entries_are_left_out() -> None:
    problem = hs.Problem.of(WithNothing(), "mse", (torch.ones(4, 3), torch.ones(4, 2)))
    assert problem.space.names == ("layer.weight", "layer.bias")
    assert len(hs.per_layer(problem).trace) == 1
    assert hs.block_norms(problem, "layer").norms.shape == (1, 1)


def test_problems_are_not_pickled() -> None:
    problem = hs.Problem.of(nn.Linear(2, 1), "mse", (torch.ones(4, 2), torch.ones(4, 1)))
    with pytest.raises(HesscopeError, match="stay in its process"):
        pickle.dumps(problem)
    assert copy.deepcopy(problem).loss_value() == problem.loss_value()


class Temperature(nn.Module):
    """Divided by a temperature that is learned, or by a number: forward asks which."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.tau = nn.Linear(3, 3), nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x) / (self.tau.exp() if isinstance(self.tau, nn.Parameter) else self.tau)
        return found


def test_a_model_that_asks_whether_it_holds_parameters() -> None:
    torch.manual_seed(0)
    model = Temperature().double()
    problem = hs.Problem.of(model, "cross_entropy", (X, Y))
    assert abs(problem.loss_value() - F.cross_entropy(model(X), Y).item()) < 1e-12
    expected = truth(model)
    torch.testing.assert_close(hs.Hessian(problem).dense(), expected, rtol=1e-5, atol=1e-7)
    own = problem.space.slice_of("layer.weight")
    torch.testing.assert_close(hs.layer_hessian(problem, "layer").dense(), expected[own, own], rtol=1e-5, atol=1e-7)


class Asks(nn.Module):
    """Another function where nothing upstream requires a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.a(x))
        found: Tensor = self.b(2 * hidden if hidden.requires_grad else hidden)
        return found


def test_a_model_that_asks_for_gradients_is_refused() -> None:
    with pytest.raises(HesscopeError, match="whether a gradient is asked for"):
        hs.Problem.of(Asks(), "cross_entropy", (torch.ones(4, 3), torch.arange(4) % 2))


def test_what_torch_cannot_differentiate_is_refused_by_name_where_the_model_is_not_copied() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh()).double()
    inner = model[0].forward
    # A closure over the user's own layer: no private copy can be made. tanh_ saves what sigmoid_ then overwrites.
    model.forward = lambda x: inner(x).tanh_().sigmoid_() * model[0].weight.mean()  # type: ignore[method-assign]
    targets = torch.rand(7, 3, generator=hs.Rng(5).torch(), dtype=torch.float64)
    problem = hs.Problem.of(model, nn.MSELoss(), (X, targets))
    with pytest.raises(hs.errors.DerivativeError, match="modified by an inplace operation"):
        hs.trace(problem)
