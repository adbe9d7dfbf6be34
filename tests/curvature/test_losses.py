"""Losses are what the user passed: proven on the data, never guessed from a name or an attribute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hesscope as hs
from hesscope.curvature.losses.elementwise import AutogradLoss
from hesscope.curvature.losses.parsing import SeparableLoss
from hesscope.errors import InputError

N, CLASSES = 12, 4
DRAW = torch.Generator().manual_seed(3)
X = torch.randn(N, 3, generator=DRAW).double()
LABELS = torch.randint(0, CLASSES, (N,), generator=DRAW)
REAL = torch.randn(N, CLASSES, generator=DRAW).double()
BINARY = (torch.rand(N, CLASSES, generator=DRAW) < 0.5).double()
WEIGHT = torch.tensor([0.3, 1.0, 2.0, 0.7]).double()


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, CLASSES)).double()


def truth(model: nn.Module, loss: Callable[[], Tensor]) -> tuple[float, Tensor]:
    """Value and Hessian by double backward, without the library."""
    weights = list(model.parameters())
    value = loss()
    gradients = torch.autograd.grad(value, weights, create_graph=True)
    flat = torch.cat([g.reshape(-1) for g in gradients])
    rows = [torch.autograd.grad(entry, weights, retain_graph=True, materialize_grads=True) for entry in flat]
    return float(value.detach()), torch.stack([torch.cat([h.reshape(-1) for h in row]) for row in rows])


def assert_right(model: nn.Module, problem: hs.Problem, loss: Callable[[], Tensor]) -> None:
    value, wanted = truth(model, loss)
    assert problem.loss_value() == pytest.approx(value, rel=1e-9)
    assert float((hs.Hessian(problem).dense() - wanted).norm() / wanted.norm()) < 1e-9


class Focal(nn.CrossEntropyLoss):
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        each = F.cross_entropy(input, target, reduction="none")
        focal = (1 - torch.exp(-each)) ** 2 * each
        return focal.mean() if self.reduction == "mean" else focal.sum()


class WeightedSquares(nn.MSELoss):
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return (torch.arange(1.0, CLASSES + 1) * (input - target) ** 2).mean()


class SumThatSaysMean(nn.Module):
    reduction = "mean"

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).pow(4).sum()


class MeanThatSaysSum(nn.Module):
    reduction = "sum"

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).pow(4).mean()


class Silent(nn.Module):
    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).pow(4).sum(-1).mean()


def _with_hook() -> nn.Module:
    loss = nn.MSELoss()
    loss.register_forward_hook(lambda module, args, output: 3 * output)
    return loss


def _patched() -> nn.Module:
    loss = nn.MSELoss()
    loss.forward = lambda input, target: (input - target).pow(4).mean()  # type: ignore[method-assign]
    return loss


LOSSES: list[tuple[nn.Module, Tensor]] = [
    (Focal(), LABELS),
    (Focal(reduction="sum"), LABELS),
    (WeightedSquares(), REAL),
    (SumThatSaysMean(), REAL),
    (MeanThatSaysSum(), REAL),
    (Silent(), REAL),
    (_with_hook(), REAL),
    (_patched(), REAL),
    (nn.MultiLabelSoftMarginLoss(weight=WEIGHT), BINARY),
    (nn.MultiLabelSoftMarginLoss(reduction="sum"), BINARY),
    (nn.SoftMarginLoss(), 2 * BINARY - 1),
    (nn.GaussianNLLLoss(), REAL),
    (nn.KLDivLoss(reduction="batchmean"), BINARY + 0.1),
    (nn.SmoothL1Loss(beta=0.0), REAL),
]


@pytest.mark.parametrize(
    "case",
    LOSSES,
    ids=lambda case: f"{type(case[0]).__name__}-{case[0].reduction if hasattr(case[0], 'reduction') else ''}",
)
@pytest.mark.parametrize("batches", ["one", "cut", "theirs"])
def test_a_loss_is_the_users_own(case: tuple[nn.Module, Tensor], batches: str) -> None:
    loss, targets = case
    model = network()
    call: Any = loss
    if isinstance(loss, nn.GaussianNLLLoss):
        call = lambda outputs, targets: loss(outputs, targets, torch.ones_like(outputs))  # noqa: E731
        problem = hs.Problem.of(model, call, (X, targets), reduction="mean", batch_size=5 if batches == "cut" else None)
        assert_right(model, problem, lambda: call(model(X), targets))
        return
    data: Any = (X, targets) if batches != "theirs" else [(X[:3], targets[:3]), (X[3:], targets[3:])]
    problem = hs.Problem.of(model, loss, data, batch_size=5 if batches == "cut" else None)
    assert_right(model, problem, lambda: call(model(X), targets))


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignored", [-100, 1])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_smoothing_weights_and_ignored_targets_together(
    smoothing: float, weighted: bool, ignored: int, reduction: str
) -> None:
    model = network()
    loss = nn.CrossEntropyLoss(
        WEIGHT if weighted else None, ignore_index=ignored, label_smoothing=smoothing, reduction=reduction
    )
    labels = LABELS.clone()
    labels[[1, 4, 5]] = ignored
    problem = hs.Problem.of(model, loss, [(X[:4], labels[:4]), (X[4:], labels[4:])])
    assert_right(model, problem, lambda: loss(model(X), labels))


def test_soft_labels_with_weights() -> None:
    model = network()
    soft = REAL.softmax(-1)
    for loss in (nn.CrossEntropyLoss(WEIGHT, label_smoothing=0.1), nn.CrossEntropyLoss(WEIGHT, reduction="sum")):
        problem = hs.Problem.of(model, loss, (X, soft), batch_size=5)
        assert_right(model, problem, lambda loss=loss: loss(model(X), soft))  # type: ignore[misc]


def test_closed_forms_are_used_for_torchs_own_losses_only() -> None:
    model = network()
    for loss, targets, closed in (
        (nn.CrossEntropyLoss(), LABELS, True),
        (Focal(), LABELS, False),
        (nn.MSELoss(), REAL, True),
        (nn.HuberLoss(delta=0.5), REAL, True),
        (nn.SmoothL1Loss(beta=0.3), REAL, True),
        (nn.BCEWithLogitsLoss(WEIGHT), REAL.sigmoid(), True),
    ):
        problem = hs.Problem.of(model, loss, (X, targets))
        terms = problem.evaluate((X, targets), problem.parameters)
        assert isinstance(terms, AutogradLoss) != closed


def test_a_closed_form_that_disagrees_with_the_users_loss_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a change in torch itself: here squared errors are suddenly quartic."""
    monkeypatch.setattr(nn.MSELoss, "forward", lambda self, input, target: (input - target).pow(4).mean())
    model = network()
    problem = hs.Problem.of(model, nn.MSELoss(), (X, REAL), batch_size=5)
    assert_right(model, problem, lambda: (model(X) - REAL).pow(4).mean())


def test_functions_of_outputs_and_targets() -> None:
    model = network()
    each = lambda outputs, targets: (outputs - targets).pow(4).sum(-1)  # noqa: E731
    for data in ((X, REAL), [(X[:3], REAL[:3]), (X[3:], REAL[3:])]):
        assert_right(model, hs.Problem.of(model, each, data), lambda: each(model(X), REAL).mean())
        assert_right(model, hs.Problem.of(model, each, data, reduction="sum"), lambda: each(model(X), REAL).sum())
    number = lambda outputs, targets: (outputs - targets).pow(4).mean()  # noqa: E731
    assert_right(
        model, hs.Problem.of(model, number, (X, REAL), reduction="mean", batch_size=5), lambda: number(model(X), REAL)
    )
    problem = hs.Problem.of(model, each, (X, REAL))
    G = hs.GaussNewton(problem).dense()  # outputs and loss come apart
    assert float((G - G.T).norm()) < 1e-12 * float(G.norm())
    with pytest.raises(InputError, match="must be named"):
        hs.Problem.of(model, number, (X, REAL))
    with pytest.raises(InputError, match="named a sum must be one"):
        hs.Problem.of(model, number, (X, REAL), reduction="sum")
    with pytest.raises(InputError, match="one for each example"):
        hs.Problem.of(model, lambda outputs, targets: (outputs - targets) ** 2, (X, REAL))
    with pytest.raises(InputError, match="'mean' or 'sum'"):
        hs.Problem.of(model, number, (X, REAL), reduction="avg")


def test_a_function_of_the_model_stays_one() -> None:
    model = network()
    problem = hs.Problem.of(
        model, lambda net, batch: (F.mse_loss(net(batch[0]), batch[1], reduction="sum"), batch[1].numel()), (X, REAL)
    )
    assert not problem.has_outputs
    assert_right(model, problem, lambda: F.mse_loss(model(X), REAL))
    with pytest.raises(InputError, match="a mean in the place of the sum"):
        hs.Problem.of(model, lambda net, batch: (F.mse_loss(net(batch[0]), batch[1]), len(batch[1])), (X, REAL))


def test_logits_that_can_be_read_along_two_axes_are_refused() -> None:
    class Tokens(nn.Module):
        def __init__(self, vocabulary: int) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(vocabulary, 3), nn.Linear(3, vocabulary)

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.embed(ids).tanh())

    model = Tokens(5).double()
    ids, labels = torch.randint(0, 5, (2, 3, 5))
    with pytest.raises(InputError, match="as many classes as positions"):
        hs.Problem.of(model, "cross_entropy", (ids, labels))
    flat = hs.Problem.of(
        model, "cross_entropy", (ids, labels), forward=lambda m, b: (m(b[0]).flatten(0, 1), b[1].flatten())
    )
    assert_right(model, flat, lambda: F.cross_entropy(model(ids).flatten(0, 1), labels.flatten()))
    ragged = [(ids[:, :4], labels[:, :4]), (ids, labels)]  # the first batch tells where the classes are
    ours = hs.Problem.of(model, "cross_entropy", ragged)
    logits = torch.cat([model(i).flatten(0, 1) for i, _ in ragged])
    wanted = F.cross_entropy(logits, torch.cat([t.flatten() for _, t in ragged]))
    assert ours.loss_value() == pytest.approx(float(wanted.detach()), rel=1e-12)
    short = hs.Problem.of(model, "cross_entropy", (ids[:, :4], labels[:, :4]))
    assert_right(model, short, lambda: F.cross_entropy(model(ids[:, :4]).flatten(0, 1), labels[:, :4].flatten()))


def _nonsense() -> list[tuple[str, Callable[[], Any], str]]:
    def of(loss: Any, targets: Any) -> Callable[[], Any]:
        return lambda: hs.Problem.of(network(), loss, (X, targets))

    count = lambda value: lambda net, batch: (net(batch[0]).square().sum(), value)  # noqa: E731
    return [
        ("negative class weight", of(nn.CrossEntropyLoss(torch.tensor([1.0, -1, 1, 1])), LABELS), "weights of a loss"),
        ("nan class weight", of(nn.CrossEntropyLoss(WEIGHT * torch.nan), LABELS), "weights of a loss"),
        ("smoothing", of(nn.CrossEntropyLoss(label_smoothing=1.5), LABELS), r"in \[0, 1\]"),
        ("binary targets", of(nn.BCEWithLogitsLoss(), REAL), r"binary cross-entropy must lie in \[0, 1\]"),
        ("soft targets", of(nn.CrossEntropyLoss(), REAL), r"cross-entropy must lie in \[0, 1\]"),
        (
            "pos_weight",
            of(nn.BCEWithLogitsLoss(pos_weight=torch.zeros(CLASSES)), BINARY),
            "pos_weight must be positive",
        ),
        ("negative count", of(count(-3.0), REAL), "count .* positive"),
        ("zero count", of(count(0), REAL), "count .* positive"),
        ("nan count", of(count(float("nan")), REAL), "count .* positive"),
    ]


@pytest.mark.parametrize("case", _nonsense(), ids=lambda case: case[0])
def test_nonsense_is_refused(case: tuple[str, Callable[[], Any], str]) -> None:
    with pytest.raises(InputError, match=case[2]):
        case[1]()


@pytest.mark.parametrize("shape", [(N, 1), (1, N), (N // 2, 2)])
def test_class_labels_have_the_shape_that_torch_takes(shape: tuple[int, int]) -> None:
    with pytest.raises(hs.errors.InputError, match=rf"Expected class indices of shape \({N},\)"):
        hs.Problem.of(network(), "cross_entropy", [(X, LABELS.reshape(shape))])


@pytest.mark.parametrize("kind", [torch.uint8, torch.int16, torch.int32])
def test_class_labels_of_any_integer_type(kind: torch.dtype) -> None:
    model = network()
    problem = hs.Problem.of(model, "cross_entropy", (X, LABELS.to(kind)))
    assert_right(model, problem, lambda: F.cross_entropy(model(X), LABELS))


def test_one_value_for_each_example_in_a_column() -> None:
    """As every torch loss with reduction="none" gives it for a network with one output."""
    model = nn.Sequential(*network(), nn.Linear(CLASSES, 1)).double()

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(outputs, targets, reduction="none")

    targets = BINARY[:, :1]
    problem = hs.Problem.of(model, loss, [(X[:4], targets[:4]), (X[4:], targets[4:])])
    assert_right(model, problem, lambda: loss(model(X), targets).mean())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("margin", [18, 25, 45])
def test_a_saturated_classifier_keeps_its_digits(margin: float, dtype: torch.dtype) -> None:
    """Torch's own 1 - p has none left here, so that it agrees with the written-out loss to its rounding alone."""
    labels = torch.arange(3).repeat(4)
    x = torch.eye(3, dtype=dtype)[labels] + 0.05 * torch.rand(12, 3, generator=torch.Generator().manual_seed(0)).to(
        dtype
    )
    model = nn.Linear(3, 3, bias=False).to(dtype)
    with torch.no_grad():
        model.weight.copy_(margin * torch.eye(3))
    wide = x.double()
    p = torch.softmax(wide @ model.weight.detach().double().T, -1)
    others = p @ (1 - torch.eye(3).double())  # 1 - p without cancellation
    expected = float((p * others).sum(-1) @ wide.square().sum(-1)) / len(x)
    problem = hs.Problem.of(model, "cross_entropy", (x, labels))
    for found in (hs.trace(problem), hs.trace(hs.GaussNewton(problem))):
        assert found.exact
        assert found.value == pytest.approx(expected, rel=1e-5 if dtype is torch.float32 else 1e-11)
    assert hs.check(problem).passed


@pytest.mark.parametrize("written", ["log_softmax", "logsumexp"])
def test_digits_that_float32_loses_of_a_loss_of_ones_own_are_in_the_error(written: str) -> None:
    labels = torch.arange(3).repeat(4)
    x = torch.eye(3)[labels] + 0.05 * torch.rand(12, 3, generator=torch.Generator().manual_seed(0))

    def loss(z: Tensor, y: Tensor) -> Tensor:
        if written == "log_softmax":
            return -F.log_softmax(z, -1).gather(-1, y[:, None])[:, 0]
        return z.logsumexp(-1) - z.gather(-1, y[:, None])[:, 0]

    def trace(margin: float, dtype: torch.dtype) -> Any:
        model = nn.Linear(3, 3, bias=False)
        with torch.no_grad():
            model.weight.copy_(margin * torch.eye(3))
        return hs.trace(hs.Problem.of(model, loss, (x, labels)).cast(dtype))

    wide, narrow = (trace(15.0, dtype) for dtype in (torch.float64, torch.float32))
    assert not narrow.exact
    assert "lost digits" in narrow.check
    assert 1e-4 * wide.value < abs(narrow.value - wide.value) < 4 * narrow.stderr
    assert trace(2.0, torch.float32).exact  # what is not saturated has no error but rounding


def test_a_saturated_binary_classifier_keeps_its_digits() -> None:
    x = torch.tensor([[1.0, 0.1], [1.0, -0.2], [1.0, 0.05]])
    model = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[22.0, 0.1]]))
    z = x.double() @ model.weight.detach().double().T
    expected = float((torch.sigmoid(-z) * torch.sigmoid(z) * x.double().square()).sum()) / 3
    assert hs.trace(hs.Problem.of(model, "bce", (x, torch.ones(3, 1)))).value == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("other", ["scaled", "clamped"])
def test_a_saturated_loss_is_torchs_only_if_it_is(other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What differs below torch's rounding here is seen on the same outputs drawn together; what differs above it, here."""
    plain = F.cross_entropy

    def changed(z: Tensor, y: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return plain(z.clamp(-5, 5), y) if other == "clamped" else 1.5 * plain(z, y)

    monkeypatch.setattr(F, "cross_entropy", changed)
    labels = torch.arange(3).repeat(4)
    model = nn.Linear(3, 3, bias=False).double()
    with torch.no_grad():
        model.weight.copy_((60 if other == "scaled" else 18) * torch.eye(3))
    problem = hs.Problem.of(model, nn.CrossEntropyLoss(), (torch.eye(3).double()[labels], labels))
    assert isinstance(problem.loss, SeparableLoss)
    assert not problem.loss.written_out
