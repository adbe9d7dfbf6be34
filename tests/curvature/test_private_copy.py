"""The user's model is never touched, and a problem sees its own copy of it: also in threads, closures and checkpoints."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import hesscope as hs
from hesscope.errors import InputError

GENERATOR = torch.Generator().manual_seed(0)
X, Y = torch.randn(30, 3, generator=GENERATOR).double(), torch.randint(0, 2, (30,), generator=GENERATOR)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()


def truth(model: nn.Module) -> Tensor:
    """The Hessian by double backward, without the library."""
    weights = [p for p in model.parameters() if p.requires_grad]
    gradients = torch.autograd.grad(F.cross_entropy(model(X), Y), weights, create_graph=True)
    flat = torch.cat([g.reshape(-1) for g in gradients])
    rows = [torch.autograd.grad(entry, weights, retain_graph=True, materialize_grads=True) for entry in flat]
    return torch.stack([torch.cat([h.reshape(-1) for h in row]) for row in rows])


def hessian(model: nn.Module, **settings: Any) -> Tensor:
    return hs.Hessian(hs.Problem.of(model, "cross_entropy", (X, Y), **settings)).dense()


def fingerprint(model: nn.Module) -> dict[str, Any]:
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    modules = list(model.modules())
    return {
        "places": {name: id(t) for name, t in tensors.items()},
        "values": {name: t.detach().clone() for name, t in tensors.items()},
        "versions": {name: t._version for name, t in tensors.items()},
        "types": {name: (type(t), t.requires_grad, t.grad is None) for name, t in tensors.items()},
        "modes": [m.training for m in modules],
        "hooks": [(len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks)) for m in modules],
        "random": torch.get_rng_state(),
    }


def assert_untouched(model: nn.Module, before: dict[str, Any]) -> None:
    after = fingerprint(model)
    for key, value in before.items():
        if key == "values":
            assert all(torch.equal(value[name], after[key][name]) for name in value)
        elif key == "random":
            assert torch.equal(value, after[key])
        else:
            assert value == after[key], key


def test_two_threads_on_one_model_leave_it_alone_and_agree() -> None:
    model = network()
    before, wanted = fingerprint(model), truth(model)
    problem = hs.Problem.of(model, "cross_entropy", (X, Y))
    wrong: list[str] = []

    def work(shared: bool) -> None:
        for step in range(6):
            mine = problem if shared else hs.Problem.of(model, "cross_entropy", (X, Y))
            moved = mine.at({name: p + step for name, p in mine.parameters.items()})
            moved.gradient()
            if not torch.allclose(hs.Hessian(mine).dense(), wanted, atol=1e-10):
                wrong.append(f"shared={shared}, step {step}")

    threads = [threading.Thread(target=work, args=(shared,), daemon=True) for shared in (True, True, False, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=1800)  # only threads that wait for each other take so long
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []
    assert_untouched(model, before)


@pytest.mark.parametrize("kind", ["hessian", "gauss newton", "layer"])
def test_threads_that_share_an_operator_build_it_once(kind: str) -> None:
    class Slow(nn.Module):
        """Lets the other thread in, in the middle of every forward pass."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def forward(self, x: Tensor) -> Tensor:
            time.sleep(0.001)
            return self.inner(x)

    def operator() -> hs.LinearOperator:
        problem = hs.Problem.of(Slow(), "cross_entropy", list(zip(X.split(3), Y.split(3), strict=True)), memory="1GB")
        if kind == "layer":
            return hs.layer_hessian(problem, "inner.0")
        return hs.Hessian(problem) if kind == "hessian" else hs.GaussNewton(problem)

    shared, wanted = operator(), operator().dense()
    found: list[Tensor] = []
    together = threading.Barrier(3)

    def work() -> None:
        together.wait()
        found.append(shared @ torch.eye(len(wanted), dtype=torch.float64))

    threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=1800)
    assert len(found) == 3
    for one in found:
        torch.testing.assert_close(one, wanted, rtol=1e-12, atol=1e-14)


def test_the_model_is_left_alone_when_an_evaluation_raises() -> None:
    class Failing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()
            self.register_buffer("calls", torch.zeros(()))
            self.limit = 2

        def forward(self, x: Tensor) -> Tensor:
            self.calls.add_(1)
            if len(x) == 7:
                raise ArithmeticError("seven")
            return self.inner(x) * 1.0

    model = Failing().train()
    model.inner[0].weight.grad = torch.ones_like(model.inner[0].weight)
    before = fingerprint(model)
    problem = hs.Problem.of(model, "cross_entropy", [(X, Y), (X[:7], Y[:7])], freeze=True)
    with pytest.raises(InputError, match=r"must run on batch 1; got .* ArithmeticError: seven"):
        problem.gradient()
    assert_untouched(model, before)


def test_buffers_that_change_in_a_pass_begin_every_pass_alike() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()
            self.register_buffer("scale", torch.ones(()).double())

        def forward(self, x: Tensor) -> Tensor:
            self.scale.mul_(1.1)
            return self.inner(x) * self.scale

    model = Counting()
    problem = hs.Problem.of(model, "cross_entropy", (X, Y))
    expected = float(F.cross_entropy(1.1 * model.inner(X), Y).detach())
    assert problem.loss_value() == pytest.approx(expected, rel=1e-12)
    first, second = problem.gradient(), problem.gradient()
    assert torch.equal(first, second)
    assert float(model.scale) == 1.0


def test_training_on_does_not_change_a_problem() -> None:
    model = nn.Sequential(network(), nn.BatchNorm1d(2).double()).eval()
    problem = hs.Problem.of(model, "cross_entropy", (X, Y))
    before = hs.Hessian(problem).dense()
    with torch.no_grad():
        for tensor in (*model.parameters(), model[1].running_var):
            tensor.mul_(3.0)
    assert torch.equal(hs.Hessian(problem).dense(), before)


@pytest.mark.parametrize("around", [torch.no_grad, torch.inference_mode])
def test_derivatives_inside_no_grad_and_inference_mode(around: Callable[[], Any]) -> None:
    model = network()
    wanted = truth(model)
    with around():
        problem = hs.Problem.of(model, "cross_entropy", (X.clone(), Y.clone()))
        assert torch.allclose(hs.Hessian(problem).dense(), wanted, atol=1e-12)
        assert float(problem.gradient().norm()) > 0.1
        assert float(hs.eigenpairs(hs.Hessian(problem), k=1).values[0]) == pytest.approx(
            float(torch.linalg.eigvalsh(wanted)[-1]), rel=1e-6
        )


def test_parameters_and_data_made_in_inference_mode() -> None:
    with torch.inference_mode():
        model = network()
        data = (X.clone(), Y.clone())
    problem = hs.Problem.of(model, "cross_entropy", data)
    assert torch.allclose(hs.Hessian(problem).dense(), truth(network()), atol=1e-12)


def test_surrounding_autocast_does_not_round_the_problem() -> None:
    model = network().float()
    data = (X.float(), Y)
    plain = hs.Problem.of(model, "cross_entropy", data).gradient()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = hs.Problem.of(model, "cross_entropy", data).gradient()
    assert torch.equal(plain, rounded)


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.inner, self.reentrant = network(), reentrant

    def forward(self, x: Tensor) -> Tensor:
        hidden = checkpoint(self.inner[:2], x, use_reentrant=self.reentrant)
        return self.inner[2](hidden)


def test_checkpointing_is_right_or_refused() -> None:
    assert torch.allclose(hessian(Checkpointed(False)), truth(network()), atol=1e-12)
    moved = hs.Problem.of(Checkpointed(False), "cross_entropy", (X, Y))
    leaves = {name: (2 * p).requires_grad_() for name, p in moved.parameters.items()}
    (x, y) = next(iter(moved.batches))
    elsewhere = moved.batch_gradient((x, y), leaves, create_graph=False)
    twice = moved.at({name: 2 * p for name, p in moved.parameters.items()})
    assert torch.allclose(twice.space.pack(elsewhere, X) / len(X), twice.gradient(), atol=1e-12)
    problem = hs.Problem.of(Checkpointed(False).float(), "cross_entropy", (X.float(), Y))
    assert problem.probe.gradient().dtype == torch.float64  # recomputed at the parameters of the cast problem
    with pytest.raises(InputError, match="use_reentrant=False"):
        hs.Problem.of(Checkpointed(True), "cross_entropy", (X, Y))


def _weight_norm() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = nn.Sequential(nn.utils.weight_norm(nn.Linear(3, 4)), nn.Tanh(), nn.Linear(4, 2)).double()
    model(X)  # the derived weight is now a tensor with a history, which deepcopy refuses
    return model


def _patched() -> nn.Module:
    model = network()
    inner = model[0].forward
    model[0].forward = lambda x: 2 * inner(x)
    return model


def _hooked() -> nn.Module:
    model = network()
    model[0].register_forward_hook(lambda module, args, output: output + 0.1 * model[0].weight.sum())
    return model


def _uncopyable() -> nn.Module:
    model = network()
    model.generator = torch.Generator()  # type: ignore[assignment]
    model.lock = threading.Lock()  # type: ignore[assignment]
    return model


def _compiled(by: Callable[[nn.Module], nn.Module]) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return by(network())


def _scripted() -> nn.Module:
    return _compiled(torch.jit.script)


def _traced() -> nn.Module:
    return _compiled(lambda model: torch.jit.trace(model, X))


@pytest.mark.parametrize("make", [_weight_norm, _patched, _hooked, _uncopyable, _scripted, _traced])
def test_models_that_are_hard_to_copy(make: Callable[[], nn.Module]) -> None:
    model = make()
    problem = hs.Problem.of(model, "cross_entropy", (X, Y))

    def gradient() -> Tensor:
        found = torch.autograd.grad(F.cross_entropy(model(X), Y), list(model.parameters()))
        return torch.cat([g.reshape(-1) for g in found])

    assert torch.allclose(problem.gradient(), gradient(), atol=1e-12)
    assert all(isinstance(p, nn.Parameter) and p.requires_grad for p in model.parameters())
    moved = problem.at({name: 2 * p for name, p in problem.parameters.items()})
    here, there = problem.gradient(), moved.gradient()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    assert torch.allclose(there, gradient(), atol=1e-12)
    assert float((there - here).norm()) > 1e-3
    assert hs.check(hs.Problem.of(make().float(), "cross_entropy", (X.float(), Y))).passed


def test_a_loss_that_ignores_the_model_it_is_given() -> None:
    model = network()
    problem = hs.Problem.of(model, lambda _: F.cross_entropy(model(X), Y))
    assert torch.allclose(hs.Hessian(problem).dense(), truth(model), atol=1e-12)
    weight = model[0].weight
    with pytest.raises(InputError, match=r"holds on to the tensor '0\.weight' itself"):
        hs.Problem.of(model, lambda net: F.cross_entropy(net(X), Y) + weight.square().sum())


def test_embeddings_that_are_not_functions_of_their_weights_are_refused() -> None:
    tokens = torch.randint(0, 5, (30, 2))
    for settings, words in (({"max_norm": 1.0}, "leave the parameters"), ({"scale_grad_by_freq": True}, "by_freq")):
        model = nn.Sequential(nn.Embedding(5, 3, **settings), nn.Flatten(), nn.Linear(6, 2))
        before = fingerprint(model)
        with pytest.raises(InputError, match=words):
            hs.Problem.of(model, "cross_entropy", (tokens, Y))
        assert_untouched(model, before)
    torch.manual_seed(0)
    sparse = nn.Sequential(nn.Embedding(5, 3, sparse=True), nn.Flatten(), nn.Linear(6, 2))
    found = hs.Hessian(hs.Problem.of(sparse, "cross_entropy", (tokens, Y))).dense()
    sparse[0].sparse = False  # type: ignore[assignment]
    assert torch.allclose(found, hs.Hessian(hs.Problem.of(sparse, "cross_entropy", (tokens, Y))).dense())


def test_data_that_a_model_changes_in_place_is_left_alone() -> None:
    class Scaling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def forward(self, x: Tensor) -> Tensor:
            x.mul_(2.0)
            return self.inner(x)

    model, data = Scaling(), X.clone()
    problem = hs.Problem.of(model, "cross_entropy", (data, Y))
    value = problem.loss_value()
    problem.gradient()
    assert torch.equal(data, X)
    assert value == pytest.approx(float(F.cross_entropy(model(X.clone()), Y).detach()), rel=1e-12)


class _Forgetful(nn.Module):
    """Copies itself without what was set after it was made."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.scale = nn.Linear(4, 3), 2.0

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * torch.tanh(self.linear(x))

    def __deepcopy__(self, memo: Any) -> _Forgetful:
        made = _Forgetful()
        made.load_state_dict(self.state_dict())
        return made


def test_what_a_models_own_copy_leaves_out_counts() -> None:
    torch.manual_seed(0)
    model, x, y = _Forgetful().double(), torch.randn(9, 4).double(), torch.arange(9) % 3
    model.scale = 5.0
    problem = hs.Problem.of(model, "cross_entropy", (x, y))
    assert problem.loss_value() == pytest.approx(float(F.cross_entropy(model(x), y).detach()), rel=1e-12)
