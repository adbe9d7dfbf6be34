"""Hugging Face checkpoints from local folders, and text as batches for them."""

from __future__ import annotations

from .checkpoints import load_model as load_model
from .checkpoints import load_tokenizer as load_tokenizer
from .problems import problem_of as problem_of
from .text import load_tokens as load_tokens
from .text import token_batches as token_batches
