"""Files as users write them, at most 15 lines each."""

from __future__ import annotations

MLP = """
import torch, hesscope as hs

def make_problem():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3))
    return hs.Problem.of(model, "cross_entropy", (torch.randn(40, 5), torch.arange(40) % 3))
"""

CNN = """
import torch, hesscope as hs
from torch import nn

def make_problem():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 36, 4))
    return hs.Problem.of(model, nn.CrossEntropyLoss(), (torch.randn(24, 1, 8, 8), torch.arange(24) % 4), freeze=True)
"""

TRANSFORMER = """
import torch, hesscope as hs
from torch import nn

class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(11, 8), nn.Linear(8, 5)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    def forward(self, input_ids, attention_mask):
        return self.head(self.layer(self.embed(input_ids), src_key_padding_mask=attention_mask == 0))

def make_problem():
    torch.manual_seed(0)
    ids, mask = torch.randint(0, 11, (6, 7)), torch.ones(6, 7).long().index_fill_(1, torch.tensor([5, 6]), 0)
    return hs.Problem.of(Tagger(), "cross_entropy", [{"input_ids": ids, "attention_mask": mask, "labels": (ids % 5).where(mask == 1, -100)}], freeze=True)
"""
