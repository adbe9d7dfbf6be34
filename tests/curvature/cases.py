"""Small problems of every kind, each with its loss written out independently of the library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hesscope as hs


@dataclass
class Case:
    """A problem and the same loss over all data as one plain torch function of a state dict."""

    model: nn.Module
    problem: hs.Problem
    loss: Callable[[dict[str, Tensor]], Tensor]


class WrongSquare(torch.autograd.Function):
    """x² with a backward that forgets that it depends on x: first derivatives right, second ones silently zero."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.x = x.detach()
        return x * x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return 2 * ctx.x * grads[0]


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """Causal, LayerNorm, padding mask, tied embeddings; returns logits with the classes last."""

    def __init__(self, vocabulary: int = 7, width: int = 4, length: int = 5) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.randn(length, width))
        self.block = Block(width, 2)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        length = input_ids.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        mask = causal & attention_mask[:, None, None, :].bool()
        mask = mask | torch.eye(length, dtype=torch.bool)
        return self.head(self.norm(self.block(self.embed(input_ids) + self.position[:length], mask)))


def _call(model: nn.Module, state: dict[str, Tensor], *args: Any, **kwargs: Any) -> Tensor:
    return torch.func.functional_call(model, state, args, kwargs)


def mlp(dtype: torch.dtype = torch.float64) -> Case:
    """tanh, mean cross-entropy, ragged batches from a loader without shuffling."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 4)).to(dtype)
    x, y = torch.randn(23, 5, dtype=dtype), torch.randint(0, 4, (23,))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=7)
    return Case(
        model, hs.Problem.of(model, nn.CrossEntropyLoss(), loader), lambda s: F.cross_entropy(_call(model, s, x), y)
    )


def relu_regression(dtype: torch.dtype = torch.float64) -> Case:
    """ReLU, mean squared error, one tensor pair cut in uneven batches."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)).to(dtype)
    x, y = torch.randn(17, 3, dtype=dtype), torch.randn(17, 2, dtype=dtype)
    problem = hs.Problem.of(model, "mse", (x, y), batch_size=6)
    return Case(model, problem, lambda s: F.mse_loss(_call(model, s, x), y))


def cnn(dtype: torch.dtype = torch.float64) -> Case:
    """Convolution, batch-norm in eval mode with real statistics, pooling, class weights and label smoothing."""
    torch.manual_seed(2)
    model = nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3), nn.GELU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 4)
    ).to(dtype)
    x, y = torch.randn(11, 2, 4, 4, dtype=dtype), torch.randint(0, 4, (11,))
    model(x)  # fills the running statistics
    model.eval()
    weight = torch.tensor([0.2, 1.0, 2.0, 0.7], dtype=dtype)
    loss = nn.CrossEntropyLoss(weight=weight, label_smoothing=0.1)
    problem = hs.Problem.of(model, loss, [(x[:4], y[:4]), (x[4:], y[4:])])
    buffers = dict(model.named_buffers())
    return Case(model, problem, lambda s: loss(_call(model, {**s, **buffers}, x), y))


def transformer(dtype: torch.dtype = torch.float64) -> Case:
    """Padded tokens in dict batches of different lengths, tied embeddings, ignore_index."""
    torch.manual_seed(3)
    model = Transformer().to(dtype)
    batches = []
    for rows, length in ((2, 5), (3, 3)):
        ids = torch.randint(0, 7, (rows, length))
        mask = torch.ones(rows, length, dtype=torch.long)
        mask[0, length - 1 :] = 0
        labels = torch.where(mask.bool(), torch.randint(0, 7, (rows, length)), -100)
        batches.append({"input_ids": ids, "attention_mask": mask, "labels": labels})
    loss = nn.CrossEntropyLoss(ignore_index=-100)

    def plain(state: dict[str, Tensor]) -> Tensor:
        total, count = torch.zeros((), dtype=dtype), 0
        for batch in batches:
            with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
                logits = _call(model, state, batch["input_ids"], batch["attention_mask"])
            total = total + F.cross_entropy(logits.transpose(1, 2), batch["labels"], reduction="sum")
            count += int((batch["labels"] != -100).sum())
        return total / count

    return Case(model, hs.Problem.of(model, loss, batches), plain)


def logistic(dtype: torch.dtype = torch.float64) -> Case:
    """Multi-label logits with positive weights, summed."""
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(3, 4), nn.Softplus(), nn.Linear(4, 2)).to(dtype)
    x, y = torch.randn(9, 3, dtype=dtype), torch.rand(9, 2, dtype=dtype).round()
    loss = nn.BCEWithLogitsLoss(pos_weight=torch.tensor([2.0, 0.5], dtype=dtype), reduction="sum")
    return Case(model, hs.Problem.of(model, loss, (x, y)), lambda s: loss(_call(model, s, x), y))


def huber(dtype: torch.dtype = torch.float64) -> Case:
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(3, 4), nn.SiLU(), nn.GroupNorm(2, 4), nn.Linear(4, 2)).to(dtype)
    x, y = torch.randn(9, 3, dtype=dtype), 2 * torch.randn(9, 2, dtype=dtype)
    return Case(
        model,
        hs.Problem.of(model, nn.HuberLoss(delta=0.7), (x, y)),
        lambda s: F.huber_loss(_call(model, s, x), y, delta=0.7),
    )


def custom(dtype: torch.dtype = torch.float64) -> Case:
    """loss(model, batch) -> (sum, count) with an own weighting."""
    torch.manual_seed(6)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).to(dtype)
    x, w = torch.randn(10, 3, dtype=dtype), torch.rand(10, dtype=dtype)

    def loss(net: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        inputs, weights = batch
        return (weights * net(inputs).squeeze(-1) ** 4).sum(), weights.sum()

    problem = hs.Problem.of(model, loss, [(x[:3], w[:3]), (x[3:], w[3:])])
    return Case(model, problem, lambda s: (w * _call(model, s, x).squeeze(-1) ** 4).sum() / w.sum())


CASES: dict[str, Callable[..., Case]] = {
    f.__name__: f for f in (mlp, relu_regression, cnn, transformer, logistic, huber, custom)
}


def dense_hessian(case: Case) -> Tensor:
    """The truth: double backward, one row at a time, of the loss written out."""
    leaves = {name: p.detach().clone().requires_grad_() for name, p in case.model.named_parameters()}
    wrt = list(leaves.values())
    gradients = torch.autograd.grad(case.loss(leaves), wrt, create_graph=True, materialize_grads=True)
    flat = torch.cat([g.reshape(-1) for g in gradients])
    rows = [
        torch.cat([h.reshape(-1) for h in torch.autograd.grad(entry, wrt, retain_graph=True, materialize_grads=True)])
        for entry in flat
    ]
    return torch.stack(rows)
