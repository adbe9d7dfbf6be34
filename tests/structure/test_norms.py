"""Block norms against the squares of a dense matrix; stochastic norms against exact ones."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from hesscope.curvature import GaussNewton, Hessian, Problem
from hesscope.errors import InputError
from hesscope.operators import Dense
from hesscope.partition import Partition
from hesscope.result import Result
from hesscope.rng import Rng
from hesscope.structure import BlockNorms, block_norms, dense_hessian, norm_products, output_block_norms
from hesscope.structure import norms as norms_module
from hesscope.structure.exact.gram import PairNorms
from properties import examples
from structure.networks import convolutional, data, language, mlp, problem


def truth(p: Problem, partition: Partition, matrix: str) -> np.ndarray[Any, Any]:
    operator = Hessian(p) if matrix == "hessian" else GaussNewton(p)
    member = nn.functional.one_hot(partition.labels, partition.count).double()
    return (member.T @ operator.dense().square() @ member).sqrt().numpy()


def assert_norms(p: Problem, kind: Any, matrix: Any) -> BlockNorms:
    partition = kind if isinstance(kind, Partition) else Partition.by(kind, p)
    found = block_norms(p, partition, matrix=matrix)
    expected = truth(p, partition, matrix)
    assert found.exact
    assert not found.stderr.any()
    # A squared norm of rounding errors has norm √eps: a block that is zero may come out as that.
    np.testing.assert_allclose(found.norms, expected, rtol=1e-9, atol=1e-8 * expected.max())
    return found


@pytest.mark.parametrize("matrix", ["hessian", "gauss_newton"])
@pytest.mark.parametrize("kind", ["neuron", "layer", "tensor", "class"])
@pytest.mark.parametrize("loss", ["cross_entropy", "squared_error", "bce"])
def test_three_layers(kind: str, loss: str, matrix: str) -> None:
    model = mlp(6, 5, 3, 4, activation=nn.GELU, bias=True)
    x, y = data(loss)
    p = Problem.of(model, loss, (x, y.sigmoid() if loss == "bce" else y), batch_size=10)
    found = assert_norms(p, kind, matrix)
    assert found.products == 8  # one per hidden neuron, none per parameter


@pytest.mark.parametrize("inputs", [3, 40])
def test_both_ways_to_a_norm(inputs: int) -> None:
    p = problem(mlp(inputs, 4), "cross_entropy", inputs)
    assert PairNorms(data("cross_entropy", inputs)[0]).by_entries == (inputs == 3)
    assert_norms(p, "neuron", "hessian")


@examples(20)
@given(
    n=st.integers(1, 30),
    left=st.integers(1, 9),
    right=st.integers(0, 9),
    columns=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_pair_norms_are_norms_of_weighted_products(n: int, left: int, right: int, columns: int, seed: int) -> None:
    generator = Rng(seed).torch()
    x = torch.randn(n, left, generator=generator, dtype=torch.float64)
    y = torch.randn(n, right, generator=generator, dtype=torch.float64) if right else None
    s = torch.randn(n, columns, generator=generator, dtype=torch.float64)
    blocks = torch.einsum("nk,na,nb->kab", s, x, x if y is None else y)
    got = PairNorms(x, y).squares(s)
    torch.testing.assert_close(got, blocks.square().sum((1, 2)), rtol=1e-9, atol=1e-9)


def test_pair_norms_in_chunks_without_holding(monkeypatch: pytest.MonkeyPatch) -> None:
    from hesscope.structure.exact import gram

    generator = Rng(0).torch()
    x = torch.randn(50, 30, generator=generator, dtype=torch.float64)
    s = torch.randn(50, 3, generator=generator, dtype=torch.float64)
    whole = PairNorms(x).squares(s)
    monkeypatch.setattr(gram, "_HELD", 0)
    monkeypatch.setattr(gram, "_CHUNK", 7)
    torch.testing.assert_close(PairNorms(x).squares(s), whole, rtol=1e-12, atol=0)


@pytest.mark.parametrize("matrix", ["hessian", "gauss_newton"])
def test_convolutions_by_channel(matrix: str) -> None:
    assert assert_norms(convolutional(), "neuron", matrix).products == norm_products(convolutional(), "neuron") == 20


def test_attention_by_head() -> None:
    p = language("w*")
    found = assert_norms(p, "head", "hessian")
    assert found.names[:4] == ("wq[head 0]", "wq[head 1]", "wq[head 2]", "wq[head 3]")
    assert [found.layers.count(layer) for layer in ("wq", "wk", "wv", "wo")] == [4, 2, 2, 4]


def test_scores_of_a_known_matrix() -> None:
    found = BlockNorms(
        np.array([[4.0, 1.0, 2.0], [1.0, 4.0, 0.0], [2.0, 0.0, 1.0]]),
        np.zeros((3, 3)),
        ("a0", "a1", "b"),
        ("a", "a", "b"),
        np.ones(3),
        "hessian",
        True,
        0,
    )
    assert found.ratio == pytest.approx(1 / 3)
    assert found.layer_ratios == {"a": pytest.approx(1 / 4)}
    assert found.largest_ratio == pytest.approx(1 / 4)
    assert found.cross_ratio == pytest.approx(0.5)
    assert found.diagonal_share == pytest.approx(33 / 43)


def test_stochastic_norms_cover_the_truth_and_their_errors_are_calibrated() -> None:
    p = problem(mlp(50, 5, 4, bias=True), "cross_entropy", 50)
    exact = block_norms(p, "neuron").norms
    scores = []
    for seed in range(12):
        found = block_norms(p, "neuron", method="stochastic", probes=40, rng=Rng(seed))
        assert not found.exact
        # Blocks of no more columns than probes are multiplied out instead.
        assert found.products == 40 * 5 + 6 * 4
        np.testing.assert_allclose(found.norms[5:], exact[5:], rtol=1e-9, atol=1e-9 * exact.max())
        assert not found.stderr[5:].any()
        scores.append(((found.norms - exact) / np.where(found.stderr > 0, found.stderr, 1))[:5, :5][np.triu_indices(5)])
    z = np.concatenate(scores)
    assert np.abs(z).max() <= 5.5  # 180 scores, each a mean of 40 skewed squares
    assert 0.8 < np.sqrt(np.mean(z**2)) < 1.25


@pytest.mark.parametrize("probes", [2, 3, 4, 8])
@pytest.mark.parametrize("weights", [(1.0, 1.0), (1.0, 0.5, 0.2), (1.0, 1.0, 1.0)])
def test_blocks_in_which_few_columns_matter_are_not_sure_of_a_chance(weights: tuple[float, ...], probes: int) -> None:
    """Dead inputs leave few columns; random signs gave equal samples there, and with them no error at all."""
    few = torch.zeros(30, dtype=torch.float64)
    few[: len(weights)] = torch.tensor(weights, dtype=torch.float64)
    operator = Dense(torch.outer(few, few), symmetric=True)
    whole = Partition(torch.zeros(30, dtype=torch.long), ("all",), ("all",))
    norm, inside = float(few @ few), []
    for seed in range(200):
        found = block_norms(operator, whole, method="stochastic", probes=probes, rng=seed)
        inside.append(abs(found.norms[0, 0] - norm) <= 2 * found.stderr[0, 0])
    assert np.mean(inside) >= 0.9


@pytest.mark.parametrize("probes", [2, 3, 4, 16])
def test_four_standard_errors_hold_for_hundreds_of_pairs(probes: int) -> None:
    """Blocks from flat to nearly rank one; of some hundreds of pairs by three probes one was five standard errors off."""
    generator = np.random.default_rng(7)
    blocks, size = 24, 20
    bases = [np.linalg.qr(generator.standard_normal((size, size)))[0] for _ in range(blocks)]
    decays = [np.arange(1.0, size + 1) ** -power for power in np.linspace(0, 2, blocks)]
    matrix = np.block(
        [[(bases[i] * (decays[i] * decays[j])) @ bases[j].T for j in range(blocks)] for i in range(blocks)]
    )
    labels = torch.arange(blocks).repeat_interleave(size)
    names = tuple(map(str, range(blocks)))
    whole = Partition(labels, names, names)
    truth = np.array([[np.linalg.norm(a * b) for b in decays] for a in decays])
    scores = []
    for seed in range(3):
        operator = Dense(torch.from_numpy(matrix), symmetric=True)
        found = block_norms(operator, whole, method="stochastic", probes=probes, rng=seed)
        scores.append(((found.norms - truth) / found.stderr)[np.triu_indices(blocks)])
    z = np.concatenate(scores)
    assert np.mean(np.abs(z) > 4) <= 0.003  # of 900, which share their draws
    assert np.mean(np.abs(z) > 2) <= 0.06
    if probes == 16:  # not longer than they must be
        assert np.sqrt(np.mean(z**2)) > 0.6


def test_too_many_columns_are_sampled_but_linear_layers_stay_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    p = convolutional()
    exact = block_norms(p, "neuron")
    monkeypatch.setattr(norms_module, "_EXACT_COLUMNS", 3)
    with pytest.warns(UserWarning, match="20 parameters outside linear layers are estimated, 8 probes"):
        found = block_norms(p, "neuron", probes=8)
    assert not found.exact
    assert found.products == norm_products(p, "neuron", probes=8) == 16
    dense = np.ix_(range(2, 6), range(2, 6))
    np.testing.assert_allclose(found.norms[dense], exact.norms[dense], rtol=1e-9)
    assert (found.stderr[:2] > 0).all()
    assert not found.stderr[dense].any()
    assert (np.abs(found.norms - exact.norms)[:2] <= 4 * found.stderr[:2]).all()


def test_a_vocabulary_is_sent_to_what_can_measure_it(monkeypatch: pytest.MonkeyPatch) -> None:
    p = problem(mlp(1, 50_257), "cross_entropy", 1, 50_257)
    monkeypatch.setattr(norms_module, "free_bytes", lambda device: 16 * 10**9)
    with pytest.raises(InputError, match=r"50257 blocks, 121 GB\. Use output_block_norms"):
        block_norms(p, "class")
    assert output_block_norms(p).diagonal.shape == (50_257,)


def test_output_norms_equal_the_blocks_of_the_whole_layer() -> None:
    p = language("head.weight")
    all_norms = block_norms(p, "class").norms
    found = output_block_norms(language(), "head", pairs=[(0, 3), (2, 2)], sampled=4)
    np.testing.assert_allclose(found.diagonal, np.diagonal(all_norms), rtol=1e-10)
    off = all_norms - np.diag(np.diagonal(all_norms))
    np.testing.assert_allclose(found.off_diagonal, np.sqrt((off**2).sum(1) / 10), rtol=1e-9)
    assert found.pairs[:2].tolist() == [[0, 3], [2, 2]]
    assert (found.pairs[2:, 0] != found.pairs[2:, 1]).all()
    np.testing.assert_allclose(found.pair_norms, all_norms[found.pairs[:, 0], found.pairs[:, 1]], rtol=1e-10)
    assert found.diagonal_share == pytest.approx((np.diagonal(all_norms) ** 2).sum() / (all_norms**2).sum())
    assert found.rows == 30


def test_output_norms_of_squared_error_have_no_other_blocks() -> None:
    found = output_block_norms(problem(mlp(6, 4), "squared_error"), pairs=[(0, 1), (3, 3)])
    assert found.ratio == 0
    assert found.pair_norms[0] == 0
    assert found.pair_norms[1] == found.diagonal[3] > 0


def test_result_is_saved_and_loaded(tmp_path: Any) -> None:
    found = block_norms(problem(mlp(6, 4), "cross_entropy"))
    again = Result.load(found.save(tmp_path / "norms"))
    assert isinstance(again, BlockNorms)
    assert again.ratio == found.ratio
    # A process that never measured norms must know what they are.
    script = f"import hesscope as hs; print(hs.Result.load({str(tmp_path / 'norms')!r}).kind)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "BlockNorms"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda p: block_norms(p, "shape"), "partition must be one of"),
        (lambda p: dense_hessian(p, "fisher"), "matrix must be"),
        (lambda p: block_norms(p, matrix="fisher"), "matrix must be"),
        (lambda p: block_norms(p, method="guess"), "method must be"),
        (lambda p: block_norms(p, probes=1), "probes must be an integer >= 2"),
        (lambda p: block_norms(p, Partition.by("neuron", p.select("0.*"))), "must cover the 50 selected"),
        (lambda p: Partition.of(p, {"first": "0.*"}), "cover every selected parameter"),
        (lambda p: Partition.of(p, {"first": "0.*", "all": "*"}), "must not overlap"),
        (lambda p: Partition.by("head", p), "attention modules"),
        (lambda p: output_block_norms(p, "1"), "must be a linear layer that runs"),
        (lambda p: output_block_norms(p, "seven"), "Linear layers here: 0, 2"),
        (lambda p: output_block_norms(p, "0"), "reach the loss as they are"),
        (lambda p: output_block_norms(p, pairs=[(0, 4)]), "classes in"),
        (lambda p: output_block_norms(problem(mlp(6, 1), "squared_error", classes=1)), "at least 2 classes"),
    ],
)
def test_bad_input_is_explained(call: Any, words: str) -> None:
    p = problem(mlp(6, 5, 4), "cross_entropy")
    with pytest.raises(InputError, match=words):
        call(p)
