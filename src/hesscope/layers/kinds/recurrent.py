"""Recurrent layers: their weights act at every step on what earlier steps left, so they are not affine in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .base import Kind, Roles


class Recurrent(Kind):
    """LSTM, GRU and plain recurrent layers; known by name so that their rows count as neurons, never taken as exact."""

    name = "recurrent"
    functions = (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu, torch.lstm_cell, torch.gru_cell)
    modules = (nn.RNNBase, nn.RNNCellBase)

    def roles(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Roles | None:
        return None
