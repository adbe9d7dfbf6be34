"""Tiny models of transformers with random weights, batches for each, and the dense truth of their own loss."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import peft
import torch
import transformers as tf
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

VOCABULARY = 6
Batch = dict[str, Tensor]


class AllInFloat64(TorchFunctionMode):
    """Casts to float32 inside the models ("to avoid precision issues") would leave a truth of seven digits."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = {k: torch.float64 if v is torch.float32 else v for k, v in (kwargs or {}).items()}
        plain = tuple(torch.float64 if a is torch.float32 else a for a in args)
        result = plain[0].double() if func is Tensor.float else func(*plain, **named)
        return result.double() if isinstance(result, Tensor) and result.dtype == torch.float32 else result


@contextmanager
def exactly() -> Any:
    with AllInFloat64(), sdpa_kernel(SDPBackend.MATH):
        yield


def seeded(make: Callable[[], nn.Module], std: float = 0.4) -> Any:
    """The model in float64 with weights of a size at which everything matters."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = make()
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=std)
    return model.double()


def tokens(examples: int, length: int, seed: int) -> Tensor:
    return torch.randint(1, VOCABULARY, (examples, length), generator=torch.Generator().manual_seed(seed))


def text(examples: int, seed: int, length: int = 4) -> Batch:
    """Next-token batches whose first sequence is padded."""
    ids = tokens(examples, length, seed)
    mask = torch.ones_like(ids)
    mask[0, -1:] = 0
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def masked(examples: int, seed: int) -> Batch:
    batch = text(examples, seed)
    batch["labels"] = batch["labels"].where(tokens(examples, 4, seed + 50) > 2, -100)
    return batch


def labelled(labels: Callable[[int], Tensor]) -> Callable[[int, int], Batch]:
    def make(examples: int, seed: int) -> Batch:
        ids = tokens(examples, 4, seed)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels(examples)}

    return make


def translated(examples: int, seed: int) -> Batch:
    batch = text(examples, seed, 3)
    target = tokens(examples, 3, seed + 9)
    target[0, -1] = -100
    return {**batch, "labels": target}


def pictures(examples: int, seed: int) -> Batch:
    x = torch.randn(examples, 1, 4, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return {"pixel_values": x, "labels": torch.arange(examples) % 3}


def gpt2(**more: Any) -> Any:
    config = tf.GPT2Config(
        vocab_size=VOCABULARY, n_positions=5, n_embd=4, n_layer=1, n_head=2, n_inner=3, bos_token_id=0, eos_token_id=0,
        pad_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **more,
    )  # fmt: skip
    return tf.GPT2LMHeadModel(config)


_LLAMA = {
    "vocab_size": VOCABULARY, "hidden_size": 4, "intermediate_size": 3, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 8, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0,
}  # fmt: skip


def llama(**more: Any) -> Any:
    return tf.LlamaForCausalLM(tf.LlamaConfig(**{**_LLAMA, **more}))


def mistral() -> Any:
    return tf.MistralForCausalLM(tf.MistralConfig(**_LLAMA, sliding_window=2, tie_word_embeddings=True))


def lora(**more: Any) -> Any:
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj", "o_proj"], task_type="CAUSAL_LM", **more)
    return peft.get_peft_model(llama(), config)


def bert(kind: str, **more: Any) -> Any:
    config = tf.BertConfig(
        vocab_size=VOCABULARY, hidden_size=4, num_hidden_layers=1, num_attention_heads=2, intermediate_size=1,
        max_position_embeddings=5, type_vocab_size=1, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **more,
    )  # fmt: skip
    return getattr(tf, f"BertFor{kind}")(config)


def roberta() -> Any:
    """Its first position is the third row of the table: two go to padding."""
    config = tf.RobertaConfig(
        vocab_size=VOCABULARY, hidden_size=4, num_hidden_layers=1, num_attention_heads=2, intermediate_size=1, pad_token_id=1,
        max_position_embeddings=7, type_vocab_size=1, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return tf.RobertaForMaskedLM(config)


def t5() -> Any:
    config = tf.T5Config(
        vocab_size=VOCABULARY, d_model=2, d_kv=2, d_ff=2, num_layers=1, num_heads=2, dropout_rate=0.0,
        relative_attention_num_buckets=4, decoder_start_token_id=0, pad_token_id=0,
    )  # fmt: skip
    return tf.T5ForConditionalGeneration(config)


def vit() -> Any:
    config = tf.ViTConfig(
        hidden_size=4, num_hidden_layers=1, num_attention_heads=2, intermediate_size=3, image_size=4, patch_size=2,
        num_channels=1, num_labels=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return tf.ViTForImageClassification(config)


def _after_first(batch: Batch) -> float:
    return float((batch["labels"][:, 1:] != -100).sum())


def _labelled_tokens(batch: Batch) -> float:
    return float((batch["labels"] != -100).sum())


def _numbers(batch: Batch) -> float:
    return float(batch["labels"].numel())


@dataclass(frozen=True)
class Case:
    """A model, how its batches are made, what a mean over one of them counts, and how its loss bends in its outputs."""

    make: Callable[[], Any]
    batch: Callable[[int, int], Batch]
    count: Callable[[Batch], float]


def _classes(n: int) -> Tensor:
    return torch.arange(n) % 3


def _yes_or_no(n: int) -> Tensor:
    return ((torch.arange(3 * n) % 2) == 0).double().view(n, 3)


def _real(n: int) -> Tensor:
    return torch.linspace(-1, 1, n, dtype=torch.float64)


CASES = {
    "gpt2, tied": Case(gpt2, text, _after_first),
    "llama, grouped heads": Case(llama, text, _after_first),
    "mistral, sliding window": Case(mistral, text, _after_first),
    "llama with LoRA": Case(lora, text, _after_first),
    "bert, masked words": Case(lambda: bert("MaskedLM"), masked, _labelled_tokens),
    "bert, one label": Case(
        lambda: bert("SequenceClassification", num_labels=3), labelled(_classes), _labelled_tokens
    ),
    "bert, many labels": Case(
        lambda: bert("SequenceClassification", num_labels=3, problem_type="multi_label_classification"),
        labelled(_yes_or_no), _numbers,
    ),
    "bert, a number": Case(
        lambda: bert("SequenceClassification", num_labels=1, problem_type="regression"), labelled(_real), _numbers
    ),
    "bert, labelled tokens": Case(lambda: bert("TokenClassification", num_labels=3), lambda n, s: {
        **masked(n, s), "labels": masked(n, s)["labels"].where(masked(n, s)["labels"] < 0, masked(n, s)["labels"] % 3)
    }, _labelled_tokens),
    "t5": Case(t5, translated, _labelled_tokens),
    "vit": Case(vit, pictures, _labelled_tokens),
}  # fmt: skip


def batches_of(case: Case) -> list[Batch]:
    """Two batches of different size, so that a mean of means is another number."""
    return [case.batch(2, 0), case.batch(3, 1)]


def trained(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad]


def true_loss(model: Any, case: Case, batches: list[Batch]) -> Tensor:
    """The model's own loss, averaged over everything that counts."""
    counts = [case.count(batch) for batch in batches]
    with exactly():
        parts = [model(**batch).loss * count for batch, count in zip(batches, counts, strict=True)]
    return torch.stack(parts).sum() / sum(counts)


def rows_of(vector: Tensor, wrt: list[nn.Parameter]) -> Tensor:
    """d vector / d wrt, one backward pass for each entry."""
    rows = []
    for entry in vector:
        found = torch.autograd.grad(entry, wrt, retain_graph=True, allow_unused=True, materialize_grads=True)
        rows.append(torch.cat([g.reshape(-1) for g in found]).detach())
    return torch.stack(rows)


def dense_truth(model: Any, case: Case, batches: list[Batch]) -> tuple[float, Tensor]:
    """The loss and its Hessian by double backward."""
    wrt = trained(model)
    loss = true_loss(model, case, batches)
    first = torch.autograd.grad(loss, wrt, create_graph=True, allow_unused=True, materialize_grads=True)
    return float(loss.detach()), rows_of(torch.cat([g.reshape(-1) for g in first]), wrt)


def dense_gauss_newton(model: Any, case: Case, batches: list[Batch]) -> Tensor:
    """Jᵀ (∂²L/∂z²) J with z the logits that the model computes, and L its own loss as a function of them."""
    wrt = trained(model)
    size = sum(p.numel() for p in wrt)
    total = torch.zeros(size, size, dtype=torch.float64)
    items = sum(case.count(batch) for batch in batches)
    for batch in batches:
        with exactly():
            outputs = model(**batch)
            logits, loss = outputs.logits, outputs.loss * case.count(batch) / items
        jacobian = rows_of(logits.reshape(-1), wrt)
        (slope,) = torch.autograd.grad(loss, logits, create_graph=True)
        bends = [
            torch.autograd.grad(s, logits, retain_graph=True, allow_unused=True, materialize_grads=True)[0].reshape(-1)
            for s in slope.reshape(-1)
        ]
        total += jacobian.T @ torch.stack(bends).detach() @ jacobian
    return total
