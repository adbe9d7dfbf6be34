"""The problem is the one the user trains, and what is not one is refused with the way out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import hesscope as hs
from hesscope.errors import InputError

X, Y = torch.randn(20, 3), torch.randint(0, 2, (20,))


def linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(3, 2)


def hessian(*args: Any, **kwargs: Any) -> Tensor:
    return hs.Hessian(hs.Problem.of(*args, **kwargs)).dense()


def test_every_form_of_data_gives_the_same_hessian() -> None:
    model = linear()
    truth = hessian(model, "cross_entropy", (X, Y))
    dataset = TensorDataset(X, Y)
    forms = [
        dataset,
        DataLoader(dataset, batch_size=6),
        [(X[:3], Y[:3]), (X[3:], Y[3:])],
        ((X[i : i + 8], Y[i : i + 8]) for i in (0, 8, 16)),
        [[X[:19], Y[:19]], [X[19:], Y[19:]]],
    ]
    for data in forms:
        assert torch.allclose(hessian(model, nn.CrossEntropyLoss(), data), truth, atol=1e-6)
    assert torch.allclose(hessian(model, F.cross_entropy, (X, Y), batch_size=3), truth, atol=1e-6)
    dicts = [{"input": X[:5], "labels": Y[:5]}, {"input": X[5:], "labels": Y[5:]}]
    assert torch.allclose(hessian(model, "cross_entropy", dicts), truth, atol=1e-6)
    closed_over = hessian(model, lambda m: F.cross_entropy(m(X), Y))
    assert torch.allclose(closed_over, truth, atol=1e-6)
    split = hs.Problem.of(
        model, "cross_entropy", [{"a": (X, {"b": Y})}], forward=lambda m, b: (m(b["a"][0]), b["a"][1]["b"])
    )
    assert torch.allclose(hs.GaussNewton(split).dense(), truth, atol=1e-6)


def test_uneven_batches_are_weighted_by_what_the_loss_counts() -> None:
    """Equal weights per batch, as a peer uses, are far off on this data: the test would see that."""
    model = linear()
    batches = [(5 * X[:18], Y[:18]), (X[18:], Y[18:])]
    truth = hessian(model, "cross_entropy", (torch.cat([b[0] for b in batches]), Y))
    ours = hessian(model, "cross_entropy", batches)
    per_batch = sum(hessian(model, "cross_entropy", b) for b in batches) / 2
    assert torch.allclose(ours, truth, atol=1e-6)
    assert float((per_batch - truth).norm() / truth.norm()) > 0.17


def test_padded_tokens_are_weighted_by_valid_tokens() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5)).double()
    ids = torch.randint(0, 5, (6, 8))
    labels = torch.randint(0, 5, (6, 8))
    labels[1:, 2:] = -100
    batches = [(ids[:1], labels[:1]), (ids[1:], labels[1:])]
    logits = lambda s: torch.func.functional_call(model, s, (ids,)).reshape(-1, 5)  # noqa: E731
    leaves = {n: p.detach().clone().requires_grad_() for n, p in model.named_parameters()}
    loss = F.cross_entropy(logits(leaves), labels.reshape(-1), ignore_index=-100)
    g = torch.cat([t.reshape(-1) for t in torch.autograd.grad(loss, list(leaves.values()), create_graph=True)])
    truth = torch.stack(
        [
            torch.cat([t.reshape(-1) for t in torch.autograd.grad(e, list(leaves.values()), retain_graph=True)])
            for e in g
        ]
    )
    problem = hs.Problem.of(model, nn.CrossEntropyLoss(ignore_index=-100), batches)
    assert torch.allclose(hs.Hessian(problem).dense(), truth, atol=1e-12)
    assert problem.totals[1] == 8 + 5 * 2
    per_sequence = sum(hessian(model, nn.CrossEntropyLoss(), b) * len(b[0]) for b in batches) / 6
    assert float((per_sequence - truth).norm() / truth.norm()) > 0.2


def test_losses_as_torch_defines_them() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 4).double()
    x = torch.randn(9, 3).double()
    y, soft, real = torch.randint(0, 4, (9,)), torch.rand(9, 4).double().softmax(-1), torch.randn(9, 4).double()
    w = torch.tensor([0.5, 1.0, 2.0, 3.0]).double()
    y[2] = 1
    cases = [
        (nn.CrossEntropyLoss(weight=w, ignore_index=1), y),
        (nn.CrossEntropyLoss(weight=w, label_smoothing=0.2, reduction="sum"), y),
        (nn.CrossEntropyLoss(weight=w, label_smoothing=0.2), soft),
        (nn.MSELoss(), real),
        (nn.MSELoss(reduction="sum"), real),
        (nn.HuberLoss(delta=0.5), real),
        (nn.SmoothL1Loss(beta=0.3), real),
        (nn.L1Loss(), real),
        (nn.PoissonNLLLoss(), real.abs()),
        (nn.BCEWithLogitsLoss(weight=w, pos_weight=w), soft),
    ]
    for loss, target in cases:
        problem = hs.Problem.of(model, loss, (x, target), batch_size=4)
        assert problem.loss_value() == pytest.approx(float(loss(model(x), target).detach()), rel=1e-12), loss
        gradient = torch.cat(
            [g.reshape(-1) for g in torch.autograd.grad(loss(model(x), target), list(model.parameters()))]
        )
        assert torch.allclose(problem.gradient(), gradient, atol=1e-12), loss


def test_several_dtypes_frozen_parameters_and_buffers() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.frozen = nn.Linear(3, 4), nn.Linear(4, 2).double(), nn.Linear(2, 2).double()
            self.frozen.requires_grad_(False)
            self.register_buffer("scale", torch.tensor(2.0))

        def forward(self, x: Tensor) -> Tensor:
            return self.frozen(self.second(torch.tanh(self.first(x)).double() * self.scale))

    model = Mixed()
    problem = hs.Problem.of(model, "cross_entropy", (X, Y))
    assert problem.space.names == ("first.weight", "first.bias", "second.weight", "second.bias")
    assert problem.dtype == torch.float64
    H = hs.Hessian(problem).dense()
    assert float((H - H.T).norm() / H.norm()) < 1e-6
    model.scale.fill_(9.0)  # a problem keeps the values it was made with
    assert torch.allclose(hs.Hessian(problem).dense(), H)


def test_nothing_of_the_model_is_changed() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2)).train()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    state = torch.get_rng_state()
    problem = hs.Problem.of(model, "cross_entropy", (X, Y), freeze=True)
    frozen = hs.Hessian(problem).dense()
    assert all(m.training for m in model.modules())
    assert all(torch.equal(v, model.state_dict()[k]) for k, v in before.items())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(p.grad is None for p in model.parameters())
    assert torch.allclose(frozen, hessian(model.eval(), "cross_entropy", (X, Y)), atol=1e-7)


def test_a_module_used_under_two_names_keeps_its_parameters() -> None:
    shared = nn.Linear(3, 3)
    model = nn.Sequential(shared, nn.Tanh(), shared, nn.Linear(3, 2))
    own = {name: id(p) for name, p in model.named_parameters()}
    H = hs.Hessian(hs.Problem.of(model, "cross_entropy", (X, Y)))
    assert {name: id(p) for name, p in model.named_parameters()} == own
    assert all(p.requires_grad for p in model.parameters())
    assert H.shape == (20, 20)
    weights = list(model.parameters())
    gradient = torch.autograd.grad(F.cross_entropy(model(X), Y), weights, create_graph=True)
    flat = torch.cat([g.reshape(-1) for g in gradient])
    rows = torch.autograd.grad(flat, weights, torch.eye(20), is_grads_batched=True)
    assert torch.allclose(H.dense(), torch.cat([r.reshape(20, -1) for r in rows], 1), atol=1e-6)


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.linear(x), 0.5)


def _refusals() -> list[tuple[str, Any, str]]:
    of = hs.Problem.of
    half = nn.Linear(3, 2).half()
    broken = nn.Linear(3, 2)
    with torch.no_grad():
        broken.weight[0, 0] = float("nan")
    frozen = nn.Linear(3, 2).requires_grad_(False)
    shuffled = DataLoader(TensorDataset(X, Y), batch_size=4, shuffle=True)
    return [
        (
            "dropout",
            lambda: of(nn.Sequential(linear(), nn.Dropout()), "mse", (X, X)),
            r"1 \(Dropout\).*model\.eval\(\).*freeze=True",
        ),
        (
            "batch-norm",
            lambda: of(nn.Sequential(linear(), nn.BatchNorm1d(2)), "mse", (X, X)),
            r"BatchNorm1d.*model\.eval",
        ),
        ("noise", lambda: of(Noisy(), "cross_entropy", (X, Y)), "for the first batch on two calls"),
        ("shuffling", lambda: of(linear(), "cross_entropy", shuffled), "shuffle=False"),
        ("nan", lambda: of(broken, "cross_entropy", (X, Y)), "parameters must be finite; got nan or inf in 'weight'"),
        ("empty pair", lambda: of(linear(), "cross_entropy", (X[:0], Y[:0])), "at least one example"),
        ("empty loader", lambda: of(linear(), "cross_entropy", []), "at least one batch"),
        ("lengths", lambda: of(linear(), "cross_entropy", (X, Y[:3])), "as many examples"),
        ("glob", lambda: of(linear(), "cross_entropy", (X, Y), params="fc*"), r"'fc\*'.*weight, bias"),
        ("all frozen", lambda: of(frozen, "cross_entropy", (X, Y)), "all frozen"),
        ("integer inputs", lambda: of(linear(), "cross_entropy", (X.long(), Y)), r"int64.*x\.float\(\)"),
        ("float16", lambda: of(half, "cross_entropy", (X.half(), Y)), r"float16.*model\.float\(\)"),
        ("labels", lambda: of(linear(), "cross_entropy", (X, Y + 1)), r"in \[0, 2\)"),
        ("shapes", lambda: of(linear(), "mse", (X, torch.randn(20))), r"shape of the outputs, \(20, 2\)"),
        ("loss name", lambda: of(linear(), "cross-entropy", (X, Y)), "Known: cross_entropy"),
        ("reduction", lambda: of(linear(), nn.CrossEntropyLoss(reduction="none"), (X, Y)), "'mean' or 'sum'"),
        ("loss result", lambda: of(linear(), lambda m, b: m(b[0]), (X, Y)), r"\(sum, count\)"),
        ("all ignored", lambda: of(linear(), "cross_entropy", (X, Y * 0 - 100)).loss_value(), "count for something"),
        ("not a module", lambda: of(lambda x: x, "mse", (X, X)), r"torch\.nn\.Module"),
        ("data", lambda: of(linear(), "mse", 3), "must be tensors, a Dataset"),
        ("dict batch", lambda: of(linear(), "mse", [{"input": X}]), "labels"),
        ("rows", lambda: hs.GaussNewton(of(linear(), lambda m: m(X).square().sum())), "outputs and the loss apart"),
        ("vector", lambda: hs.Hessian(of(linear(), "cross_entropy", (X, Y))) @ torch.ones(3), r"shape \(8,\)"),
        ("memory", lambda: of(linear(), "cross_entropy", (X, Y), memory="lots"), "memory='4GB'"),
        ("method", lambda: hs.Hessian(of(linear(), "cross_entropy", (X, Y)), method="magic"), "auto, kept"),
        ("kind", lambda: hs.Fisher(of(linear(), "cross_entropy", (X, Y)), kind="true"), "'mc', 'empirical' or 'exact'"),
    ]


@pytest.mark.parametrize("case", _refusals(), ids=lambda case: case[0])
def test_bad_input_is_refused_with_the_way_out(case: tuple[str, Any, str]) -> None:
    with pytest.raises(InputError, match=case[2]):
        case[1]()


def test_out_of_memory_halves_the_chunks_and_says_so() -> None:
    class Greedy(nn.Module):
        """Refuses more than 8 examples at a time, as a device with little memory would."""

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            if len(x) > 8 and torch.is_grad_enabled() and self.linear.weight.requires_grad:
                raise torch.OutOfMemoryError("pretended")
            return self.linear(x)

    model = Greedy()
    problem = hs.Problem.of(model, "cross_entropy", (X, Y))
    H = hs.Hessian(problem)
    with (
        pytest.warns(UserWarning, match="out of memory with 20 examples at a time; going on with halves of 10"),
        pytest.warns(UserWarning, match="out of memory with 10 examples at a time; going on with halves of 5"),
    ):
        dense = H.dense()
    truth = nn.Linear(3, 2)
    truth.load_state_dict(model.linear.state_dict())
    assert torch.allclose(dense, hessian(truth, "cross_entropy", (X, Y)), atol=1e-6)
