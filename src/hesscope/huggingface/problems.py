"""The problem of a checkpoint folder on a text file."""

from __future__ import annotations

import os
from pathlib import Path

from torch import nn

from ..arguments import need_count
from ..curvature import Problem
from ..curvature.models.inputs import positions_of
from ..errors import refuse
from .checkpoints import load_model, load_tokenizer
from .text import BATCH, LENGTH, SEQUENCES, load_tokens, token_batches


def problem_of(
    folder: str | os.PathLike[str],
    text: str | os.PathLike[str],
    *,
    length: int | None = None,
    sequences: int = SEQUENCES,
    batch_size: int = BATCH,
    memory: float | str | None = None,
) -> Problem:
    """The problem of a checkpoint folder on the text of a file (or on a .npy/.npz of token numbers), in eval mode.

    `memory`: what kept graphs may hold, as in `Problem.of`; a smaller `batch_size` takes less for each that is not kept.
    """
    model = load_model(folder)
    length = _length(model, length)
    found = load_tokens(text, None if Path(text).suffix in (".npy", ".npz") else load_tokenizer(folder))
    masked = _kind(model) == "masked"
    mask = _mask_token(folder) if masked else None
    batches = token_batches(found, length=length, sequences=sequences, batch_size=batch_size, mask_token=mask)
    return Problem.of(model, data=batches, memory=memory)


def _kind(model: nn.Module) -> str:
    names = [type(part).__name__ for part in model.modules()]
    if any(name.endswith(("ForMaskedLM", "ForPreTraining")) for name in names):
        return "masked"
    if any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in names):
        return "causal"
    refuse(
        "a model that is given text alone must predict the next token, or masked ones",
        f"{names[0]}",
        "Labels of another kind need file.py:make_problem, which returns hs.Problem.of(model, data=batches).",
    )


def _mask_token(folder: str | os.PathLike[str]) -> int:
    found = getattr(load_tokenizer(folder), "mask_token_id", None)
    if found is None:
        refuse("the tokenizer of a masked model must have a mask token", "none", "Set tokenizer.mask_token.")
    return int(found)


def _length(model: nn.Module, length: int | None) -> int:
    most = positions_of(model)
    if length is None:
        return min(LENGTH, most) if most else LENGTH
    if most is not None and need_count("length", length) > most:
        refuse(f"sequences must have at most {most} tokens, the positions of the model", f"{length}", "Give fewer.")
    return length
