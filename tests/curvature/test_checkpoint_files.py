"""Checkpoints of every format give the problem that a model with those weights gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import hesscope as hs
from hesscope.curvature.models.checkpoint_files import checkpoints_in
from hesscope.errors import InputError

X, Y = torch.randn(12, 4, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3


def network(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3))
    model(3 * X + seed)  # statistics of batch-norm: buffers count
    return model.eval()


def problem_of(model: nn.Module) -> hs.Problem:
    return hs.Problem.of(model, "cross_entropy", (X, Y))


def write_safetensors(path: Path, state: dict[str, Tensor]) -> None:
    """By the format's description: a length, a JSON header, the numbers."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    kinds = {torch.float32: "F32", torch.int64: "I64", torch.bfloat16: "BF16"}
    for name, tensor in state.items():
        raw = tensor.contiguous().view(torch.uint8).numpy().tobytes() if tensor.ndim else tensor.numpy().tobytes()
        place = [len(body), len(body) + len(raw)]
        header[name] = {"dtype": kinds[tensor.dtype], "shape": list(tensor.shape), "data_offsets": place}
        body += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def write(kind: str, folder: Path, state: dict[str, Tensor]) -> Path:
    place = folder / kind
    if kind == "weights.npz":
        np.savez(place, **{name: t.numpy() for name, t in state.items()})
    elif kind == "weights.safetensors":
        write_safetensors(place, state)
    elif kind == "epoch=3-step=20.ckpt":
        prefixed = {f"model.{name}": t for name, t in state.items()}
        torch.save({"epoch": 3, "state_dict": prefixed, "optimizer_states": [{"state": {}}], "loops": {}}, place)
    elif kind == "compiled.pth":
        torch.save({f"module._orig_mod.{name}": t for name, t in state.items()}, place)
    elif kind == "checkpoint-500":
        place.mkdir()
        names = list(state)
        write_safetensors(place / "model-00001-of-00002.safetensors", {n: state[n] for n in names[:3]})
        write_safetensors(place / "model-00002-of-00002.safetensors", {n: state[n] for n in names[3:]})
        index = {n: f"model-0000{1 if k < 3 else 2}-of-00002.safetensors" for k, n in enumerate(names)}
        (place / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    else:
        torch.save(state, place)
    return place


KINDS = ("weights.pt", "weights.npz", "weights.safetensors", "epoch=3-step=20.ckpt", "compiled.pth", "checkpoint-500")


@pytest.mark.parametrize("kind", KINDS)
def test_every_format(kind: str, tmp_path: Path) -> None:
    later = network(7)
    place = write(kind, tmp_path, dict(later.state_dict()))
    moved, truth = problem_of(network(1)).at(place), problem_of(later)
    assert moved.loss_value() == pytest.approx(truth.loss_value(), rel=1e-6)
    v = torch.ones(truth.space.size)
    assert torch.allclose(hs.Hessian(moved) @ v, hs.Hessian(truth) @ v, atol=1e-6)


def test_missing_and_unknown_names_are_refused(tmp_path: Path) -> None:
    problem, state = problem_of(network(1)), dict(network(7).state_dict())
    for name in ("3.weight", "1.running_mean"):
        torch.save({key: t for key, t in state.items() if key != name}, tmp_path / "part.pt")
        with pytest.raises(InputError, match=f"without {name}"):
            problem.at(tmp_path / "part.pt")
    with pytest.raises(InputError, match=r"without 3\.weight"):
        problem.at({key: t for key, t in state.items() if key != "3.weight"})
    torch.save({**state, "extra.weight": torch.zeros(2)}, tmp_path / "more.pt")
    with pytest.raises(InputError, match=r"extra\.weight"):
        problem.at(tmp_path / "more.pt")


def test_weights_without_their_running_statistics_are_told(tmp_path: Path) -> None:
    """The loss of other weights with the old statistics is that of no network: whoever means it says `partial`."""
    problem, state = problem_of(network(1)), dict(network(7).state_dict())
    weights = {name: t for name, t in state.items() if "running" not in name}
    np.savez(tmp_path / "weights.npz", **{name: t.numpy() for name, t in weights.items()})
    for given in (weights, tmp_path / "weights.npz"):
        with pytest.warns(UserWarning, match=r"1\.running_mean, 1\.running_var\. Give the whole state_dict"):
            told = problem.at(given)
    meant = problem.at(weights, partial=True)
    assert told.loss_value() == meant.loss_value() != problem.at(state).loss_value()
    trained = network(1).train()
    batch = hs.Problem.of(trained, "cross_entropy", (X, Y), batch_statistics=True)
    batch.at(weights)  # statistics of the batch itself: those of before do not matter


class Anything:
    """What weights_only does not load."""


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    problem = problem_of(network(1))
    torch.save(network(2), tmp_path / "model.pt")
    torch.save({"a": Anything()}, tmp_path / "object.ckpt")
    torch.save(torch.zeros(3), tmp_path / "vector.pt")
    write_safetensors(tmp_path / "cut.safetensors", dict(network(2).state_dict()))
    whole = (tmp_path / "cut.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(whole[:-8])
    (tmp_path / "none.safetensors").write_bytes(b"")
    (tmp_path / "long.safetensors").write_bytes((2**62).to_bytes(8, "little") + b"{}")
    (tmp_path / "text.txt").write_text("weights")
    (tmp_path / "empty").mkdir()
    (tmp_path / "far").mkdir()
    (tmp_path / "far/model.safetensors.index.json").write_text('{"weight_map": {"a": "../../etc/passwd"}}')
    for name in ("model.pt", "object.ckpt", "vector.pt", "cut.safetensors", "none.safetensors", "long.safetensors",
                 "text.txt", "empty", "far", "missing.pt"):  # fmt: skip
        with pytest.raises(InputError, match=r"\w+ must|weights come|shards must"):
            problem.at(tmp_path / name)


def test_a_folder_along_training(tmp_path: Path) -> None:
    start = problem_of(network(1))
    for step in (1000, 20, 500):
        torch.save(network(step).state_dict(), tmp_path / f"step-{step}.pt")
    (tmp_path / "notes.txt").write_text("mine")
    assert list(checkpoints_in(tmp_path)) == ["20", "500", "1000"]
    along = start.along(tmp_path)
    for label, problem in along.items():
        assert problem.loss_value() == pytest.approx(problem_of(network(int(label))).loss_value(), rel=1e-6)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="folder must hold checkpoints"):
        start.along(tmp_path / "empty")
    with pytest.raises(InputError, match="must be in a folder"):
        start.along(tmp_path / "nowhere")
