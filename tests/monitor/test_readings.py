"""What a reading says, against dense matrices that are made in another way."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import hesscope as hs
from hesscope.linalg.krylov.basis import KrylovBasis
from hesscope.monitor.probes import DiagonalShare, Probed, probe
from hesscope.monitor.tracking import Pencil, track
from hesscope.monitor.warm_start import WarmStart
from hesscope.operators import Counted
from monitor.runs import HELD_OUT, X, Y, monitor_of, network, train


def _dense(model: nn.Module, x: Tensor = HELD_OUT[0], y: Tensor = HELD_OUT[1]) -> Tensor:
    """The Hessian by double backward of the whole loss in float64."""
    names = [name for name, _ in model.named_parameters()]
    shapes = [p.shape for p in model.parameters()]
    flat = torch.cat([p.detach().double().reshape(-1) for p in model.parameters()])

    def loss(theta: Tensor) -> Tensor:
        pieces = torch.split(theta, [s.numel() for s in shapes])
        values = {n: piece.view(s) for n, piece, s in zip(names, pieces, shapes, strict=True)}
        return nn.functional.cross_entropy(torch.func.functional_call(model, values, (x.double(),)), y)

    return torch.autograd.functional.hessian(loss, flat)


def _adam_scale(model: nn.Module, optimizer: torch.optim.Optimizer) -> Tensor:
    """1/P of Adam from its own state, with bias correction."""
    found = []
    for p in model.parameters():
        state = optimizer.state[p]
        corrected = state["exp_avg_sq"].double() / (1 - 0.999 ** float(state["step"]))
        found.append((1 / (corrected.sqrt() + 1e-8)).reshape(-1))
    return torch.cat(found)


def test_every_number_against_dense_truth(tmp_path: Path) -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    with monitor_of(model, tmp_path, slow_every=1, batch_size=8, tol=0.01, products=12) as monitor:
        for step in range(5):
            (reading,) = train(model, optimizer, range(step, step + 1), monitor)
            truth = _dense(model)
            values, vectors = torch.linalg.eigh(truth)
            top, v = float(values[-1]), vectors[:, -1]
            root = _adam_scale(model, optimizer).sqrt()
            seen, w = torch.linalg.eigh(root[:, None] * truth * root)
            assert reading.converged
            assert reading.sharpness == pytest.approx(top, rel=0.01)
            assert reading.preconditioned == pytest.approx(float(seen[-1]), rel=0.01)
            shares = {"0": float(w[:56, -1].square().sum()), "2": float(w[56:, -1].square().sum())}
            assert reading.binding == pytest.approx(shares, abs=0.05)
            assert abs(reading.trace - float(truth.trace())) <= 4 * reading.trace_error
            assert reading.gauss_newton_share == pytest.approx(_gauss_newton(model, v) / top, abs=0.02)
    assert reading.edge == pytest.approx(_adam_edge(step + 1), rel=1e-6)
    assert reading.edge_ratio == pytest.approx(reading.preconditioned / reading.edge)
    assert reading.diagonal_share is not None
    whole = float(truth.square().sum())
    part = float(truth[:56, :56].square().sum() + truth[56:, 56:].square().sum())
    assert abs(reading.diagonal_share - part / whole) <= 4 * reading.diagonal_share_error
    with torch.no_grad():
        value = float(nn.functional.cross_entropy(model(HELD_OUT[0]), HELD_OUT[1]))
    assert reading.loss == pytest.approx(value, rel=1e-5)


def _adam_edge(steps: int, rate: float = 0.01, beta: float = 0.9) -> float:
    """(2 + 2β)/((1 - β) lr) with the bias correction of the first moment, by hand."""
    return 2 * (1 + beta) * (1 - beta**steps) / ((1 - beta) * rate)


def _gauss_newton(model: nn.Module, v: Tensor) -> float:
    """vᵀ Jᵀ (diag p - ppᵀ) J v / N with J from reverse mode, row by row."""
    x = HELD_OUT[0]
    total, parameters = 0.0, list(model.parameters())
    for row in x:
        out = model(row[None])[0]
        push = torch.stack(
            [
                torch.cat([g.reshape(-1) for g in torch.autograd.grad(o, parameters, retain_graph=True)]).double() @ v
                for o in out
            ]
        )
        p = out.detach().double().softmax(0)
        total += float((p * push**2).sum() - (p * push).sum() ** 2)
    return total / len(x)


def test_a_direction_that_no_gradient_has_reached_is_named(tmp_path: Path) -> None:
    """An input that is zero in training and not in the held-out batch: its weights have no second moment."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    x = X[:64].clone()
    x[:, 0] = 0.0
    nn.functional.cross_entropy(model(x), Y[:64]).backward()
    optimizer.step()
    with monitor_of(model, tmp_path) as monitor:
        reading = monitor.step(0, optimizer)
    assert reading is not None
    assert reading.edge_ratio > 10
    assert any("no second moment yet" in note for note in reading.notes)


def test_batch_sharpness_against_dense_batches(tmp_path: Path) -> None:
    model = network()
    with monitor_of(model, tmp_path, batch_size=8) as monitor:
        reading = monitor.step(0)
    bent, length = [], []
    for start in range(0, 32, 8):
        x, y = HELD_OUT[0][start : start + 8], HELD_OUT[1][start : start + 8]
        loss = nn.functional.cross_entropy(model(x), y)
        g = torch.cat([p.reshape(-1) for p in torch.autograd.grad(loss, list(model.parameters()))]).double()
        bent.append(float(g @ _dense(model, x, y) @ g))
        length.append(float(g @ g))
    assert reading is not None
    assert reading.batch_sharpness == pytest.approx(sum(bent) / sum(length), rel=1e-4)
    assert reading.batch_sharpness_error is not None
    assert 0 < reading.batch_sharpness_error < reading.batch_sharpness


OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "momentum": partial(torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=0.01),
    "rmsprop": partial(torch.optim.RMSprop, lr=0.01),
    "adamw": partial(torch.optim.AdamW, lr=0.01),
    "maximising": partial(torch.optim.SGD, lr=0.01, maximize=True),
    "groups": lambda p: torch.optim.SGD(
        [{"params": list(p)[:2], "lr": 0.2}, {"params": list(p)[2:], "lr": 0.0}], lr=0.1
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_preconditioned_top_is_that_of_the_stability_reading(name: str, tmp_path: Path) -> None:
    """From shared products, from the plain one, or from products of its own: always what `read_edge` finds dense."""
    from hesscope.step_stability import Preconditioned, read_optimizer

    model = network()
    parameters = list(model.parameters())
    optimizer = OPTIMIZERS[name](parameters)
    with monitor_of(model, tmp_path, products=12) as monitor:
        reading = train(model, optimizer, 4, monitor)[-1]
    problem = hs.Problem.of(model, "cross_entropy", HELD_OUT)
    state = read_optimizer(problem, optimizer)
    dense = Preconditioned(hs.Hessian(problem), state).dense().double()
    assert reading.preconditioned == pytest.approx(float(torch.linalg.eigvalsh(dense)[-1]), rel=0.02)
    assert reading.edge == pytest.approx(state.edge)


def _symmetric(size: int, seed: int, top: float = 10.0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    a = torch.randn(size, size, generator=draw, dtype=torch.float64)
    v = torch.randn(size, generator=draw, dtype=torch.float64)
    v /= v.norm()
    return (a + a.T) / (2 * math.sqrt(2 * size)) + top * torch.outer(v, v)


def test_one_space_serves_the_matrix_and_the_pencil() -> None:
    matrix = _symmetric(60, 0)
    draw = torch.Generator().manual_seed(5)
    scale = torch.rand(60, generator=draw, dtype=torch.float64) + 0.1
    added = 0.3 * torch.rand(60, generator=draw, dtype=torch.float64)
    found = track(Counted(hs.Dense(matrix)), None, Pencil(scale, added), tol=1e-6, most=60, rng=hs.Rng(0))
    root = scale.sqrt()
    truth = torch.linalg.eigvalsh(root[:, None] * (matrix + torch.diag(added)) * root)
    assert found.plain.value == pytest.approx(float(torch.linalg.eigvalsh(matrix)[-1]), rel=1e-6)
    assert found.other is not None
    assert found.other.value == pytest.approx(float(truth[-1]), rel=1e-6)
    w = root * (found.vector(found.other) / scale)
    assert (
        float((w / w.norm()) @ torch.linalg.eigh(root[:, None] * (matrix + torch.diag(added)) * root)[1][:, -1]) ** 2
        > 0.99
    )


@pytest.mark.parametrize("pencil", [False, True])
def test_errors_cover_the_truth_and_unconverged_readings_say_so(pencil: bool) -> None:
    """A matrix that turns between readings, by little and by much; the space is never allowed to finish."""
    covered, late, tol, start = [], 0, 0.002, None
    scale = torch.linspace(0.5, 2.0, 80, dtype=torch.float64)
    chosen = Pencil(scale, torch.zeros_like(scale)) if pencil else None
    for number in range(40):
        turn = 0.3 if number % 10 == 0 else 0.03
        matrix = _symmetric(80, 0, 2.0) * (1 + 0.1 * number) + turn * 5 * _symmetric(80, number + 1, 2.0)
        found = track(Counted(hs.Dense(matrix)), start, chosen, tol=tol, most=5, rng=hs.Rng(number))
        start = found.remembered
        top = found.other if found.other is not None else found.plain
        root = scale.sqrt()
        seen = root[:, None] * matrix * root if pencil else matrix
        truth = float(torch.linalg.eigvalsh(seen)[-1])
        covered.append(abs(top.value - truth) <= top.error * (1 + 1e-9))
        late += not top.within(tol)
        assert found.products <= 5
    assert np.mean(covered) >= 0.9
    assert 0 < late < 40


def test_a_reading_from_nothing_does_not_take_the_second_eigenvalue_for_the_first() -> None:
    """A random start that holds little of the top one rests on the next: its residual is then small, and no evidence."""
    values = torch.cat([torch.tensor([1.0, 0.9]), torch.linspace(0, 0.5, 88)]).double()
    matrix, wrong = torch.diag(values), 0
    for seed in range(300):
        found = track(Counted(hs.Dense(matrix)), None, None, tol=0.02, most=40, rng=hs.Rng(seed)).plain
        wrong += found.within(0.02) and abs(found.value - 1.0) > 0.02
    assert wrong <= 3


def test_trace_and_diagonal_share_are_unbiased_and_calibrated() -> None:
    matrix = _symmetric(48, 3) + 0.5 * torch.diag(torch.linspace(0, 2, 48, dtype=torch.float64))
    labels = torch.arange(48) // 16
    op = Counted(hs.Dense(matrix))
    basis = KrylovBasis(op)
    basis.append(torch.randn(48, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    for _ in range(3):
        basis.process(1)
    found = [probe(basis, labels, 3, hs.Rng(seed)) for seed in range(200)]
    same = labels[:, None] == labels
    for numbers, truth in (
        ([f.trace for f in found], float(matrix.trace())),
        ([f.squares for f in found], float(matrix.square().sum())),
        ([f.diagonal_squares for f in found], float(matrix[same].square().sum())),
    ):
        stderr = np.std(numbers) / math.sqrt(len(numbers))
        assert abs(np.mean(numbers) - truth) <= 4 * stderr
        assert stderr > 0
    off = np.array([(f.trace - float(matrix.trace())) / f.trace_error for f in found])
    assert 0.5 < off.std() < 1.1


def test_a_share_needs_several_readings_before_it_has_an_error() -> None:
    share = DiagonalShare()
    for part in (0.5, 0.7):
        share.add(Probed(0.0, 0.0, 1.0, part))
        assert share.value() is None
    share.add(Probed(0.0, 0.0, 1.0, 0.6))
    value, error = share.value() or (0.0, 0.0)
    assert value == pytest.approx(0.6)
    assert error == pytest.approx(np.std([0.5, 0.7, 0.6], ddof=1) / math.sqrt(3))


def test_a_direction_that_grew_unseen_is_found_by_a_fresh_vector() -> None:
    """Two blocks that never meet: the top vector of one spans a space of its own, and says nothing of the other."""
    matrix = torch.block_diag(_symmetric(30, 0), _symmetric(30, 1, top=50.0))
    start = torch.zeros(60, 1, dtype=torch.float64)
    start[:30, 0] = torch.linalg.eigh(matrix[:30, :30])[1][:, -1]
    truth = float(torch.linalg.eigvalsh(matrix)[-1])
    known = WarmStart(start, (start.T @ matrix @ start).numpy())
    found = [
        track(Counted(hs.Dense(matrix)), known, None, tol=0.02, most=20, rng=hs.Rng(0), fresh=fresh).plain.value
        for fresh in (False, True)
    ]
    assert found[0] < 0.5 * truth
    assert found[1] == pytest.approx(truth, rel=0.02)


def test_a_top_that_was_no_gradients_is_left_as_soon_as_there_is_one() -> None:
    """One parameter has a tiny P, and is the top of the pencil; then it gets a gradient. What was second is found."""
    matrix = _symmetric(60, 0, top=3.0)
    matrix[7, 7] += 1.0
    scale = torch.ones(60, dtype=torch.float64)
    scale[7] = 1e4
    first = track(Counted(hs.Dense(matrix)), None, Pencil(scale, 0 * scale), tol=1e-6, most=40, rng=hs.Rng(0))
    now = torch.linspace(0.5, 2.0, 60, dtype=torch.float64)
    seen = now.sqrt()[:, None] * matrix * now.sqrt()
    truth = float(torch.linalg.eigvalsh(seen)[-1])
    assert first.other is not None
    before = first.vector(first.other)
    quotients = []
    for start in (before, first.remembered.start(Pencil(now, 0 * now))[:, 1]):
        quotients.append(float(start @ matrix @ start) / float(start.square() @ (1 / now)))
    assert quotients[0] < 0.6 * truth
    assert quotients[1] > 0.8 * truth


def test_a_start_lies_between_the_last_two_tops() -> None:
    """A matrix that swings to and fro: from the middle the first quotient is higher than from the last top."""
    one, two = _symmetric(40, 0), _symmetric(40, 0)
    side = torch.linalg.qr(torch.randn(40, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64))[0]
    for matrix, sign in ((one, 1), (two, -1)):
        v = side[:, 0] + 0.5 * sign * side[:, 1]
        matrix += 40 * torch.outer(v, v) / float(v @ v)
    start, quotients = None, []
    for number, matrix in enumerate((one, two, one)):
        found = track(Counted(hs.Dense(matrix)), start, None, tol=1e-3, most=20, rng=hs.Rng(number))
        last, start = found.vector(found.plain), found.remembered
        middle = start.start(None)[:, 0]
        other = two if matrix is one else one
        quotients.append([float(v @ other @ v) for v in (last, middle)])
    assert quotients[0][0] == pytest.approx(quotients[0][1])  # after one reading there is nothing to average
    assert quotients[2][1] > quotients[2][0]


def test_a_renewed_reading_draws_a_fresh_vector(tmp_path: Path) -> None:
    with monitor_of(network(), tmp_path, renew_every=2, slow_every=100) as monitor:
        found = [monitor.step(step) for step in range(4)]
    products = [reading.products for reading in found if reading is not None]
    assert products[2] > products[1] == products[3]


def test_the_residual_of_the_pencil_is_that_of_its_vector() -> None:
    """Before anything has converged, against the dense matrix."""
    matrix, draw = _symmetric(60, 0), torch.Generator().manual_seed(5)
    scale, added = (torch.rand(2, 60, generator=draw, dtype=torch.float64) + 0.1).unbind()
    found = track(Counted(hs.Dense(matrix)), None, Pencil(scale, added), tol=1e-6, most=6, rng=hs.Rng(0))
    assert found.other is not None
    w = found.vector(found.other) / scale.sqrt()
    w /= w.norm()
    root = scale.sqrt()
    seen = root[:, None] * (matrix + torch.diag(added)) * root
    assert float(w @ seen @ w) == pytest.approx(found.other.value, rel=1e-9)
    assert float((seen @ w - found.other.value * w).norm()) == pytest.approx(found.other.residual, rel=1e-6)


def test_data_of_every_form(tmp_path: Path) -> None:
    """A loader, a data set, batches in a list: the same numbers as tensors give."""
    whole = torch.utils.data.TensorDataset(X, Y)
    forms = ((X, Y), whole, torch.utils.data.DataLoader(whole, 40), [(X[:50], Y[:50]), (X[50:], Y[50:])])
    found = []
    for number, data in enumerate(forms):
        with monitor_of(network(), tmp_path, out=tmp_path / f"{number}.jsonl", data=data, examples=60) as monitor:
            reading = monitor.step(0)
            assert reading is not None
            assert monitor.run.settings["examples"] == 60
            found.append((reading.loss, reading.sharpness))
    for other in found[1:]:
        assert other == pytest.approx(found[0], rel=1e-5)
