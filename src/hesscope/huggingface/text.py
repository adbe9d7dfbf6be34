"""Text as batches of tokens with labels, as causal and masked language models take them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..arguments import need_count
from ..errors import refuse
from ..operators.tensors import tensor_of
from ..rng import Rng

_MASKED = 0.15  # of the tokens, as BERT was trained
_IGNORED = -100  # what the models leave out of their loss
LENGTH, BATCH, SEQUENCES = 128, 8, 32


def load_tokens(file: str | os.PathLike[str], tokenizer: Any = None) -> Tensor:
    """The tokens of a text file, or of the whole numbers in a .npy or .npz (its array `tokens`, or its only one)."""
    path = Path(file)
    if not path.is_file():
        refuse("the text must be a file", f"{str(path)!r}", "Check the path.")
    if path.suffix in (".npy", ".npz"):
        return _numbers(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        refuse("a text file must be UTF-8", f"{path.name}", "Convert it, or give token numbers as a .npy file.")
    if tokenizer is None:
        refuse("text needs a tokenizer", "none", "Pass the model's own: AutoTokenizer.from_pretrained(folder).")
    ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return torch.tensor(ids, dtype=torch.int64, device="cpu")


def _numbers(path: Path) -> Tensor:
    try:
        with open(path, "rb") as file:
            loaded = np.load(file, allow_pickle=False)
            arrays = {"tokens": loaded} if isinstance(loaded, np.ndarray) else {n: loaded[n] for n in loaded.files}
    except Exception as error:
        refuse("a file of tokens must be a NumPy file", f"{path.name}: {error}", "Write it with numpy.save.")
    found = arrays.get("tokens", next(iter(arrays.values())) if len(arrays) == 1 else None)
    if found is None or not np.issubdtype(found.dtype, np.integer):
        got = "no array called 'tokens'" if found is None else f"{found.dtype}"
        refuse("tokens must be whole numbers", got, "Write them with numpy.savez(path, tokens=array).")
    return torch.from_numpy(found.astype(np.int64).reshape(-1))


def token_batches(
    tokens: Tensor | Sequence[int],
    *,
    length: int = LENGTH,
    sequences: int = SEQUENCES,
    batch_size: int = BATCH,
    mask_token: int | None = None,
) -> list[dict[str, Tensor]]:
    """Sequences of `length` tokens, spread evenly over the whole, in batches with labels.

    Labels are the tokens themselves, as causal models take them. With `mask_token` 15 % of the tokens (drawn once, by
    a fixed seed) are replaced by it, and only those are labelled, as masked models take them.
    """
    ids = tensor_of(tokens).to(torch.int64).reshape(-1)
    length, sequences = need_count("length", length), need_count("sequences", sequences)
    batch_size = need_count("batch_size", batch_size)
    if length < 2:
        refuse("sequences must have at least 2 tokens", f"length {length}", "The first one has nothing before it.")
    if len(ids) < length:
        refuse(
            f"the text must have at least {length} tokens, one sequence",
            f"{len(ids)}",
            "Give more text, or a smaller length.",
        )
    count = min(sequences, len(ids) // length)
    starts = torch.linspace(0, len(ids) - length, count, dtype=torch.float64, device="cpu").round().long()
    rows = torch.stack([ids[start : start + length] for start in starts.tolist()])
    labels = rows.clone()
    if mask_token is not None:
        hidden = (
            torch.rand(rows.shape, generator=Rng(0).child("masked tokens").torch(), dtype=torch.float32, device="cpu")
            < _MASKED
        )
        hidden[:, 0] |= ~hidden.any(1)
        labels, rows = rows.where(hidden, _IGNORED), rows.masked_fill(hidden, mask_token)
    return [
        {"input_ids": rows[a : a + batch_size], "labels": labels[a : a + batch_size]}
        for a in range(0, count, batch_size)
    ]
