"""A model that computes its loss itself, checkpointed attention and casts inside: without any package but torch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from hesscope import GaussNewton, Hessian, Problem
from hesscope.errors import InputError


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(4, 12), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 2, 2).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(mixed.transpose(1, 2).flatten(2))


class Language(nn.Module):
    """Predicts the next token and returns its loss, as Hugging Face models do."""

    def __init__(self, checkpointed: bool = False, extra: float = 0.0, casts: bool = False) -> None:
        super().__init__()
        self.checkpointed, self.extra, self.casts = checkpointed, extra, casts
        self.embed, self.attention, self.head = nn.Embedding(5, 4), Attention(), nn.Linear(4, 5)

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> Any:
        x = self.embed(input_ids)
        x = checkpoint(self.attention, x, use_reentrant=False) if self.checkpointed else self.attention(x)
        if self.casts:
            x = x.to(torch.float32).tanh().to(x.dtype)
        logits, loss = self.head(x), None
        if labels is not None:
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
            loss = loss + self.extra * self.embed.weight.square().mean()
        return SimpleNamespace(logits=logits, loss=loss)


def model(**settings: Any) -> Language:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Language(**settings).double()


def batch(length: int = 4, seed: int = 0) -> dict[str, Tensor]:
    ids = torch.randint(0, 5, (3, length), generator=torch.Generator().manual_seed(seed))
    labels = ids.clone()
    labels[0, -1] = -100
    return {"input_ids": ids, "labels": labels}


def truth(network: nn.Module, given: dict[str, Tensor]) -> Tensor:
    wrt = list(network.parameters())
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        loss = network(**given).loss
        first = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, wrt, create_graph=True)])
        rows = [torch.autograd.grad(entry, wrt, retain_graph=True, materialize_grads=True) for entry in first]
    return torch.stack([torch.cat([g.reshape(-1) for g in row]) for row in rows])


def gap(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max())


def test_the_models_own_loss_is_read_from_its_logits() -> None:
    problem = Problem.of(model(), data=batch())
    assert problem.totals[1] == 8
    assert gap(Hessian(problem).dense(), truth(model(), batch())) < 1e-12
    assert problem.has_outputs
    assert float(torch.linalg.eigvalsh(GaussNewton(problem).dense())[0]) > -1e-12


def test_a_term_beside_the_logits_is_kept() -> None:
    problem = Problem.of(model(extra=1e-3), data=[batch()])
    assert not problem.has_outputs
    assert gap(Hessian(problem).dense(), truth(model(extra=1e-3), batch())) < 1e-12


def test_checkpointed_attention_runs_again_under_the_math_kernel() -> None:
    expected = truth(model(), batch())
    for loss in (None, "cross_entropy"):
        problem = Problem.of(model(checkpointed=True), loss, [batch()])
        assert gap(Hessian(problem).dense(), expected) < 1e-12
    original = torch.utils.checkpoint._checkpoint_without_reentrant_generator
    assert original.__module__ == "torch.utils.checkpoint"  # put back


def test_a_float64_model_keeps_its_digits_through_casts() -> None:
    class Plain(Language):
        def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> Any:
            logits = self.head(self.attention(self.embed(input_ids)).tanh())
            shifted = logits[:, :-1].flatten(0, 1), (input_ids if labels is None else labels)[:, 1:].flatten()
            return SimpleNamespace(logits=logits, loss=F.cross_entropy(*shifted))

    plain = Plain().double()
    plain.load_state_dict(model().state_dict())
    problem = Problem.of(model(casts=True), data=[batch()])
    assert gap(Hessian(problem).dense(), truth(plain, batch())) < 1e-12


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"labels": torch.full((3, 4), -100)}, "the data must count for something"),
        ({"labels": torch.full((3, 4), 7)}, r"class labels must lie in \[0, 5\)"),
        ({"labels": None}, "must return a loss when it is given labels"),
        ({"input_ids": torch.full((3, 4), 9)}, "must run on the first batch"),
    ],
)
def test_bad_batches_are_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        _ = Problem.of(model(), data=[{**batch(), **given}]).totals


def test_a_first_batch_without_labels_that_count_says_nothing() -> None:
    empty = {**batch(seed=1), "labels": torch.full((3, 4), -100)}
    found = Problem.of(model(), data=[empty, batch()])
    assert found.totals == pytest.approx(Problem.of(model(), data=[batch()]).totals)


class Masked(Language):
    """Counts what its attention mask does not hide, whatever the labels say."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> Any:  # type: ignore[override]
        logits, loss = self.head(self.attention(self.embed(input_ids))), None
        if labels is not None:
            counted = labels.masked_fill(attention_mask == 0, -100)[:, 1:]
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), counted.flatten())
        return SimpleNamespace(logits=logits, loss=loss)


@pytest.mark.parametrize("where", [0, 1])
def test_a_loss_that_is_another_one_on_later_examples_is_refused(where: int) -> None:
    given = [{**batch(seed=seed), "attention_mask": torch.ones(3, 4, dtype=torch.long)} for seed in (0, 1)]
    made = Masked().double()
    given[where]["attention_mask"][2, 2:] = 0
    with pytest.raises(InputError, match=rf"same function of its logits in all examples.*batch {where}, example 2"):
        Problem.of(made, data=given)
    given[where]["labels"][2, 2:] = -100  # as it should be
    wrong = [{**one, "labels": one["labels"].clone()} for one in given]
    wrong[where]["labels"][2, 1] = 7
    with pytest.raises(InputError, match=r"class labels must lie in \[0, 5\)"):
        _ = Problem.of(made, data=wrong).totals
    problem = Problem.of(made, data=given)
    expected = sum(count * truth(made, one) for count, one in zip(_counts(given), given, strict=True))
    assert gap(Hessian(problem).dense(), expected / sum(_counts(given))) < 1e-12


def _counts(given: list[dict[str, Tensor]]) -> list[int]:
    return [int((one["labels"][:, 1:] != -100).sum()) for one in given]
