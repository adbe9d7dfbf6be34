"""A case: network, loss, data and surroundings, all determined by one seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from fuzz.fronts import FRONTS, Front
from fuzz.losses import LOSSES, Loss
from fuzz.pieces import PIECES

CLASSES = 3  # class weights and the like have this many entries
CONTEXTS = ("none", "none", "none", "no_grad", "none", "none", "none", "inference_mode", "none", "none", "none")
FORMS = ("tuple", "batches", "ragged", "loader", "single", "small batches", "forward", "dataset", "tuple")
LARGEST = 150

OUTPUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "nothing": lambda z: z,
    "divided in place": lambda z: z.div_(1.7),
    "tanh in place": lambda z: z.tanh_(),
    "scaled in place": lambda z: z.mul_(1.3).add_(0.1),
    "one entry in place": lambda z: _first_doubled(z),
    "sine": torch.sin,
    "none": lambda z: z,
}
LINKS: dict[str, Callable[[Tensor], Tensor]] = {
    "any": lambda z: z,
    "log-probabilities": lambda z: z.log_softmax(1),
    "probabilities": lambda z: z.sigmoid_(),
    "positive": lambda z: torch.nn.functional.softplus(z) + 0.1,
}


def _first_doubled(z: Tensor) -> Tensor:
    z[:, 0] *= 2
    return z


@dataclass(frozen=True)
class Case:
    """What the user has and asks for."""

    seed: int
    model: nn.Module
    loss: Loss
    batches: tuple[tuple[Tensor, Tensor], ...]  # the batches the user trains on, one after the other
    form: str
    context: str
    dtype: torch.dtype
    tags: tuple[str, ...]
    interacts: bool
    freeze: bool
    params: str | tuple[str, ...]
    moves: bool  # the model changes after the problem was made

    def arguments(self) -> tuple[tuple[Any, Any, Any], dict[str, Any]]:
        """The arguments of Problem.of."""
        options: dict[str, Any] = {"params": self.params if isinstance(self.params, str) else list(self.params)}
        if self.freeze:
            options["freeze"] = True
        x, y = self.batches[0]
        data: Any = [tuple(batch) for batch in self.batches]
        if self.form in ("tuple", "single"):
            data = (x, y)
        elif self.form == "small batches":
            data = tuple(torch.cat(part) for part in zip(*self.batches, strict=True))
            options["batch_size"] = 2
        elif self.form in ("loader", "dataset"):
            whole = TensorDataset(*(torch.cat(part) for part in zip(*self.batches, strict=True)))
            data = whole if self.form == "dataset" else DataLoader(whole, batch_size=2)
        elif self.form == "forward" and self.loss.by_batch is None:
            data = [{"x": a, "y": b} for a, b in self.batches]
            options["forward"] = lambda model, batch: (model(batch["x"]), batch["y"])
        return (self.model, self.loss.given, data), options


class Net(nn.Module):
    """A front, pieces, a head and what is done to its outputs."""

    def __init__(
        self, front: nn.Module, body: nn.Module, head: nn.Module, end: Sequence[Callable[..., Tensor]]
    ) -> None:
        super().__init__()
        self.front, self.body, self.head, self.end = front, body, head, tuple(end)

    def forward(self, x: Tensor) -> Tensor:
        z = self.head(self.body(self.front(x)))
        for function in self.end:
            z = function(z)
        return z


class TiedHead(nn.Module):
    """Logits by the embedding's own weight."""

    def __init__(self, embedding: nn.Embedding, how: str) -> None:
        super().__init__()
        self.how = how
        self.head: nn.Module = nn.Linear(embedding.embedding_dim, embedding.num_embeddings, bias=how == "bias")
        self.head.weight = embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.head.weight.t() if self.how == "matmul" else self.head(x)


class One(nn.Module):
    """A model of one parameter."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.a, self.how = nn.Parameter(torch.zeros(())), how

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x * self.a) if self.how == "tanh" else x * self.a


def _values(r: Random, shape: Iterable[int], scale: float, centre: float = 0.0) -> Tensor:
    sizes = tuple(shape)
    size = 1
    for side in sizes:
        size *= side
    drawn = torch.tensor([centre + scale * r.gauss(0, 1) for _ in range(size)], dtype=torch.float64)
    return drawn.reshape(sizes)


def _fill(model: nn.Module, r: Random) -> None:
    """Values from the seed alone: torch's own initialisation may differ between machines."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            end = name.rsplit(".", 1)[-1]
            if end in ("weight_g", "original0"):
                p.copy_(_values(r, p.shape, 0.2, 1.0).abs())
            elif p.dim() < 2:
                p.copy_(_values(r, p.shape, 0.3, 1.0 if end == "weight" else 0.0))
            else:
                p.copy_(_values(r, p.shape, 1.2 / p[0].numel() ** 0.5))
        for name, b in model.named_buffers():
            if name.endswith(("running_mean", "scale")):
                b.copy_(_values(r, b.shape, 0.3, 0.6 if name.endswith("scale") else 0.0))
            elif name.endswith("running_var"):
                b.copy_(_values(r, b.shape, 0.2, 1.0).abs() + 0.1)


def _body(r: Random, names: list[str], d: int, width: int) -> nn.Module:
    layers: list[nn.Module] = []
    for name in names:
        layers.append(PIECES[name].make(r, d, width))
        d = width
    return nn.Sequential(*layers)


def _wanted(seed: int) -> list[str]:
    """Two pieces by turns, so that every one comes up in sixty seeds at least twice."""
    order = sorted(PIECES)
    Random(0).shuffle(order)
    return [order[seed % len(order)], order[(seed + 1 + len(order) // 2) % len(order)]]


def _choose_pieces(seed: int, r: Random, front: Front) -> list[str]:
    """The pieces whose turn it is, and others at random."""
    names = _wanted(seed)
    if r.random() < 0.35:
        names.append(r.choice([name for name, p in sorted(PIECES.items()) if front.time == 0 or not p.flat]))
    r.shuffle(names)
    return names


def _layout(r: Random, front: Front, loss: Loss) -> str:
    """How outputs over time meet the loss."""
    if front.time == 0:
        return "vector"
    return r.choice(["pooled", "classes second", "classes second"]) if loss.images else "pooled"


def _ends(layout: str, output: str, link: str) -> list[Callable[..., Tensor]]:
    ends: list[Callable[..., Tensor]] = []
    if layout == "pooled":
        ends.append(lambda z: z.mean(1))
    elif layout == "classes second":
        ends.append(lambda z: z.transpose(1, 2))
    return [*ends, OUTPUTS[output], LINKS[link]]


def _sizes(r: Random, form: str) -> list[int]:
    """How many examples each batch has."""
    if form == "single":
        return [1]
    if form == "ragged":
        return [r.choice([1, 2, 3]), r.choice([1, 3, 4]), 1][: r.choice([2, 3])]
    if form in ("batches", "forward"):
        return [2, 2] if r.random() < 0.5 else [r.choice([1, 2, 5])]
    if form in ("loader", "small batches"):
        return [2, 2, 1]  # what batches of two make of five examples
    return [r.choice([2, 3, 4, 5])]


def _network(seed: int, r: Random, loss: Loss) -> tuple[nn.Module, Front, tuple[str, ...], bool, bool]:
    """A network with the pieces that this seed must hold and others at random."""
    fronts = sorted(FRONTS)
    Random(1).shuffle(fronts)
    if seed % 29 == 17:
        how = r.choice(["tanh", "plain"])
        return One(how), Front(nn.Identity(), lambda n: (n, CLASSES), CLASSES), ("one parameter", how), False, False
    kind = fronts[(2 * seed // 3) % len(fronts)] if seed % 3 else r.choice(["vectors", "vectors", "vectors_in_time"])
    if any(PIECES[name].flat for name in _wanted(seed)) and kind.startswith(("tokens", "vectors_in_time")):
        kind = "vectors"
    front = FRONTS[kind](r)
    layout = _layout(r, front, loss)
    width = r.choice([2, 3])
    names = _choose_pieces(seed, r, front)
    output = r.choice(list(OUTPUTS))
    tied = isinstance(getattr(front.module, "embedding", None), nn.Embedding) and r.random() < 0.6
    tags: tuple[str, ...]
    head: nn.Module
    if tied:
        embedding: nn.Embedding = front.module.embedding  # type: ignore[assignment]
        # A padding row or a norm that is kept has no meaning any more once the head trains the same weight.
        tall = nn.Embedding(CLASSES, embedding.embedding_dim, scale_grad_by_freq=embedding.scale_grad_by_freq)
        front.module.embedding = tall
        front = replace(front, tokens=CLASSES)
        how = r.choice(["bias", "plain", "matmul"])
        head = TiedHead(tall, how)
        body = _body(r, names, front.features, embedding.embedding_dim)
        tags = (kind, layout, "tied head", how, *names, output)
    else:
        body = _body(r, names, front.features, width)
        head = nn.Linear(width, CLASSES, bias=r.random() < 0.7)
        tags = (kind, layout, *names, output)
    model: nn.Module = Net(front.module, body, head, _ends(layout, output, loss.outputs))
    interacts = any(PIECES[name].interacts for name in names)
    needs_eval = front.needs_eval or any(PIECES[name].needs_eval for name in names)
    return model, front, tags, interacts, needs_eval


def _inputs(r: Random, front: Front, n: int) -> Tensor:
    if front.tokens:
        return (_values(r, front.shape(n), 1.0) * 1000).long() % front.tokens
    return _values(r, front.shape(n), 1.0)


def _freeze_some(model: nn.Module, r: Random) -> bool:
    """Ask no gradient of some parameters, but leave at least one."""
    parameters = list(model.parameters())
    if len(parameters) < 3 or r.random() > 0.15:
        return False
    for p in parameters[: r.choice([1, 2])]:
        p.requires_grad_(False)
    return True


def _params(model: nn.Module, r: Random) -> str | tuple[str, ...]:
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    if r.random() < 0.75 or len(names) < 3:
        return "*"
    if r.random() < 0.5 and any(name.endswith("weight") for name in names):
        return "*weight"
    return tuple(r.sample(names, 2))


def make(seed: int) -> Case:
    """The case of a seed; called again, it makes an equal and independent one."""
    for attempt in range(20):
        case = _make(seed, attempt)
        if sum(p.numel() for p in case.model.parameters()) <= LARGEST:
            break
    return case


def _make(seed: int, attempt: int) -> Case:
    r = Random(f"hesscope {seed} {attempt}")
    kinds = sorted(LOSSES)
    Random(2).shuffle(kinds)
    # A stride coprime to the number of pieces, so that pairs of piece and loss do not repeat.
    kind = kinds[(7 * seed) % len(kinds)]
    loss = LOSSES[kind](r)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model, front, tags, interacts, needs_eval = _network(seed, r, loss)
    _fill(model, r)
    form = FORMS[seed % len(FORMS)]
    if front.time_first and form in ("loader", "small batches", "dataset"):
        form = "batches"
    if interacts and form in ("dataset",):
        form = "tuple"
    dtype = torch.float64 if r.random() < 0.65 else torch.float32
    freeze = needs_eval and r.random() < 0.5
    model.train(freeze or (not needs_eval and r.random() < 0.5))
    frozen = _freeze_some(model, r)
    params = _params(model, r)
    model.to(dtype)
    if isinstance(loss.given, nn.Module):
        loss.given.to(dtype)
    xs = [_inputs(r, front, n) for n in _sizes(r, form)]
    batches = []
    for x in xs:
        n = x.shape[1 if front.time_first else 0]
        y = loss.targets(r, (n, CLASSES, front.time) if "classes second" in tags else (n, CLASSES))
        batches.append((_as(x, dtype), _as(y, dtype)))
    context = CONTEXTS[seed % len(CONTEXTS)]
    moves = r.random() < 0.15
    extra = (kind, form, context, str(dtype)[6:], f"params={params}")
    flags = tuple(name for name, on in (("frozen", frozen), ("freeze", freeze), ("moves", moves)) if on)
    return Case(
        seed, model, loss, tuple(batches), form, context, dtype, tags + extra + flags, interacts, freeze, params, moves
    )


def _as(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype) if x.is_floating_point() else x


def own_copy(seed: int) -> Case:
    """The same case once more in its own types, in the mode that is evaluated."""
    case = make(seed)
    if case.freeze:
        case.model.eval()
    return case


def exact_copy(seed: int) -> Case:
    """The same case in float64 at the same values, in the mode that is evaluated, for the truth."""
    case = own_copy(seed)
    model = case.model.double()
    for module in model.modules():
        if hasattr(module, "plain"):
            module.plain = True  # type: ignore[assignment]
    value = case.loss.value
    if isinstance(value, nn.Module):
        value.double()
    batches = tuple((_as(x, torch.float64), _as(y, torch.float64)) for x, y in case.batches)
    return replace(case, model=model, batches=batches, dtype=torch.float64)
