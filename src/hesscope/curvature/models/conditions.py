"""How a network must run so that it can be differentiated twice, also where parts of it run again in a backward pass."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
import torch.utils.checkpoint as checkpointing
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils import parametrize

from ..gradient_mode import differentiable
from .attention import ClosedFormAttention
from .recurrent_kernels import plain_recurrent_kernels
from .replaced_operations import plain_operations
from .wide_precision import InFloat64


@contextmanager
def running(model: nn.Module, wide: bool, attends: bool = False) -> Iterator[None]:
    """Math attention and plain recurrent kernels (the fused ones have no second derivative), no other way through encoders
    in evaluation, plain operations, compiled parts as they were written; with `wide`, casts to float32 stay in float64; where the network `attends`, scores of
    long sequences are not kept. Checkpointed parts run again under the same conditions."""

    def modes() -> ExitStack:
        stack = ExitStack()
        stack.enter_context(differentiable())
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(_attention_as_trained())
        stack.enter_context(_parametrized_anew())
        stack.enter_context(plain_operations(model))
        stack.enter_context(plain_recurrent_kernels(model))
        if attends:
            stack.enter_context(ClosedFormAttention())
        if wide:
            stack.enter_context(InFloat64())
        if "torch._dynamo" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        return stack

    with modes(), _recomputed_under(modes):
        yield


@contextmanager
def _attention_as_trained() -> Iterator[None]:
    """Where nothing requires a gradient, torch's encoders take a way of their own, on which padded positions become zero:
    another function than the one that is trained."""
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)


@contextmanager
def _parametrized_anew() -> Iterator[None]:
    """Inside `torch.nn.utils.parametrize.cached()` weights would stay those of the parameters that came first."""
    enabled, cache = parametrize._cache_enabled, parametrize._cache
    parametrize._cache_enabled, parametrize._cache = 0, {}
    try:
        yield
    finally:
        parametrize._cache_enabled, parametrize._cache = enabled, cache


class _Again:
    """A context that can be entered as often as something is computed again."""

    def __init__(self, modes: Callable[[], ExitStack], inner: AbstractContextManager[Any]) -> None:
        self._modes, self._inner = modes, inner
        self._open: list[ExitStack] = []

    def __enter__(self) -> None:
        stack = self._modes()
        stack.enter_context(self._inner)
        self._open.append(stack)

    def __exit__(self, *error: Any) -> Any:
        return self._open.pop().__exit__(*error)


@contextmanager
def _recomputed_under(modes: Callable[[], ExitStack]) -> Iterator[None]:
    """`torch.utils.checkpoint` runs a part again when a gradient needs it, long after we have left: what it runs under
    then is decided while it runs first, and torch asks no one but the caller of `checkpoint`."""
    name = "_checkpoint_without_reentrant_generator"
    original = getattr(checkpointing, name, None)
    if original is None:
        yield  # a torch that does it otherwise: the proof of derivatives tells whether it is right
        return

    def generator(
        function: Any, preserve: Any = True, context_fn: Any = None, check: Any = "default", debug: Any = False, *rest: Any,
        **named: Any,
    ) -> Any:  # fmt: skip
        given = context_fn or checkpointing.noop_context_fn

        def contexts() -> tuple[Any, Any]:
            forward, recompute = given()
            return forward, _Again(modes, recompute)

        return original(function, preserve, given if debug else contexts, check, debug, *rest, **named)

    setattr(checkpointing, name, generator)
    try:
        yield
    finally:
        setattr(checkpointing, name, original)
