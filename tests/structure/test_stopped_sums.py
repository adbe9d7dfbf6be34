"""Block norms and Kronecker factors that were stopped go on, to the bit, and never with another matrix's sums."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import hesscope as hs
from hesscope.errors import FileError
from hesscope.linalg.resuming.checkpoint import Store
from kron.kron_cases import relu_mlp, tokens, weighted_tanh_mlp
from structure.networks import convolutional, language, mlp, problem

Numbers = dict[str, Any]
Sum = Callable[[Path | None], Numbers]


def norms(of: Callable[[], hs.Problem], partition: Any, **options: Any) -> Sum:
    def run(folder: Path | None) -> Numbers:
        found = hs.block_norms(of(), partition, resume=folder, **options)
        return {"norms": found.norms, "stderr": found.stderr, "products": found.products, "exact": found.exact}

    return run


def factors(of: Callable[[], tuple[hs.Problem, Any]]) -> Sum:
    def run(folder: Path | None) -> Numbers:
        found = hs.decouple_layers(of()[0], resume=folder)
        parts = ("output_hessian", "input_autocorrelation", "input_mean", "mean_direction")
        forms = [form.with_reduction(way) for form in found.values() for way in ("expand", "reduce", "kfac_reduce")]
        return {str(i): getattr(form, part) for part in parts for i, form in enumerate(forms)}

    return run


def tanh() -> hs.Problem:
    return problem(mlp(6, 5, 5, 4, activation=nn.Tanh, bias=True), "cross_entropy")


SUMS: dict[str, Sum] = {
    "neurons": norms(tanh, "neuron"),
    "neurons of a regression": norms(lambda: problem(mlp(6, 5, 4), "mse"), "neuron"),
    "layers": norms(tanh, "layer"),
    "neurons of a convolution": norms(convolutional, "neuron"),
    "sampled, with layers": norms(convolutional, "tensor", method="stochastic", probes=4),
    "heads": norms(language, "head"),
    "factors": factors(relu_mlp),
    "factors by second derivatives": factors(weighted_tanh_mlp),
    "factors over positions": factors(tokens),
}


class Stop(Exception):
    pass


@pytest.mark.parametrize("which", SUMS)
def test_every_state_is_a_place_to_go_on_from(which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = SUMS[which](None)
    save, stops, saved = Store.save, 0, 0

    def die(store: Store, *state: Any) -> None:
        nonlocal saved
        save(store, *state)
        saved += 1
        if saved > stops:  # soon at first, later each time, for the sake of time
            raise Stop

    monkeypatch.setattr(Store, "save", die)
    for _ in range(200):
        try:
            saved = 0
            found = SUMS[which](tmp_path / "state")
            break
        except Stop:
            stops += 1
    assert stops >= 1
    assert all(np.array_equal(np.asarray(found[name]), np.asarray(value)) for name, value in whole.items())


@pytest.mark.parametrize("which", ["neurons", "heads", "factors"])
def test_large_sums_are_written_less_often_and_at_the_end(
    which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SUMS[which](tmp_path / "every")
    monkeypatch.setattr("hesscope.linalg.resuming.steps._PER_STEP", 0)
    whole = SUMS[which](tmp_path / "last")
    many, one = (len((tmp_path / name / "hesscope-state.txt").read_text().splitlines()) for name in ("every", "last"))
    assert one < many
    found = SUMS[which](tmp_path / "last")
    assert all(np.array_equal(np.asarray(found[name]), np.asarray(value)) for name, value in whole.items())


def test_sums_of_another_matrix_are_refused(tmp_path: Path) -> None:
    ours = tanh()
    hs.block_norms(ours, "neuron", resume=tmp_path / "norms")
    hs.decouple(ours, "0", resume=tmp_path / "factors")
    moved = ours.at({name: value + 1e-3 for name, value in ours.parameters.items()})
    for other in (moved, tanh().select("*weight")):
        with pytest.raises(FileError, match="resume needs the same"):
            hs.block_norms(other, "neuron", resume=tmp_path / "norms")
    with pytest.raises(FileError, match="resume needs the same arguments"):
        hs.block_norms(ours, "layer", resume=tmp_path / "norms")
    with pytest.raises(FileError, match="resume needs the same operator"):
        hs.block_norms(hs.GaussNewton(ours), "neuron", resume=tmp_path / "norms")
    with pytest.raises(FileError, match="resume needs the same"):
        hs.decouple(moved, "0", resume=tmp_path / "factors")
    with pytest.raises(FileError, match="resume needs the same arguments"):
        hs.decouple(ours, "2", resume=tmp_path / "factors")
    with pytest.raises(FileError, match="resume needs the same algorithm"):
        hs.decouple(ours, "0", resume=tmp_path / "norms")


def test_chunks_of_a_stopped_run_keep_their_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that is free today may not be free tomorrow: sums over other chunks would be other bits."""
    whole = factors(relu_mlp)(tmp_path / "whole")
    save = Store.save

    def die(store: Store, *state: Any) -> None:
        save(store, *state)
        raise Stop

    with monkeypatch.context() as patched:
        patched.setattr(Store, "save", die)
        with pytest.raises(Stop):
            factors(relu_mlp)(tmp_path / "stopped")
    monkeypatch.setattr("hesscope.kron.chunked.chunks._MOST_CHUNK", 1000.0)
    found = factors(relu_mlp)(tmp_path / "stopped")
    assert all(torch.equal(found[name], value) for name, value in whole.items())
