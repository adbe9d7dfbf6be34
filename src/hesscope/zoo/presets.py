"""Problems by name, ready to analyse: a small model, data, and a short training run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..curvature import Problem
from ..errors import refuse
from ..missing_data import note_stand_in
from ..rng import Rng
from .data import data_dir, load
from .training import descend, drawn_batches


@dataclass(frozen=True)
class TrainedPreset:
    """A trained problem, its checkpoints along training (the last is the problem itself), what it was trained on, and
    the state of the optimiser that trained it."""

    problem: Problem
    checkpoints: dict[str, Problem]
    title: str
    optimizer: dict[str, Any]


@dataclass(frozen=True)
class Recipe:
    """How a preset is made: model and data, then Adam for `steps` batches."""

    title: str
    make: Callable[[str | os.PathLike[str] | None], tuple[nn.Module, tuple[Tensor, Tensor], bool]]
    steps: int
    batch: int
    rate: float
    decay: float = 0.0


def names() -> tuple[str, ...]:
    """Every preset."""
    return tuple(PRESETS)


def preset(
    name: str, folder: str | os.PathLike[str] | None = None, seed: int = 0, steps: int | None = None
) -> TrainedPreset:
    """Train the preset `name`; real data from `folder` or $HESSCOPE_DATA, else what is embedded."""
    if name not in PRESETS:
        refuse("a preset must be known", f"{name!r}", f"There are: {', '.join(PRESETS)}.")
    recipe = PRESETS[name]
    with torch.random.fork_rng():
        torch.manual_seed(Rng(seed).child("preset", name).key % 2**63)
        model, data, synthetic = recipe.make(folder)
    with _one_thread():
        checkpoints, optimizer = _train(
            model, data, recipe, recipe.steps if steps is None else steps, Rng(seed).child("batches", name)
        )
    title = recipe.title + (" (synthetic stand-in data)" if synthetic else "")
    return TrainedPreset(list(checkpoints.values())[-1], checkpoints, title, optimizer)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Steps this small gain nothing from threads, and lose much to them on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _train(
    model: nn.Module, data: tuple[Tensor, Tensor], recipe: Recipe, steps: int, rng: Rng
) -> tuple[dict[str, Problem], dict[str, Any]]:
    x, y = data
    optimiser = torch.optim.AdamW(model.parameters(), lr=recipe.rate, weight_decay=recipe.decay)
    loss = nn.CrossEntropyLoss()
    kept = {}
    marks = {round(steps * share) for share in (0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)}

    def watch(step: int) -> None:
        if step in marks:
            kept[str(step)] = _problem(model, data)

    def value(chosen: Tensor) -> Tensor:
        outputs: Tensor = model.train()(x[chosen])
        return cast(Tensor, loss(outputs.flatten(0, -2), y[chosen].flatten()))

    descend(optimiser, drawn_batches(len(x), recipe.batch, steps, rng.torch()), value, watch=watch)
    return kept, optimiser.state_dict()


def _problem(model: nn.Module, data: tuple[Tensor, Tensor]) -> Problem:
    return Problem.of(model.eval(), "cross_entropy", data)


def _mlp_digits(folder: str | os.PathLike[str] | None) -> tuple[nn.Module, tuple[Tensor, Tensor], bool]:
    digits = load("digits")
    # Leaky, because on inputs that are all positive many plain ReLU neurons would never fire.
    layers = {"fc1": nn.Linear(64, 32), "act1": nn.LeakyReLU(0.1), "fc2": nn.Linear(32, 32), "act2": nn.LeakyReLU(0.1)}
    return _sequence(flatten=nn.Flatten(), **layers, out=nn.Linear(32, 10)), (digits.x, digits.y), False


def _cnn_digits(folder: str | os.PathLike[str] | None) -> tuple[nn.Module, tuple[Tensor, Tensor], bool]:
    digits = load("digits")
    model = _sequence(
        conv1=nn.Conv2d(1, 8, 3, padding=1),
        norm1=nn.BatchNorm2d(8),
        act1=nn.ReLU(),
        conv2=nn.Conv2d(8, 16, 3, stride=2),
        norm2=nn.BatchNorm2d(16),
        act2=nn.ReLU(),
        flatten=nn.Flatten(),
        out=nn.Linear(16 * 9, 10),
    )
    return model, (digits.x[:, None], digits.y), False


def _lenet_cifar(folder: str | os.PathLike[str] | None) -> tuple[nn.Module, tuple[Tensor, Tensor], bool]:
    images = load("cifar10", folder=folder, count=2000)
    model = _sequence(
        conv1=nn.Conv2d(3, 6, 5),
        act1=nn.ReLU(),
        pool1=nn.MaxPool2d(2),
        conv2=nn.Conv2d(6, 16, 5),
        act2=nn.ReLU(),
        pool2=nn.MaxPool2d(2),
        flatten=nn.Flatten(),
        fc1=nn.Linear(400, 120),
        act3=nn.ReLU(),
        fc2=nn.Linear(120, 84),
        act4=nn.ReLU(),
        out=nn.Linear(84, 10),
    )
    return model, (images.x, images.y), images.synthetic


def _gpt_shakespeare(folder: str | os.PathLike[str] | None) -> tuple[nn.Module, tuple[Tensor, Tensor], bool]:
    text, synthetic = shakespeare(folder)
    letters = sorted(set(text))
    tokens = torch.tensor([letters.index(letter) for letter in text])
    length, count = 32, 256
    windows = tokens[: (len(tokens) - 1) // length * length].view(-1, length)[:count]
    following = tokens[1 : 1 + windows.numel()].view(-1, length)
    return CharacterTransformer(len(letters), length), (windows, following), synthetic


def shakespeare(folder: str | os.PathLike[str] | None, characters: int = 20_000) -> tuple[str, bool]:
    """The beginning of tiny Shakespeare, or where a stand-in was asked for letters of a random Markov chain."""
    where = data_dir(folder)
    if where is not None and (where / "tinyshakespeare.txt").exists():
        return (where / "tinyshakespeare.txt").read_text()[:characters], False
    note_stand_in("the text of tiny Shakespeare", ("tinyshakespeare.txt",), where)
    draw = Rng(0).child("stand-in", "text").numpy()
    chain = draw.dirichlet([0.1] * 27, size=27)
    state, letters = 0, []
    for _ in range(10_000):
        state = int(draw.choice(27, p=chain[state]))
        letters.append(" abcdefghijklmnopqrstuvwxyz"[state])
    return "".join(letters), True


class CharacterTransformer(nn.Module):
    """A two-layer pre-norm transformer over characters, with tied embeddings."""

    def __init__(self, letters: int, length: int, width: int = 32, heads: int = 2, depth: int = 2) -> None:
        super().__init__()
        self.token = nn.Embedding(letters, width)
        self.place = nn.Parameter(0.02 * torch.randn(length, width))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.token.weight, std=0.1)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        mask = torch.full((length, length), float("-inf")).triu(1).to(self.place)
        hidden = self.token(tokens) + self.place[:length]
        for layer in self.layers:
            hidden = layer(hidden, src_mask=mask)
        out: Tensor = self.norm(hidden) @ self.token.weight.T
        return out


def _sequence(**layers: nn.Module) -> nn.Sequential:
    model = nn.Sequential()
    for name, layer in layers.items():
        model.add_module(name, layer)
    return model


PRESETS = {
    "mlp-digits": Recipe("Leaky-ReLU network 64-32-32-10 on the digits", _mlp_digits, 300, 128, 2e-3),
    "cnn-digits": Recipe("Convolutions with batch-norm on the digits", _cnn_digits, 150, 128, 3e-3),
    "lenet-cifar": Recipe("LeNet-5 on CIFAR-10", _lenet_cifar, 200, 128, 2e-3),
    "gpt-shakespeare": Recipe("Two-layer transformer on Shakespeare's letters", _gpt_shakespeare, 200, 32, 3e-3),
}
