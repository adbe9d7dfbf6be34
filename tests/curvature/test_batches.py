"""Batches are cut, joined and halved only where examples do not see each other; otherwise they are the user's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import hesscope as hs
from hesscope.errors import InputError

DRAW = torch.Generator().manual_seed(1)


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=DRAW).double()


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()


def contrastive(model: nn.Module, batch: Any) -> tuple[Tensor, int]:
    """Every example is compared with all others of its batch."""
    a, b = (F.normalize(model(part), dim=-1) for part in batch)
    return F.cross_entropy(a @ b.T / 0.1, torch.arange(len(a)), reduction="sum"), len(a)


class Smoothed(nn.Module):
    """A running mean over the first axis, which is time: the first row sees only itself."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x.cumsum(0) / torch.arange(1, len(x) + 1).view(-1, *[1] * (x.ndim - 1)))


class GraphLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        return adjacency @ self.inner(x)


def test_a_tuple_of_one_tensor_is_a_batch_as_a_tuple_of_two_is() -> None:
    """A batch that is the tensor itself would make batch[0] its first row, silently."""
    model, x = nn.Linear(3, 1).double(), torch.randn(7, 3, dtype=torch.float64)
    problem = hs.Problem.of(model, lambda model, batch: (model(batch[0]).square().sum(), len(batch[0])), (x,))
    wide = torch.cat([x, torch.ones(7, 1, dtype=torch.float64)], 1)
    torch.testing.assert_close(hs.Hessian(problem).dense(), 2 * wide.T @ wide / 7)


def test_contrastive_batches_stay_whole() -> None:
    model, data = network(), (draw(1500, 3), draw(1500, 3))
    total, count = contrastive(model, data)
    problem = hs.Problem.of(model, contrastive, data)
    assert not problem.divisible
    assert problem.loss_value() == pytest.approx(float(total.detach()) / count, rel=1e-12)
    with pytest.raises(InputError, match="the batches you train on"):
        hs.Problem.of(model, contrastive, data, batch_size=500)
    with pytest.raises(InputError, match="the batches you train on"):
        hs.Problem.of(model, contrastive, data, batch_size=1499)
    with pytest.raises(InputError, match="the batches you train on"):
        hs.Problem.of(model, contrastive, TensorDataset(*data))
    theirs = hs.Problem.of(model, contrastive, DataLoader(TensorDataset(*data), batch_size=500))
    assert len(theirs.batch_values) == 3
    assert [count for _, count in theirs.batch_values] == [500, 500, 500]
    assert len(theirs.probe.batch_values) == 1
    assert theirs.probe.batch_values[0][1] == 500  # a whole batch, not a part of one
    assert theirs.subset(10).batch_values[0][1] == 500


def test_graphs_and_time_first_models_stay_whole() -> None:
    nodes = draw(1200, 3), torch.eye(1200).double().roll(1, 0) + 0.5 * torch.eye(1200).double(), torch.arange(1200) % 2
    graph, smoothed = GraphLayer(), Smoothed()
    problem = hs.Problem.of(graph, "cross_entropy", nodes)
    assert problem.loss_value() == pytest.approx(
        float(F.cross_entropy(graph(*nodes[:2]), nodes[2]).detach()), rel=1e-12
    )
    series, labels = draw(1200, 3), torch.arange(1200) % 2
    problem = hs.Problem.of(smoothed, "cross_entropy", (series, labels))
    assert not problem.divisible
    assert problem.loss_value() == pytest.approx(float(F.cross_entropy(smoothed(series), labels).detach()), rel=1e-12)


def test_independent_examples_are_cut_and_joined() -> None:
    model, x, y = network(), draw(1300, 3), torch.arange(1300) % 2
    cut = hs.Problem.of(model, "cross_entropy", (x, y), batch_size=500)
    assert len(cut.batch_values) == 3
    assert cut.divisible
    assert cut.loss_value() == pytest.approx(float(F.cross_entropy(model(x), y).detach()), rel=1e-12)


def test_batches_without_examples_are_left_out() -> None:
    torch.manual_seed(0)
    model, x, y = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(9, 3), torch.arange(9) % 2
    plain = hs.Problem.of(model, "cross_entropy", (x, y))
    gaps = hs.Problem.of(model, "cross_entropy", [(x[:0], y[:0]), (x[:5], y[:5]), (x[:0], y[:0]), (x[5:], y[5:])])
    assert np.allclose(hs.per_layer(gaps).trace, hs.per_layer(plain).trace, rtol=1e-5)
    assert hs.trace(gaps).value == pytest.approx(hs.trace(plain).value, rel=1e-5)


def test_the_probe_is_scattered_over_all_data_in_float64() -> None:
    model = network().float()
    x, y = draw(400, 3).float(), torch.arange(400) % 2
    problem = hs.Problem.of(model, "cross_entropy", (x, y), batch_size=100)
    batches = list(problem.probe.batches)
    seen = torch.cat([batch[0] for batch in batches])
    places = [int((x == row).all(1).nonzero()[0]) for row in seen]
    assert len(places) == len(set(places)) == 8
    assert len({place // 100 for place in places}) >= 3
    assert problem.probe.dtype == torch.float64
    assert problem.probe is problem.probe
    again = hs.Problem.of(model, "cross_entropy", (x, y), batch_size=100)
    assert torch.equal(torch.cat([batch[0] for batch in again.probe.batches]), seen)


@pytest.mark.parametrize("size", [-3, 0, 2.5, True, "12"])
def test_batch_sizes_are_positive_whole_numbers(size: Any) -> None:
    with pytest.raises(InputError, match="positive whole number"):
        hs.Problem.of(network(), "cross_entropy", (draw(20, 3), torch.arange(20) % 2), batch_size=size)


@pytest.mark.parametrize("draws_always", [False, True])
def test_randomness_in_a_later_batch_only(draws_always: bool) -> None:
    class Late(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def forward(self, x: Tensor) -> Tensor:
            noise = torch.rand_like(x) if draws_always or len(x) == 3 else x
            return self.inner(x + 0.1 * noise if len(x) == 3 else x)

    data = [(draw(5, 3), torch.arange(5) % 2), (draw(3, 3), torch.arange(3) % 2)]
    problem = hs.Problem.of(Late(), "cross_entropy", data)
    before = torch.get_rng_state()
    with pytest.raises(InputError, match=r"fixed function.*for batch 1 on two calls"):
        problem.gradient()
    assert not draws_always or torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_one_nan_is_refused(reduction: str) -> None:
    x = draw(20, 3)
    x[13, 1] = torch.nan
    loss = nn.CrossEntropyLoss(reduction=reduction)
    problem = hs.Problem.of(network(), loss, [(x[:10], torch.arange(10) % 2), (x[10:], torch.arange(10) % 2)])
    with pytest.raises(InputError, match="loss must be finite; got nan on batch 1"):
        hs.Hessian(problem).dense()
    with pytest.raises(InputError, match="parameters must be finite"):
        problem.at({"0.weight": torch.full((4, 3), torch.nan)}).gradient()


def test_checkpoints_bring_their_running_statistics() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2)).double().eval()
    x, y = draw(30, 3), torch.arange(30) % 2
    problem = hs.Problem.of(model, "cross_entropy", (x, y))
    later = {name: value.clone() for name, value in model.state_dict().items()}
    later["1.running_var"] += 5
    later["0.weight"] *= 2
    moved = problem.at(later)
    model.load_state_dict(later)
    assert moved.loss_value() == pytest.approx(float(F.cross_entropy(model(x), y).detach()), rel=1e-12)
    fresh = hs.Hessian(hs.Problem.of(model, "cross_entropy", (x, y))).dense()
    assert torch.allclose(hs.Hessian(moved).dense(), fresh, atol=1e-12)
    with pytest.raises(InputError, match=r"'0\.wieght'"):
        problem.at({"0.wieght": later["0.weight"]})
    with pytest.raises(InputError, match=r"shape \(4, 3\)"):
        problem.at({"0.weight": later["0.weight"].T})


def test_checkpoints_of_tied_models() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.embed(ids))

    model, ids = Tied(), torch.arange(10) % 5
    problem = hs.Problem.of(model, "cross_entropy", (ids, ids.flip(0)))
    twice = {name: 2 * value for name, value in model.state_dict().items()}
    moved = problem.at(twice)  # both names of the one tensor
    assert torch.equal(moved.parameters["embed.weight"], twice["head.weight"])
    with pytest.raises(InputError, match="tied"):
        problem.at({**twice, "head.weight": twice["head.weight"] + 1})


def test_weights_on_the_command_line_bring_their_buffers(tmp_path: Any) -> None:
    from hesscope.cli.source import from_text

    (tmp_path / "made.py").write_text(
        "import torch, hesscope as hs\nfrom torch import nn\n"
        "def make():\n"
        "    torch.manual_seed(0)\n"
        "    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).eval()\n"
        "    return hs.Problem.of(model, 'cross_entropy', (torch.randn(20, 3), torch.arange(20) % 2))\n"
    )
    plain = from_text(f"{tmp_path}/made.py:make").problem
    variance = np.full(4, 5.0, dtype=np.float32)
    np.savez(tmp_path / "late.npz", **{"1.running_var": variance})
    moved = from_text(f"{tmp_path}/made.py:make@{tmp_path}/late.npz").problem
    assert abs(moved.loss_value() - plain.loss_value()) > 1e-3
    np.savez(tmp_path / "other.npz", **{"1.running_vra": variance})
    with pytest.raises(InputError, match="running_vra"):
        from_text(f"{tmp_path}/made.py:make@{tmp_path}/other.npz")


class Output:
    def __init__(self, logits: Tensor, loss: Tensor | None) -> None:
        self.logits, self.loss = logits, loss


class Causal(nn.Module):
    """In the manner of Hugging Face: labels go in, a shifted loss comes out."""

    def __init__(self, shift: int = 1, extra: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Embedding(7, 4), nn.Linear(4, 7)
        self.shift, self.extra = shift, extra

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> Output:
        logits = self.head(self.embed(input_ids).cumsum(1).tanh())
        loss = None
        if labels is not None:
            length = input_ids.shape[1] - self.shift
            loss = F.cross_entropy(logits[:, :length].flatten(0, 1), labels[:, self.shift :].flatten()) + self.extra
        return Output(logits, loss)


@pytest.mark.parametrize("shift", [0, 1])
def test_labels_are_read_as_the_model_reads_them(shift: int) -> None:
    model = Causal(shift).double()
    ids = torch.randint(0, 7, (4, 6), generator=DRAW)
    labels = ids.clone()
    labels[2, 3:] = -100
    batch = {"input_ids": ids, "labels": labels}
    problem = hs.Problem.of(model, "cross_entropy", [batch])
    loss = model(**batch).loss
    assert loss is not None
    assert problem.loss_value() == pytest.approx(float(loss.detach()), rel=1e-12)
    wanted = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(model.parameters()))])
    assert torch.allclose(problem.gradient(), wanted, atol=1e-12)


def test_a_loss_of_the_models_own_that_is_neither_reading_is_refused() -> None:
    ids = torch.randint(0, 7, (4, 6), generator=DRAW)
    with pytest.raises(InputError, match="as the model itself reads them"):
        hs.Problem.of(Causal(extra=0.5), "cross_entropy", [{"input_ids": ids, "labels": ids}])


def test_names_are_names() -> None:
    """A module called "[ab]" is not the modules "a" and "b"."""
    torch.manual_seed(0)
    model = nn.Sequential()
    for name, (inputs, outputs) in {"a": (3, 4), "[ab]": (4, 4), "*": (4, 2)}.items():
        model.add_module(name, nn.Linear(inputs, outputs))
    x, y = draw(20, 3).float(), torch.arange(20) % 2
    problem = hs.Problem.of(model, "cross_entropy", (x, y))
    assert problem.select("[ab].weight").space.names == ("[ab].weight",)
    assert problem.only(["*.weight", "a.bias"]).space.names == ("a.bias", "*.weight")
    assert problem.space.select("a.*").names == ("a.weight", "a.bias")
    assert problem.space.indices("[ab].bias").tolist() == list(range(32, 36))
    dense = hs.Hessian(problem).dense()
    block = hs.Hessian(problem).block("*.weight")
    place = problem.space.slice_of("*.weight")
    assert torch.allclose(block.dense(), dense[place, place], atol=1e-6)
    assert float(hs.trace(hs.Hessian(problem)).value) == pytest.approx(float(dense.trace()), rel=1e-4)


def _coupled_by_size() -> nn.Module:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) * (2.0 if len(x) == 1 else 1.0)

    return Branching()


@pytest.mark.parametrize("make", [Smoothed, _coupled_by_size])
def test_dependence_on_other_rows_or_their_number_is_seen(make: Callable[[], nn.Module]) -> None:
    problem = hs.Problem.of(make(), "cross_entropy", (draw(30, 3), torch.arange(30) % 2))
    assert not problem.divisible
    assert not problem.joinable


def test_a_batch_of_the_users_own_is_never_cut() -> None:
    model, x, y = network(), draw(1300, 3), torch.arange(1300) % 2
    assert len(hs.Problem.of(model, "cross_entropy", [(x, y)]).batch_values) == 1


def test_time_first_batches_with_as_many_times_as_examples() -> None:
    class Summary(nn.Module):
        """(time, examples, features) to (examples, classes)."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x.tanh().mean(0))

    model, x, y = Summary(), draw(5, 5, 3), torch.arange(5) % 2
    problem = hs.Problem.of(model, nn.CrossEntropyLoss(), [(x, y)])
    assert not problem.divisible
    assert problem.loss_value() == pytest.approx(float(F.cross_entropy(model(x), y).detach()), rel=1e-12)
    with pytest.raises(InputError, match=r"data=\[\(inputs, targets\)\]"):
        hs.Problem.of(model, nn.CrossEntropyLoss(), (draw(4, 5, 3), y))


class Spread(nn.Module):
    """The variance of the outputs over a batch: neither a sum nor a mean of examples, though it calls itself a mean."""

    reduction = "mean"

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.var(0).sum() + (outputs - targets).square().mean()


def test_how_batches_of_a_coupled_loss_combine_is_said_or_asked() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2).double()
    x, y = draw(20, 3).double(), draw(20, 2).double()
    uneven = [(x[:12], y[:12]), (x[12:], y[12:])]
    values = [float(Spread()(model(a), b).detach()) for a, b in uneven]
    with pytest.raises(InputError, match=r"must have one size; got 2 batches of several sizes. Name reduction='mean'"):
        hs.Problem.of(model, Spread(), uneven).loss_value()
    named = hs.Problem.of(model, Spread(), uneven, reduction="mean")
    assert named.loss_value() == pytest.approx((12 * values[0] + 8 * values[1]) / 20, rel=1e-12)
    assert "weighted by their examples" in hs.trace(named).check
    whole = hs.Problem.of(model, Spread(), (x, y))
    assert whole.loss_value() == pytest.approx(float(Spread()(model(x), y).detach()), rel=1e-12)
    assert "weighted" not in hs.trace(whole).check
    even = [(x[:10], y[:10]), (x[10:], y[10:])]
    mean = sum(float(Spread()(model(a), b).detach()) for a, b in even) / 2
    assert hs.Problem.of(model, Spread(), even).loss_value() == pytest.approx(mean, rel=1e-12)


def test_a_problem_runs_its_first_batch_once_and_a_few_examples_more() -> None:
    seen = []

    class Counted(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(len(x))
            return super().forward(x)

    hs.Problem.of(Counted(3, 2), "mse", (torch.randn(512, 3), torch.randn(512, 2)))
    assert seen.count(512) == 1
    assert sum(seen) < 512 + 64
