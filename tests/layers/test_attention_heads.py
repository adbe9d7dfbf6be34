"""Heads of attention modules as other people write them, told by the entries they own."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from hesscope.layers.attention import head_slices
from hesscope.space import ParameterSpace


class Conv1D(nn.Module):
    """As in transformers: inputs first."""

    def __init__(self, nf: int, nx: int) -> None:
        super().__init__()
        self.nf = nf
        self.weight, self.bias = nn.Parameter(torch.ones(nx, nf)), nn.Parameter(torch.zeros(nf))


class Adapter(nn.Module):
    """As in PEFT: B A beside a base layer."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base_layer = base
        self.lora_A = nn.ModuleDict({"default": nn.Linear(base.in_features, 1, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(1, base.out_features, bias=False)})


def found(module: nn.Module) -> dict[str, Any]:
    slices = head_slices(ParameterSpace.of(dict(module.named_parameters())), module)
    return {name: owner.tolist() for name, (_, owner) in slices.items()}


def test_input_major_projections() -> None:
    module = nn.Module()
    module.num_heads, module.c_attn, module.c_proj = 2, Conv1D(6, 2), Conv1D(2, 2)  # type: ignore[assignment]
    owners = found(module)
    assert owners["c_attn.weight"] == [[0, 1, 2, 3, 4, 5]] * 2
    assert owners["c_attn.bias"] == [0, 1, 2, 3, 4, 5]
    assert owners["c_proj.weight"] == [[0, 0], [1, 1]]
    assert "c_proj.bias" not in owners


def test_adapters_around_grouped_heads() -> None:
    module = nn.Module()
    module.head_dim, module.num_heads = 1, 2  # type: ignore[assignment]
    module.q_proj, module.k_proj = Adapter(nn.Linear(2, 2, bias=False)), nn.Linear(2, 1, bias=False)
    module.o_proj = Adapter(nn.Linear(2, 2, bias=False))
    owners = found(module)
    assert owners["q_proj.base_layer.weight"] == [[0, 0], [1, 1]]
    assert owners["q_proj.lora_B.default.weight"] == [[0], [1]]
    assert owners["k_proj.weight"] == [[0, 0]]
    assert owners["o_proj.lora_A.default.weight"] == [[0, 1]]
    assert {"q_proj.lora_A.default.weight", "o_proj.lora_B.default.weight"}.isdisjoint(owners)


def test_an_output_projection_beside_the_attention() -> None:
    block, attention, output = nn.Module(), nn.Module(), nn.Module()
    attention.num_attention_heads, attention.query = 2, nn.Linear(2, 2)  # type: ignore[assignment]
    output.dense = nn.Linear(2, 2)
    block.self, block.output = attention, output
    owners = found(block)
    assert owners["self.query.weight"] == [[0, 0], [1, 1]]
    assert owners["output.dense.weight"] == [[0, 1], [0, 1]]
