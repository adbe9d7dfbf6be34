"""Networks on which shortcuts go wrong: every layer Hessian is the one by double backward, or it is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

import hesscope as hs
from hesscope.errors import HesscopeError
from hesscope.kron import decouple, layer_hessian
from hesscope.kron.chunked import chunks, curvature_blocks, moments

Data = tuple[Tensor, Tensor]
M = TypeVar("M", bound=nn.Module)


class Net(nn.Module):
    """Layers by name, and the function that a test makes of them."""

    def __init__(self, run: Callable[[nn.Module, Tensor], Tensor], **layers: nn.Module) -> None:
        super().__init__()
        self.run = run
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


def made(model: M) -> M:
    """In float64 with weights of order one, and batch-norms with statistics of their own, frozen."""
    torch.manual_seed(3)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.6)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
    return model.double().eval()


def images(count: int, classes: int = 3) -> Data:
    draw = hs.Rng(count).torch()
    return torch.randn(count, 2, 5, 5, generator=draw).double(), torch.randint(0, classes, (count,), generator=draw)


def vectors(count: int, *shape: int) -> Data:
    draw = hs.Rng(count).torch()
    return torch.randn(count, *shape, generator=draw).double(), torch.randint(0, 3, (count,), generator=draw)


def truth(model: nn.Module, weight: Tensor, loss: Callable[[], Tensor]) -> Tensor:
    """∂²L/∂W² row by row, by plain double backward through the user's own model and loss."""
    (gradient,) = torch.autograd.grad(loss(), weight, create_graph=True)
    return torch.stack(
        [
            torch.autograd.grad(entry, weight, retain_graph=True, materialize_grads=True)[0].reshape(-1)
            for entry in gradient.reshape(-1)
        ]
    )


def assert_right(problem: hs.Problem, layer: str, expected: Tensor) -> None:
    op = layer_hessian(problem, layer)
    assert "exact" in op.curvature
    gap = float((op.dense() - expected).abs().max())
    assert gap <= 1e-10 * float(expected.abs().max()), f"{gap / float(expected.abs().max()):.1%} off"


@pytest.mark.parametrize("activation", [nn.SiLU, nn.GELU])
@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("small_chunks", [False, True])
def test_convolution_normalisation_and_smooth_activation(
    activation: Callable[[], nn.Module], count: int, small_chunks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = made(
        nn.Sequential(
            *(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), activation(), nn.Conv2d(3, 2, 2, padding=1), nn.BatchNorm2d(2)),
            *(activation(), nn.Flatten(), nn.Linear(32, 3)),
        )
    )
    x, y = images(count)
    if small_chunks:
        monkeypatch.setattr(chunks, "_LEAST_CHUNK", 1.0)
        monkeypatch.setattr(chunks, "_MOST_CHUNK", 1.0)
    problem = hs.Problem.of(model, "cross_entropy", (x, y), batch_size=4)
    for layer in ("0", "3"):
        weight = model.get_submodule(layer).weight
        assert_right(problem, layer, truth(model, weight, lambda: F.cross_entropy(model(x), y)))


@pytest.mark.parametrize("behind", [torch.tanh, torch.relu])
def test_a_loss_whose_curvature_vanishes_on_the_first_examples(behind: Callable[[Tensor], Tensor]) -> None:
    """Huber with large residuals first: positions seem apart and factors seem to suffice, where nothing curves."""
    model = made(Net(lambda n, x: n.b(behind(n.a(x))).mean(1), a=nn.Linear(4, 3), b=nn.Linear(3, 2)))
    x, _ = vectors(40, 3, 4)
    target = model(x).detach() + 0.3
    target[:30] += 50.0
    problem = hs.Problem.of(model, nn.HuberLoss(), (x, target))
    for layer in ("a", "b"):
        weight = model.get_submodule(layer).weight
        assert_right(problem, layer, truth(model, weight, lambda: F.huber_loss(model(x), target)))


IN_PLACE = {
    "relu": lambda n, x: n.b(F.relu(n.a(x), inplace=True)),
    "tanh": lambda n, x: n.b(n.a(x).tanh_()),
    "scaled": lambda n, x: n.b(torch.sin(n.a(x)).mul_(0.7)),
    "logits": lambda n, x: n.b(torch.tanh(n.a(x))).div_(1.7),
    "sum of squares": lambda n, x: n.b(n.a(x).square_().add_(1)),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_changes_in_place_behind_the_layer(name: str) -> None:
    model = made(Net(IN_PLACE[name], a=nn.Linear(4, 5), b=nn.Linear(5, 3)))
    x, y = vectors(9, 4)
    problem = hs.Problem.of(model, "cross_entropy", (x, y), batch_size=5)
    for layer in ("a", "b"):
        weight = model.get_submodule(layer).weight
        assert_right(problem, layer, truth(model, weight, lambda: F.cross_entropy(model(x), y)))


def _tied() -> nn.Module:
    model = Net(lambda n, x: n.b(torch.tanh(n.a(x))) @ n.c, a=nn.Linear(4, 4), b=nn.Linear(4, 4))
    model.c = torch.randn(4, 3).double()
    model.b.weight = model.a.weight
    return model


REFUSED: dict[str, Callable[[], nn.Module]] = {
    "pruned": lambda: Net(
        lambda n, x: n.b(torch.tanh(n.a(x))),
        a=prune.random_unstructured(nn.Linear(4, 5), "weight", amount=0.4),
        b=nn.Linear(5, 3),
    ),
    "weight norm": lambda: Net(
        lambda n, x: n.b(torch.tanh(n.a(x))), a=parametrizations.weight_norm(nn.Linear(4, 5)), b=nn.Linear(5, 3)
    ),
    "spectral norm": lambda: Net(
        lambda n, x: n.b(torch.tanh(n.a(x))), a=parametrizations.spectral_norm(nn.Linear(4, 5)), b=nn.Linear(5, 3)
    ),
    "tied": _tied,
    "used again": lambda: Net(
        lambda n, x: n.b(F.linear(torch.tanh(n.a(x)), n.a.weight)), a=nn.Linear(4, 4), b=nn.Linear(4, 3)
    ),
    "a penalty": lambda: Net(
        lambda n, x: n.b(torch.tanh(n.a(x))) * (1 + n.a.weight.square().sum()), a=nn.Linear(4, 4), b=nn.Linear(4, 3)
    ),
    "examples that see each other": lambda: Net(
        lambda n, x: n.b(torch.tanh(n.a(x) - n.a(x).detach().mean(0))), a=nn.Linear(4, 5), b=nn.Linear(5, 3)
    ),
    "a running sum over the batch": lambda: Net(
        lambda n, x: n.b(torch.tanh(n.a(x).cumsum(0))), a=nn.Linear(4, 5), b=nn.Linear(5, 3)
    ),
    "an embedding": lambda: Net(
        lambda n, x: n.b(torch.tanh(n.a((x[:, :3] > 0).long())).mean(1)), a=nn.Embedding(2, 5), b=nn.Linear(5, 3)
    ),
    "a normalisation": lambda: Net(
        lambda n, x: n.b(torch.tanh(n.a(x))), a=nn.LayerNorm(4), b=nn.Linear(4, 3)
    ),
    "a transposed convolution": lambda: Net(
        lambda n, x: n.b(torch.tanh(n.a(x[:, None])).flatten(1)), a=nn.ConvTranspose1d(1, 2, 2), b=nn.Linear(10, 3)
    ),
    "a recurrent layer": lambda: Net(
        lambda n, x: n.b(n.a(x[:, :, None])[0][:, -1]), a=nn.GRU(1, 3, batch_first=True), b=nn.Linear(3, 3)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_hessian_of_this_form_is_refused_with_a_remedy(name: str) -> None:
    model = made(REFUSED[name]())
    problem = hs.Problem.of(model, "cross_entropy", vectors(12, 4))
    for call in (layer_hessian, decouple):
        with pytest.raises(HesscopeError, match=r"hs\.Hessian\(problem\)\.block|parametrisation|first axis"):
            call(problem, "a")


def test_a_hook_that_changes_the_output_is_part_of_the_network() -> None:
    model = made(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)))
    model[0].register_forward_hook(lambda module, args, out: 2 * out + out.square())
    x, y = vectors(9, 4)
    problem = hs.Problem.of(model, "cross_entropy", (x, y), batch_size=5)
    assert_right(problem, "0", truth(model, model[0].weight, lambda: F.cross_entropy(model(x), y)))


@pytest.mark.parametrize("count", [1, 6])
def test_time_first(count: int) -> None:
    model = made(
        Net(
            lambda n, x: n.c(n.b(torch.tanh(n.a(x.transpose(0, 1)))).relu().prod(0)),
            a=nn.Linear(3, 4),
            b=nn.Linear(4, 4),
            c=nn.Linear(4, 3),
        )
    )
    x, y = vectors(count, 5, 3)
    problem = hs.Problem.of(model, "cross_entropy", (x, y), batch_size=4)
    for layer in ("a", "b", "c"):
        weight = model.get_submodule(layer).weight
        assert_right(problem, layer, truth(model, weight, lambda: F.cross_entropy(model(x), y)))


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("small_chunks", [False, True])
def test_ragged_batches_with_ignored_targets_and_class_weights(
    single: bool, small_chunks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if small_chunks:
        monkeypatch.setattr(chunks, "_LEAST_CHUNK", 1.0)
        monkeypatch.setattr(chunks, "_MOST_CHUNK", 1.0)
    model = made(
        Net(
            lambda n, x: n.c(torch.tanh(n.b(torch.tanh(n.a(x)).cumsum(1)))),
            a=nn.Linear(3, 4),
            b=nn.Linear(4, 4),
            c=nn.Linear(4, 3),
        )
    )
    draw = hs.Rng(0).torch()
    batches = []
    for rows, length in ((1, 4), (1, 2), (1, 5)) if single else ((3, 4), (2, 2), (4, 1)):
        labels = torch.randint(0, 3, (rows, length), generator=draw)
        labels[0, 0] = -100
        batches.append((torch.randn(rows, length, 3, generator=draw).double(), labels))
    loss = nn.CrossEntropyLoss(weight=torch.tensor([0.3, 1.0, 2.5]).double())

    def written_out() -> Tensor:
        logits = torch.cat([model(x).flatten(0, 1) for x, _ in batches])
        found: Tensor = loss(logits, torch.cat([y.flatten() for _, y in batches]))
        return found

    problem = hs.Problem.of(model, loss, batches)
    for layer in ("a", "b", "c"):
        assert_right(problem, layer, truth(model, model.get_submodule(layer).weight, written_out))


def test_rows_of_the_loss_that_match_the_units_in_number_only() -> None:
    """Two predictions per example with targets ignored: as many rows as examples in each batch, in no common order."""
    model = made(Net(lambda n, x: n.b(torch.relu(n.a(x))).view(-1, 2, 3), a=nn.Linear(4, 5), b=nn.Linear(5, 6)))
    draw = hs.Rng(1).torch()
    x = torch.randn(8, 4, generator=draw).double()
    y = torch.randint(0, 3, (8, 2), generator=draw)
    y[:4, 1] = -100  # one row for each of the first batch; two, none, two, none in the second
    y[5] = y[7] = -100
    problem = hs.Problem.of(model, nn.CrossEntropyLoss(), (x, y), batch_size=4)
    for layer in ("a", "b"):
        weight = model.get_submodule(layer).weight
        expected = truth(model, weight, lambda: F.cross_entropy(model(x).transpose(1, 2), y))
        assert_right(problem, layer, expected)


def _smooth_where(n: nn.Module, x: Tensor) -> Tensor:
    """Piecewise linear for examples with a negative first entry, smooth for the others."""
    z = n.a(x)
    found: Tensor = n.b(torch.where(x[:, :1] > 0, torch.tanh(z), torch.relu(z)))
    return found


@pytest.mark.parametrize("smooth", [15, 1])
def test_outputs_that_curve_for_some_examples_only(smooth: int) -> None:
    model = made(Net(_smooth_where, a=nn.Linear(4, 5), b=nn.Linear(5, 3)))
    x, y = vectors(40, 4)
    x[:, 0] = -x[:, 0].abs()
    x[-smooth:, 0] *= -1
    expected = truth(model, model.a.weight, lambda: F.cross_entropy(model(x), y))
    problem = hs.Problem.of(model, "cross_entropy", (x, y), batch_size=10)  # of one example few would meet any
    assert_right(problem, "a", expected)
    assert "an approximation" in layer_hessian(problem, "a", curvature="gauss_newton").curvature


class InputMajor(nn.Module):
    """x W + b, as GPT-2 writes its projections."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(inputs, outputs)), nn.Parameter(torch.randn(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)


def test_input_major_layers_are_read_output_major() -> None:
    model = made(Net(lambda n, x: n.b(torch.tanh(n.a(x)).sum(1)), a=InputMajor(4, 5), b=InputMajor(5, 3)))
    x, y = vectors(9, 2, 4)
    problem = hs.Problem.of(model, "cross_entropy", (x, y), batch_size=5)
    for layer, (m, n) in (("a", (5, 4)), ("b", (3, 5))):
        weight = model.get_submodule(layer).weight
        stored = truth(model, weight, lambda: F.cross_entropy(model(x), y)).view(n, m, n, m)
        assert_right(problem, layer, stored.permute(1, 0, 3, 2).reshape(m * n, m * n))


def test_projections_inside_attention() -> None:
    model = made(
        Net(
            lambda n, x: n.out(n.attention(x, x, x)[0].tanh().sum(1)),
            attention=nn.MultiheadAttention(4, 2, batch_first=True),
            out=nn.Linear(4, 3),
        )
    )
    x, y = vectors(5, 3, 4)
    problem = hs.Problem.of(model, "cross_entropy", (x, y), batch_size=3)
    attention = model.attention
    assert isinstance(attention, nn.MultiheadAttention)
    for layer, weight in (("in_proj", attention.in_proj_weight), ("out_proj", attention.out_proj.weight)):
        expected = truth(model, weight, lambda: F.cross_entropy(model(x), y))
        assert_right(problem, f"attention.{layer}", expected)


def test_three_dimensional_convolutions() -> None:
    model = made(nn.Sequential(nn.Conv3d(1, 2, 2, stride=2, padding=1), nn.SiLU(), nn.Flatten(), nn.Linear(16, 3)))
    x, y = vectors(4, 1, 3, 3, 3)
    problem = hs.Problem.of(model, "cross_entropy", (x, y))
    assert_right(problem, "0", truth(model, model[0].weight, lambda: F.cross_entropy(model(x), y)))


def test_a_wrong_product_is_refused_before_the_first_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong between the captured layer and the product, the proof on a few examples finds it."""
    model = made(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)))
    x, y = vectors(30, 4)
    problem = hs.Problem.of(model, "cross_entropy", (x, y))
    right = curvature_blocks.FactorBlock.curve
    monkeypatch.setattr(curvature_blocks.FactorBlock, "curve", lambda self, y: right(self, y) * 1.001)
    with pytest.raises(HesscopeError, match="those of double backward"):
        layer_hessian(problem, "0").dense()
    monkeypatch.undo()
    op = layer_hessian(problem, "0")
    assert torch.allclose(op.dense(), truth(model, model[0].weight, lambda: F.cross_entropy(model(x), y)))
    assert "equal double backward" in op.verified


@pytest.mark.parametrize("middle", [nn.ReLU(), nn.Tanh()])
def test_layers_of_bfloat16_models_have_products_in_float32(middle: nn.Module) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), middle, nn.Linear(5, 3)).bfloat16()
    x, y = torch.randn(9, 4).bfloat16(), torch.arange(9) % 3
    narrow = hs.layer_hessian(hs.Problem.of(model, nn.CrossEntropyLoss(), (x, y)), "0").dense()
    wide = hs.layer_hessian(hs.Problem.of(model.double(), nn.CrossEntropyLoss(), (x.double(), y)), "0").dense()
    assert narrow.dtype == torch.float32
    assert float((narrow.double() - wide).abs().max()) <= 0.03 * float(wide.abs().max())


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_traced_and_scripted_modules_have_blocks_and_no_layers() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    x, y = torch.randn(9, 4).double(), torch.arange(9) % 3
    plain = hs.block_norms(hs.Problem.of(model, nn.CrossEntropyLoss(), (x, y)), "layer").norms
    for other in (torch.jit.trace(model, x), torch.jit.script(model)):
        problem = hs.Problem.of(other, nn.CrossEntropyLoss(), (x, y))
        torch.testing.assert_close(torch.as_tensor(hs.block_norms(problem, "layer").norms), torch.as_tensor(plain))
        assert hs.block_norms(problem, "neuron").exact
        with pytest.raises(HesscopeError, match="layer"):
            hs.layer_hessian(problem, "0")


def test_a_layer_that_no_term_of_the_loss_depends_on_has_no_inputs_to_average(monkeypatch: pytest.MonkeyPatch) -> None:
    # Queries and keys of tokens that are all alike: whatever they are, each token attends to all of them evenly.
    problem = hs.Problem.of(made(nn.Sequential(nn.Linear(4, 3))), "cross_entropy", vectors(5, 4))
    monkeypatch.setattr(moments, "unit_weights", lambda run, index, owners: torch.zeros(run.shape(index)[0]))
    with pytest.raises(HesscopeError, match="the loss must depend on a decoupled layer"):
        decouple(problem, "0")
