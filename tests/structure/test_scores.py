"""Partitions, spectra, stripes, heat maps and courses against dense matrices."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from hesscope.curvature import Problem
from hesscope.errors import InputError
from hesscope.partition import Partition
from hesscope.structure import block_norms, block_spectra, circulant_score, dense_hessian, heat_map, structure_history
from hesscope.structure import spectra as spectra_module
from structure.networks import convolutional, language, mlp, problem, seeded


def test_rows_of_recurrent_and_odd_layers() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps, self.out = nn.LSTM(3, 2, num_layers=2, batch_first=True), nn.Linear(2, 3)
            self.out.register_parameter("temperature", nn.Parameter(torch.ones(())))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.steps(x)[0][:, -1]) * self.out.temperature

    p = Problem.of(Odd().double(), "cross_entropy", (torch.randn(9, 4, 3).double(), torch.randint(0, 3, (9,))))
    gates = [f"steps.l{layer}[{gate}]" for layer in range(2) for gate in range(8)]
    assert Partition.by("neuron", p).names == (*gates, *(f"out[{row}]" for row in range(3)), "out")


def test_partition_groups_rows_with_their_bias() -> None:
    p = problem(mlp(6, 5, 4, bias=True), "cross_entropy")
    neurons = Partition.by("neuron", p)
    assert neurons.count == 9
    assert neurons.sizes.tolist() == [7] * 5 + [6] * 4
    assert neurons.names[0] == "0[0]"
    assert neurons.layers == ("0",) * 5 + ("2",) * 4
    # Neuron 1 of the first layer: its row of the weight (6..11) and its bias (30 + 1).
    assert neurons.indices("0[1]").tolist() == [6, 7, 8, 9, 10, 11, 31]
    assert Partition.by("layer", p).sizes.tolist() == [35, 24]
    assert Partition.by("tensor", p).names == p.space.names
    classes = Partition.by("class", p)
    assert classes.names == ("0", "2[0]", "2[1]", "2[2]", "2[3]")
    custom = Partition.of(p, {"weights": "*.weight", "biases": "*.bias"})
    assert custom.sizes.tolist() == [50, 9]


def test_a_model_that_is_one_layer_keeps_rows_and_biases_together() -> None:
    p = problem(seeded(nn.Linear(6, 4)), "cross_entropy")
    assert Partition.by("layer", p).names == ("Linear",)
    for kind in ("neuron", "class"):
        found = Partition.by(kind, p)
        assert found.names == tuple(f"Linear[{k}]" for k in range(4))
        assert found.indices(1).tolist() == [6, 7, 8, 9, 10, 11, 25]


def test_heads_own_rows_before_and_columns_after_attention() -> None:
    p = language()
    heads = Partition.by("head", p)
    place = p.space.slice_of("wo.weight")
    labels = heads.labels[place].view(8, 8)
    assert (labels == labels[:1]).all()  # constant down each column
    assert [heads.names[k] for k in labels[0, ::2]] == [f"wo[head {h}]" for h in range(4)]
    assert heads.names[int(heads.labels[p.space.slice_of("head.weight")][0])] == "head"


def test_heads_of_torchs_own_attention() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(6, 3, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.attention(x, x, x, need_weights=False)[0].mean(1)

    x = torch.randn(4, 5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    p = Problem.of(seeded(Model()), "cross_entropy", (x, torch.tensor([0, 1, 2, 3])))
    heads = Partition.by("head", p)
    packed = [f"attention.in_proj[{kind} head {h}]" for kind in ("query", "key", "value") for h in range(3)]
    assert [name for name in heads.names if "in_proj" in name] == packed
    found = block_norms(p, heads)
    whole = float(dense_hessian(p).square().sum())
    assert (found.norms**2).sum() == pytest.approx(whole, rel=1e-10)


@pytest.mark.parametrize("kind", ["neuron", "layer"])
def test_block_spectra_are_eigenvalues_of_diagonal_blocks(kind: str) -> None:
    for p in (problem(mlp(6, 5, 4, activation=nn.Tanh, bias=True), "cross_entropy"), convolutional()):
        dense = dense_hessian(p)
        partition = Partition.by(kind, p)
        found = block_spectra(p, kind)
        assert all(found.exact)
        for block in range(partition.count):
            inside = partition.indices(block)
            expected = torch.linalg.eigvalsh(dense[inside][:, inside]).numpy()
            np.testing.assert_allclose(found.nodes[block], expected, atol=1e-12)
            assert found.of(block).mean == pytest.approx(expected.mean(), abs=1e-12)


def test_big_blocks_get_a_quadrature(monkeypatch: pytest.MonkeyPatch) -> None:
    p = convolutional()
    exact = block_spectra(p, "layer")
    monkeypatch.setattr(spectra_module, "_DENSE", 30)
    found = block_spectra(p, "layer")
    assert found.exact == (True, False)
    spread = exact.of(1).quantile(0.99) - exact.of(1).quantile(0.01)
    assert found.of(1).wasserstein(exact.of(1)) < 0.05 * float(spread)


@pytest.mark.parametrize("bias", [False, True])
def test_circulant_score_counts_the_stripes(bias: bool) -> None:
    p = problem(mlp(6, 5, 4, bias=bias), "cross_entropy")
    found = circulant_score(p)
    dense = dense_hessian(p)
    first, second = p.space.indices("0.*"), p.space.indices("2.*")
    cross = dense[first][:, second]
    assert found.cross == pytest.approx(float(cross.norm()), rel=1e-12)
    rows, columns = [], []
    for i in range(5):
        neuron = [*range(6 * i, 6 * i + 6), *([30 + i] if bias else [])]
        rows += [r for r in neuron for _ in range(4)]
        columns += [j * 5 + i for _ in neuron for j in range(4)]
    striped = float(cross[rows, columns].square().sum())
    assert found.share == pytest.approx(striped / float(cross.square().sum()), rel=1e-12)
    assert found.chance == 1 / (6 if bias else 5)
    whole = float(dense.square().sum())
    assert found.cross_share == pytest.approx(2 * float(cross.square().sum()) / whole, rel=1e-12)


def test_circulant_score_is_one_for_pure_stripes() -> None:
    # With a zero output matrix and squared error only the slope term of H_wv is left.
    model = mlp(6, 5, 4)
    nn.init.zeros_(model.get_submodule("2").get_parameter("weight"))
    found = circulant_score(problem(model, "squared_error"))
    assert found.score == pytest.approx(1.0, abs=1e-12)


def test_circulant_score_needs_two_layers() -> None:
    with pytest.raises(InputError, match="two selected linear layers"):
        circulant_score(problem(mlp(6, 4), "cross_entropy"))


@pytest.mark.parametrize("reduce", ["max", "mean"])
@pytest.mark.parametrize("bias", [False, True])
def test_heat_map_is_the_reduced_dense_matrix(reduce: str, bias: bool) -> None:
    p = problem(mlp(6, 5, 4, activation=nn.Tanh, bias=bias), "cross_entropy")
    dense = dense_hessian(p).abs().numpy()
    n = len(dense)
    found = heat_map(p, 7, reduce=reduce)
    pixel = np.arange(n) * 7 // n
    for a in range(7):
        for b in range(7):
            entries = dense[np.ix_(pixel == a, pixel == b)]
            expected = entries.max() if reduce == "max" else entries.mean()
            assert found.image[a, b] == pytest.approx(expected, rel=1e-10)
    assert heat_map(p, 1000).image == pytest.approx(dense, abs=1e-14)


def test_course_follows_the_checkpoints() -> None:
    p = problem(mlp(6, 5, 4), "cross_entropy")
    later = {name: 2 * value for name, value in p.parameters.items()}
    found = structure_history(p, [(0, p.parameters), (10, later)])
    assert found.steps.tolist() == [0, 10]
    assert found.loss[1] == pytest.approx(p.at(later).loss_value())
    for key, values in found.ratios.items():
        assert values[0] == block_norms(p).layer_ratios[key]
        assert values[1] == block_norms(p.at(later)).layer_ratios[key]
    assert found.largest_ratio[1] == block_norms(p.at(later)).largest_ratio
    assert found.circulant[1] == circulant_score(p.at(later)).score
    one_layer = problem(mlp(6, 4), "cross_entropy")
    assert np.isnan(structure_history(one_layer, [(0, one_layer.parameters)]).circulant).all()
    with pytest.raises(InputError, match="at least one checkpoint"):
        structure_history(p, [])


@pytest.mark.parametrize(("pixels", "reduce"), [(0, "max"), (4, "median")])
def test_heat_map_refuses(pixels: int, reduce: str) -> None:
    with pytest.raises(InputError):
        heat_map(problem(mlp(6, 4), "cross_entropy"), pixels, reduce=reduce)
