"""Dict batches as Hugging Face models take them: run with labels, run without, and say what is wrong with a batch."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from ...errors import HesscopeError, refuse
from ..engines.memory import is_out_of_memory

ANSWERS = ("labels", "start_positions", "end_positions")  # what a loss compares with, and outputs do not need
AVERAGED_OVER = "num_items_in_batch"  # what a trainer divides the sum of several batches by


def takes_labels(model: nn.Module) -> bool:
    """Whether labels can be handed to the model at all."""
    parameters = inspect.signature(model.forward).parameters.values()
    return any(p.name in ANSWERS or p.kind is p.VAR_KEYWORD for p in parameters)


def without_answers(batch: Mapping[str, Any], *more: str) -> dict[str, Any]:
    """The inputs of a model."""
    return {name: value for name, value in batch.items() if name not in (*ANSWERS, AVERAGED_OVER, *more)}


@contextmanager
def with_graph(model: nn.Module) -> Iterator[None]:
    """Outputs are connected to the parameters inside the block, also where only a value was asked for."""
    off = [p for p in model.parameters() if p.is_floating_point() and p.is_leaf]
    off = [] if any(p.requires_grad for p in model.parameters()) else off
    try:
        for tensor in off:
            tensor.requires_grad_()
        yield
    finally:
        for tensor in off:
            tensor.requires_grad_(False)


def run_with_answers(model: nn.Module, batch: Mapping[str, Any]) -> Any:
    """What the model makes of inputs and labels together."""
    return _run(model, {name: value for name, value in batch.items() if name != AVERAGED_OVER})


def run_without_answers(model: nn.Module, batch: Mapping[str, Any], *more: str) -> Any:
    """What the model makes of the inputs; a decoder is given the labels it would have made its inputs from."""
    inputs = without_answers(batch, *more)
    prepare = getattr(model, "prepare_decoder_input_ids_from_labels", None)
    if prepare is not None and "labels" in batch and not {"decoder_input_ids", "decoder_inputs_embeds"} & set(inputs):
        inputs["decoder_input_ids"] = prepare(labels=batch["labels"])
    return _run(model, inputs)


def field(outputs: Any, name: str) -> Tensor | None:
    """A named tensor of what a model returned."""
    found = outputs.get(name) if isinstance(outputs, Mapping) else getattr(outputs, name, None)
    return found if isinstance(found, Tensor) else None


def logits_of(outputs: Any) -> Any:
    """The logits of a model's output, or the output itself where it is a tensor."""
    if isinstance(outputs, Tensor):
        return outputs
    found = field(outputs, "logits")
    if found is None:
        _refuse_without("logits", outputs)
    return found


def _refuse_without(what: str, outputs: Any) -> None:
    names = list(outputs) if isinstance(outputs, Mapping) else []
    got = f"a {type(outputs).__name__}" + (f" of {', '.join(map(str, names))}" if names else "")
    refuse(
        f"the model must return {what}",
        got,
        "Take the model with its head (AutoModelForCausalLM, ...ForSequenceClassification, ...), or pass "
        "forward=lambda model, batch: (outputs, targets).",
    )


def need_own_loss(outputs: Any, batch: Mapping[str, Any]) -> Tensor:
    """The loss that a model returned, or why it has none."""
    loss = field(outputs, "loss")
    if loss is None and not any(name in batch for name in ANSWERS):
        refuse(
            "batches must have labels where the loss is the model's own",
            f"a batch of {', '.join(map(str, batch))}",
            "Add batch['labels'] (for next-token prediction a copy of input_ids, with -100 at padding).",
        )
    if loss is None:
        _refuse_without("a loss when it is given labels", outputs)
    assert loss is not None
    if loss.numel() != 1:
        refuse("the model's own loss must be one number", f"shape {tuple(loss.shape)}", "Pass loss= and forward=.")
    return loss.reshape(())


def _run(model: nn.Module, inputs: dict[str, Any]) -> Any:
    for name, value in inputs.items():
        if isinstance(value, list | tuple) and value and not any(isinstance(part, Tensor) for part in value):
            refuse(
                f"batches must hold tensors; {name!r} must be one",
                f"a {type(value).__name__}",
                "Pass return_tensors='pt' to the tokenizer, or a collator to the DataLoader.",
            )
    try:
        return model(**inputs)
    except HesscopeError:
        raise
    except Exception as error:
        if not is_out_of_memory(error):
            _explain(model, inputs, error)
        raise


def _explain(model: nn.Module, inputs: Mapping[str, Any], error: Exception) -> None:
    """Refuse in words of their own the mistakes that models report as an index or a shape."""
    rows = _rows_of_embedding(model)
    for name in ("input_ids", "decoder_input_ids"):
        ids = inputs.get(name)
        if not isinstance(ids, Tensor) or ids.is_floating_point() or not ids.numel():
            continue
        low, high = int(ids.min()), int(ids.max())
        if rows is not None and (low < 0 or high >= rows):
            refuse(
                f"tokens in {name} must lie in [0, {rows}), the vocabulary of the model",
                f"tokens from {low} to {high}",
                "Use the tokenizer of this model, or call model.resize_token_embeddings(size) before training.",
            )
        positions = positions_of(model)
        if positions is not None and ids.shape[-1] > positions:
            refuse(
                f"sequences must have at most {positions} tokens, the positions of the model",
                f"{ids.shape[-1]} tokens in {name}",
                f"Cut them: tokenizer(..., truncation=True, max_length={positions}).",
            )
    for name, table in (("token_type_ids", "token_type_embeddings"), ("position_ids", "position_embeddings")):
        _refuse_beyond(model, inputs.get(name), name, table)
    if isinstance(error, TypeError) and "unexpected keyword argument" in str(error):
        refuse(
            "every entry of a batch must be an argument of the model",
            f"{type(error).__name__}: {error}",
            "Leave the entry out in the collator, or pass forward=.",
        )


def _refuse_beyond(model: nn.Module, ids: Any, name: str, table: str) -> None:
    found = [part for path, part in model.named_modules() if path.rpartition(".")[2] == table]
    rows = min((len(part.weight) for part in found if isinstance(part, nn.Embedding)), default=None)
    if (
        rows is None
        or not isinstance(ids, Tensor)
        or not ids.numel()
        or (int(ids.min()) >= 0 and int(ids.max()) < rows)
    ):
        return
    refuse(
        f"{name} must lie in [0, {rows}), the rows of the model's {table}",
        f"{int(ids.min())} to {int(ids.max())}",
        "Leave them out of the batch, or make them with the tokenizer of this model.",
    )


def _rows_of_embedding(model: nn.Module) -> int | None:
    try:
        return len(model.get_input_embeddings().weight)  # type: ignore[operator]
    except (AttributeError, NotImplementedError, TypeError):
        return None


def positions_of(model: nn.Module) -> int | None:
    """How many tokens a sequence may have, as the model's configuration says; None where it does not.

    A table of positions with a row for padding (RoBERTa's) begins to count behind that row.
    """
    config = getattr(model, "config", None)
    found = next((n for key in ("max_position_embeddings", "n_positions") if (n := getattr(config, key, None))), None)
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        return None
    tables = (part for name, part in model.named_modules() if name.rpartition(".")[2] == "position_embeddings")
    padded = [table.padding_idx for table in tables if isinstance(table, nn.Embedding) and len(table.weight) == found]
    return found - max((place + 1 for place in padded if place is not None), default=0)
