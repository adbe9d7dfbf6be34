"""What the experiments on language models are made of: pieces of text, a GPT with its twin, and forced attention sinks."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch

from hesscope.curvature import Problem
from hesscope.errors import InputError
from hesscope.experiments.cracking.fig6 import bias_for
from hesscope.experiments.dong2025.referee import MEASURES, _judged, labels, partitions, rank_correlation
from hesscope.zoo.gpt import SmallGPT
from hesscope.zoo.pieces import Pieces
from hesscope.zoo.pretraining import NanoGPT, windows
from hesscope.zoo.stories import Stories

TEXT = "the cat and the hat, the cat that sat\non the mat; and then that fat rat\nsat there, too"


def _joined_by_counting_anew(text: str, count: int) -> list[tuple[str, str]]:
    """The definition: before every join all pairs of the text are counted again, words apart."""
    words = [[*word] for word in text.replace("\n", "\0\n\0").replace(" ", "\0 ").split("\0")]
    joined = []
    for _ in range(count):
        pairs = Counter(pair for word in words for pair in pairwise(word))
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        joined.append(best)
        for word in words:
            place = 0
            while place < len(word) - 1:
                if (word[place], word[place + 1]) == best:
                    word[place : place + 2] = ["".join(best)]
                place += 1
    return joined


def test_pieces_are_the_most_frequent_pairs_and_give_the_text_back() -> None:
    letters = len(set(TEXT))
    pieces = Pieces.learn(TEXT, letters + 20)
    assert list(pieces.joined) == _joined_by_counting_anew(TEXT, 20)
    numbers = pieces.encode(TEXT)
    assert pieces.decode(numbers) == TEXT
    assert len(numbers) < len(TEXT) / 2
    assert len(pieces.vocabulary) == letters + 20
    assert pieces.decode(pieces.encode("that toad")) == "that toad"


@pytest.mark.parametrize(("size", "message"), [(3, "must hold the .* characters"), (4000, "enough pairs to join")])
def test_a_vocabulary_that_the_text_cannot_give_is_refused(size: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Pieces.learn(TEXT, size)


def test_a_text_with_foreign_characters_is_refused() -> None:
    with pytest.raises(InputError, match=r"characters that were learnt; .*'!'"):
        Pieces.learn(TEXT, 30).encode("that!")


@pytest.mark.parametrize(("width", "layers"), [(4, 1), (8, 3)])
def test_the_twin_has_as_many_parameters_and_sees_one_token_only(width: int, layers: int) -> None:
    torch.manual_seed(0)
    networks = [NanoGPT(7, width, 2, layers, 6, attention=kind) for kind in (True, False)]
    sizes = [sum(p.numel() for p in network.parameters()) for network in networks]
    assert sizes[0] == sizes[1]
    one = torch.tensor([[1, 2, 3, 4, 5, 6]])
    other = torch.tensor([[0, 2, 3, 4, 5, 0]])
    with_attention, without = (network(one) - network(other) for network in networks)
    assert with_attention[0, 1:5].abs().amax(-1).min() > 0  # the first token reaches the later ones
    assert (without[0, 1:5] == 0).all()
    last = torch.tensor([[1, 2, 3, 4, 5, 0]])
    assert torch.allclose(networks[0](one)[0, :5], networks[0](last)[0, :5], atol=1e-7)  # and nothing goes back


def test_windows_are_followed_by_their_next_tokens() -> None:
    x, y = windows(torch.arange(10), torch.tensor([0, 4]), 3)
    assert x.tolist() == [[0, 1, 2], [4, 5, 6]]
    assert y.tolist() == [[1, 2, 3], [5, 6, 7]]


def test_sinks_are_those_of_attention_written_out() -> None:
    """One block, one sequence: scores, bias, softmax and mean by hand, head by head."""
    torch.manual_seed(1)
    model = Stories(8, 12, 1, 4, 2, 11).double()
    tokens = torch.tensor([[3, 1, 4, 1, 5]])
    bias = 1.5
    block = model.blocks[0]
    seen: dict[str, torch.Tensor] = {}
    for name in ("wq", "wk", "wv", "wo"):
        layer = getattr(block, name)
        layer.register_forward_hook(
            lambda _, given, out, name=name: seen.update({name: out[0], f"{name} given": given[0][0]})
        )
    share = model.with_sink(bias).first_token_share(tokens)
    with torch.no_grad():
        model(tokens)

    def turned(row: torch.Tensor, position: int) -> torch.Tensor:
        angle = torch.tensor(float(position), dtype=torch.float64)  # heads of size 2 have one angle
        cos, sin = angle.cos(), angle.sin()
        return torch.stack([row[0] * cos - row[1] * sin, row[0] * sin + row[1] * cos])

    mixed, first = torch.zeros(5, 8, dtype=torch.float64), []
    for head in range(4):
        own, shared = slice(2 * head, 2 * head + 2), slice(2 * (head // 2), 2 * (head // 2) + 2)
        for t in range(5):
            scores = torch.stack(
                [turned(seen["wq"][t, own], t) @ turned(seen["wk"][s, shared], s) / 2**0.5 for s in range(t + 1)]
            )
            if head == 0:
                scores[0] += bias
            chances = scores.softmax(0)
            mixed[t, own] = chances @ seen["wv"][: t + 1, shared]
            if head == 0 and t > 0:
                first.append(chances[0].item())
    assert torch.allclose(seen["wo given"], mixed, atol=1e-12)
    assert share == pytest.approx(sum(first) / 4, abs=1e-12)


def test_the_bias_for_a_share_gives_that_share() -> None:
    torch.manual_seed(2)
    model, tokens = Stories(8, 12, 2, 4, 2, 11), torch.randint(0, 11, (3, 6))
    natural = model.first_token_share(tokens)
    bias = bias_for(model, tokens, 0.8)
    assert model.first_token_share(tokens) == natural < 0.8
    assert model.with_sink(bias).first_token_share(tokens) == pytest.approx(0.8, abs=1e-3)


def test_partitions_cut_tensors_by_head_neuron_and_token() -> None:
    """Counted by hand for 5 tokens, width 4, 2 heads: 4 norms and vectors, 2 x 5 tokens, 16 + 4 neurons, 6 + 2 heads."""
    model = SmallGPT(5, 4, 2, 1, 3)
    tokens = torch.randint(0, 5, (2, 3), generator=torch.Generator().manual_seed(0))
    problem = Problem.of(model, "cross_entropy", (tokens, tokens))
    found = {name: labels(problem, units) for name, units in partitions().items()}
    assert {name: int(block.max()) + 1 for name, block in found.items()} == {
        "layer": 10,  # a layer's bias is in the block of its weight
        "head": 10 + 5 + 1,
        "neuron": 10 + 15 + 3,
        "token": 10 + 4 + 4,
        "head+neuron": 34,
        "head+token": 24,
        "neuron+token": 36,
        "head+neuron+token": 42,
    }
    places = dict(zip(problem.space.names, problem.space.unpack(found["head"].double()), strict=True))
    first_head = places["blocks.0.qkv.weight"].view(3, 2, 2, 4)  # projection, head, row, column
    assert all(first_head[p, h].unique().numel() == 1 for p in range(3) for h in range(2))
    assert first_head.unique().numel() == 6
    assert places["blocks.0.out.weight"][:, :2].unique().numel() == 1
    assert places["blocks.0.out.weight"].unique().numel() == 2


def test_rank_correlation() -> None:
    assert rank_correlation([1.0, 2.0, 3.0, 40.0], [0.1, 0.2, 0.3, 0.4]) == pytest.approx(1.0)
    assert rank_correlation([1.0, 2.0, 3.0], [5.0, 9.0, 7.0]) == pytest.approx(0.5)


def test_block_newton_is_predicted_from_where_it_begins() -> None:
    draw = np.random.default_rng(0)
    losses = draw.normal(size=(3, 8))
    begins, later = (draw.normal(size=(3, 8, len(MEASURES))) for _ in range(2))
    begins[:, :, 3] = 2 * losses  # one measure orders the losses there, none at the end of training
    found = _judged({"measures": later, "at_start": begins, "losses": losses, "before": np.ones(3)})
    assert found["predicts"] == (pytest.approx(1.0), f"1.00 ({MEASURES[3]})")
