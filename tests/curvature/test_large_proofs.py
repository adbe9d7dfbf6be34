"""Proofs of networks with many parameters or long texts: less memory and fewer tokens, the same verdicts."""

from __future__ import annotations

import gc

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hesscope as hs
from curvature.cases import CASES, WrongSquare
from hesscope.curvature.proofs import folding, probing, shortening, trial
from hesscope.curvature.proofs.derivatives import derivative_probe, prove_hessian, prove_jacobian
from hesscope.curvature.proofs.folding import folded, folded_shape
from hesscope.errors import DerivativeError


@pytest.fixture
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "_LARGE", 1)
    monkeypatch.setattr(folding, "LARGE", 128)
    monkeypatch.setattr(trial, "LARGE", 0)
    monkeypatch.setattr(trial, "_AT_ONCE", 64)


@pytest.fixture
def sixteen_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortening, "TOKENS", 16)


class Text(nn.Module):
    """A causal language model with a layer of one's own behind attention; from `switch` tokens on it takes another one."""

    def __init__(self, own: nn.Module, switch: int = 10**6, other: nn.Module | None = None) -> None:
        super().__init__()
        self.embed, self.place, self.mix = nn.Embedding(17, 8), nn.Embedding(60, 8), nn.Linear(8, 24)
        self.own, self.head, self.switch, self.other = own, nn.Linear(8, 17), switch, other

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids) + self.place(torch.arange(ids.shape[1]))
        q, k, v = self.mix(F.layer_norm(x, (8,))).view(*ids.shape, 3, 2, 4).permute(2, 0, 3, 1, 4)
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        own = self.other if self.other is not None and ids.shape[1] >= self.switch else self.own
        out: Tensor = self.head(own(x)).transpose(1, 2)
        return out


class Wrong(nn.Module):
    """A square whose second derivative is half of what it is."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = WrongSquare.apply(x)
        return out


def texts(model: nn.Module, tokens: int = 60) -> hs.Problem:
    x, y = torch.randint(0, 17, (2, 1, tokens), generator=torch.Generator().manual_seed(1))
    return hs.Problem.of(model, "cross_entropy", (x, y))


def wide_tensors() -> int:
    """Bytes of all float64 tensors that are alive."""
    gc.collect()
    found = [t for t in gc.get_objects() if type(t) in (Tensor, nn.Parameter) and t.dtype == torch.float64]
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in found}.values())


@pytest.mark.parametrize("name", list(CASES))
def test_large_networks_are_verified_as_small_ones(name: str, everything_is_large: None) -> None:
    problem = CASES[name](torch.float32).problem
    proof = prove_hessian(problem)
    assert proof.right, str(proof)
    assert proof.gap <= 1e-6
    if problem.has_outputs:
        assert prove_jacobian(problem).gap <= 1e-6


def test_wrong_second_derivatives_of_large_networks_are_seen(everything_is_large: None) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 30), Wrong(), nn.Linear(30, 20), nn.Tanh(), nn.Linear(20, 5))
    problem = hs.Problem.of(model, "cross_entropy", (torch.randn(40, 20), torch.randint(0, 5, (40,))))
    with pytest.raises(DerivativeError, match="1 \\(Wrong\\)"):
        hs.Hessian(problem) @ torch.ones(problem.space.size)


def test_no_copy_in_float64_is_held_for_large_networks(everything_is_large: None) -> None:
    torch.manual_seed(0)
    before = wide_tensors()
    model = nn.Sequential(nn.Linear(50, 80), nn.Tanh(), nn.Linear(80, 10))
    problem = hs.Problem.of(model, "cross_entropy", (torch.randn(40, 50), torch.randint(0, 10, (40,))))
    hs.Hessian(problem) @ torch.ones(problem.space.size)
    hs.GaussNewton(problem) @ torch.ones(problem.space.size)
    assert wide_tensors() - before < problem.space.size  # bytes: an eighth of one copy


@pytest.mark.parametrize("shape", [(7,), (1, 1), (37, 41), (128, 300), (5, 7, 129)])
def test_folded_vectors_have_the_norm_of_the_vector(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "LARGE", 1000)
    torch.manual_seed(0)
    a, b = torch.randn(2, *shape, dtype=torch.float64)
    assert tuple(folded(a).shape) == folded_shape(a)
    assert torch.allclose(folded(a - 2 * b), folded(a) - 2 * folded(b), rtol=1e-12, atol=1e-12)
    assert float(folded(a).norm()) == pytest.approx(float(a.norm()), rel=1e-12 if a.numel() < 1000 else 0.25)
    single = torch.zeros_like(a)
    single.view(-1)[a.numel() // 2] = 1.0
    assert 0.3 < float(folded(single).norm()) < 2.0


def test_long_texts_are_proven_on_their_beginning(sixteen_tokens: None) -> None:
    torch.manual_seed(0)
    problem = texts(Text(nn.Tanh()))
    for proof in (prove_hessian(problem), prove_jacobian(problem)):
        assert proof.right
        assert "on the first 16 of 60 tokens, which take the same operations" in str(proof)
    assert next(iter(derivative_probe(problem).problem.batches))[0].shape == (1, 16)


@pytest.mark.parametrize("tokens", [10, 47])
def test_short_texts_are_proven_whole(tokens: int, sixteen_tokens: None) -> None:
    torch.manual_seed(0)
    assert "tokens" not in str(prove_hessian(texts(Text(nn.Tanh()), tokens)))


def test_an_operation_that_only_long_texts_take_is_part_of_their_proof(sixteen_tokens: None) -> None:
    torch.manual_seed(0)
    proof = prove_hessian(texts(Text(nn.Tanh(), 50, Wrong())))
    assert not proof.right
    assert prove_hessian(texts(Text(nn.Tanh(), 50, Wrong()), 49)).right


def test_a_beginning_without_labels_is_no_text_to_prove_anything_on(sixteen_tokens: None) -> None:
    torch.manual_seed(0)
    x, y = torch.randint(0, 17, (2, 1, 60))
    y[:, :20] = -100
    proof = prove_hessian(hs.Problem.of(Text(nn.Tanh()), nn.CrossEntropyLoss(), (x, y)))
    assert proof.right
    assert "tokens" not in str(proof)
