"""What hs.plan says against what a process really takes, and who may cut batches when memory is short."""

from __future__ import annotations

import ctypes
import gc
import json
import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import hesscope as hs
from hesscope.curvature.engines.graphs import GradientGraphs
from hesscope.curvature.engines.memory import counting_saved_bytes, parse_bytes
from hesscope.curvature.proofs import independence
from hesscope.curvature.proofs.derivatives import prove_hessian
from hesscope.curvature.proofs.independence import examples_to_look_at
from hesscope.errors import HesscopeError, InputError
from hesscope.linalg.memory import vectors_that_fit
from hesscope.memory import free_bytes
from offspring import Child


def network(kind: str) -> tuple[nn.Module, Tensor]:
    if kind == "mlp":
        wide = nn.Sequential(nn.Linear(128, 512), nn.Tanh(), nn.Linear(512, 256), nn.Tanh(), nn.Linear(256, 10))
        return wide, torch.randn(8192, 128)
    convolutions = (nn.Conv2d(3, 16, 3, padding=1), nn.GELU(), nn.Conv2d(16, 16, 3, padding=1), nn.GELU())
    return nn.Sequential(*convolutions, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 10)), torch.randn(
        1024, 3, 16, 16
    )


def status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


def measure(kind: str, memory: str) -> None:
    torch.manual_seed(0)
    warnings.simplefilter("ignore")  # of pairs that three products do not find
    model, x = network(kind)
    y, step = torch.arange(len(x)) % 10, len(x) // 16
    batches = [(x[i : i + step], y[i : i + step]) for i in range(0, len(x), step)]
    problem = hs.Problem.of(model, "cross_entropy", batches, memory=memory)
    plan = hs.plan(problem, "eigenpairs", k=1, max_products=3)
    hs.Hessian(problem.subset(16)) @ torch.ones(problem.space.size)
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # what earlier steps freed is theirs
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    H = hs.Hessian(problem)
    hs.eigenpairs(H, k=1, tol=0.9, max_products=3)
    kept = H._engine.kept_batches / len(batches)
    print(json.dumps({"plan": plan.bytes, "share": plan.kept, "kept": kept, "peak": status("VmHWM") - before}))


def measure_gaps() -> None:
    """What a process holds after many graphs went to a file, one after the other."""
    torch.manual_seed(0)
    wide = [nn.Sequential(nn.LayerNorm(256), nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256)) for _ in range(4)]
    model = nn.Sequential(nn.Linear(64, 256), *wide, nn.Linear(256, 10))
    batches = [(torch.randn(400, 64), torch.randint(0, 10, (400,))) for _ in range(24)]
    problem = hs.Problem.of(model, "cross_entropy", batches, memory="1MB")
    prove_hessian(problem)
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    before, H = status("VmRSS"), hs.Hessian(problem)
    H @ torch.ones(problem.space.size)
    assert H._engine._file is not None
    print(json.dumps({"file": H._engine._file.size, "held": status("VmRSS") - before}))


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs /proc to measure")
def test_graphs_in_a_file_leave_no_gaps_in_memory(tmp_path: Path) -> None:
    """The nodes of graphs stay, and lie between what went to the file: the system gets that back."""
    child = Child(measure_gaps, folder=tmp_path)
    assert child.wait() == 0, child.err
    found = json.loads(child.out)
    assert found["file"] > 500e6
    assert found["held"] < 0.12 * found["file"]


class Recomputing(nn.Module):
    """Blocks whose insides are not kept, on one long sequence."""

    def __init__(self, recompute: bool) -> None:
        super().__init__()
        wide = [nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(6)]
        self.blocks, self.recompute = nn.ModuleList(wide), recompute

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + (checkpoint(block, x, use_reentrant=False) if self.recompute else block(x))
        return x.mean(1)


def measure_recomputing(recompute: bool) -> None:
    torch.manual_seed(0)
    problem = hs.Problem.of(Recomputing(recompute), "cross_entropy", (torch.randn(1, 2048, 64), torch.tensor([3])))
    prove_hessian(problem)
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    hs.Hessian(problem) @ torch.ones(problem.space.size)
    print(json.dumps({"peak": status("VmHWM") - before}))


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs /proc to measure")
def test_a_look_at_recomputed_parts_does_not_hold_them(tmp_path: Path) -> None:
    peaks = []
    for recompute in (False, True):
        child = Child(measure_recomputing, recompute, folder=tmp_path)
        assert child.wait() == 0, child.err
        peaks.append(json.loads(child.out)["peak"])
    assert peaks[1] < 1.5 * peaks[0]


class OneTextAtATime(nn.Module):
    """A vocabulary of 20,000 behind texts of 512 tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(20_000, 16), nn.Linear(16, 20_000, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(torch.tanh(self.embedding(tokens))).transpose(1, 2)


def measure_texts() -> None:
    """What a problem of several long texts takes to be made."""
    torch.manual_seed(0)
    tokens, labels = (torch.randint(0, 20_000, (8, 512)) for _ in range(2))
    few = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    hs.Hessian(hs.Problem.of(few, "cross_entropy", (torch.randn(9, 4), torch.arange(9) % 2))) @ torch.ones(23)
    gc.collect()
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    hs.Problem.of(OneTextAtATime(), "cross_entropy", (tokens, labels), batch_size=1)
    print(json.dumps({"peak": status("VmHWM") - before}))


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs /proc to measure")
def test_a_problem_of_long_texts_is_made_beside_their_logits(tmp_path: Path) -> None:
    """Three texts are looked at in float64, and eight as they are: not many times as much for what is derived from them."""
    child = Child(measure_texts, folder=tmp_path)
    assert child.wait() == 0, child.err
    assert json.loads(child.out)["peak"] < 4 * (3 * 512 * 20_000 * 8)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs /proc to measure")
@pytest.mark.parametrize(("kind", "memory"), [("mlp", "75MB"), ("cnn", "75MB"), ("cnn", "2GB")])
def test_the_plan_is_what_a_process_takes(kind: str, memory: str, tmp_path: Path) -> None:
    child = Child(measure, kind, memory, folder=tmp_path)
    assert child.wait() == 0, child.err
    found = json.loads(child.out)
    assert abs(found["share"] - found["kept"]) <= 1 / 16
    assert found["share"] > 0.3
    assert found["peak"] <= 1.5 * found["plan"]
    assert found["plan"] <= 1.5 * found["peak"]


def test_a_view_of_much_data_takes_no_more_than_its_own_examples() -> None:
    """Batches are often slices of one tensor: what autograd saves of them is there already."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(50, 6), nn.Tanh(), nn.Linear(6, 3))
    x, y = torch.randn(4000, 50), torch.arange(4000) % 3
    slices = [(x[i : i + 40], y[i : i + 40]) for i in range(0, 4000, 40)]
    copies = [(a.clone(), b.clone()) for a, b in slices]
    found, other = (GradientGraphs(hs.Problem.of(model, "cross_entropy", batches)).size for batches in (slices, copies))
    assert found == other
    assert found.per_example < 6 * 4 * 20  # a few numbers for each of the six hidden units
    assert found.of(40) <= 40 * found.per_example + 4000
    # A graph of joined batches has a copy of its examples.
    assert found.of(40, copied=True) - found.of(40) == 40 * (50 * 4 + 8)


def test_only_what_a_graph_still_holds_is_counted() -> None:
    x = torch.randn(1000, requires_grad=True)
    with counting_saved_bytes({x.untyped_storage().data_ptr()}) as count:
        kept = x.exp().sin()
        x.exp().exp().sum().backward()  # used up, and given back
        assert count() == 4000  # exp saves its result, and sin the same as its input
        del kept
        assert count() == 0


def test_one_answer_to_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a machine on which nobody else takes or gives back memory meanwhile."""
    assert free_bytes() > 0
    monkeypatch.setattr("hesscope.memory._free_on_machine", lambda: 8 * 10**9)
    monkeypatch.setattr("hesscope.memory._free_in_container", lambda: float("inf"))
    assert free_bytes() == 8 * 10**9
    assert parse_bytes(0.5, torch.device("cpu")) == 4 * 10**9
    assert vectors_that_fit(hs.Dense(torch.eye(1000))) == 8 * 10**9 // 4 // 4000
    monkeypatch.setattr("hesscope.memory._free_in_container", lambda: 10**9)
    assert free_bytes() == 10**9


def test_a_process_may_be_told_how_much_it_may_hold(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("hesscope.memory._free_on_machine", lambda: 8 * 10**9)
    status = tmp_path / "status"
    status.write_text("VmRSS:\t 9000000 kB\nRssAnon:\t 1000000 kB\nRssFile:\t 8000000 kB\n")
    monkeypatch.setattr("hesscope.memory._STATUS", status)
    monkeypatch.setenv("HESSCOPE_MEMORY", "3GB")
    assert free_bytes() == 3 * 10**9 - 1024 * 10**6
    monkeypatch.setenv("HESSCOPE_MEMORY", "500 MB")
    assert free_bytes() == 0
    monkeypatch.setenv("HESSCOPE_MEMORY", "much")
    with pytest.raises(InputError, match="HESSCOPE_MEMORY must be bytes"):
        free_bytes()
    monkeypatch.setenv("HESSCOPE_MEMORY", "")
    assert free_bytes() > 2 * 10**9


def greedy(most: int) -> type[nn.Module]:
    class Greedy(nn.Module):
        """Refuses more than so many examples where gradients are recorded, as a device with little memory would."""

        def __init__(self, centred: bool) -> None:
            super().__init__()
            self.linear, self.centred = nn.Linear(3, 2), centred

        def forward(self, x: Tensor) -> Tensor:
            if len(x) > most and self.linear.weight.requires_grad:
                raise torch.OutOfMemoryError("pretended")
            out: Tensor = self.linear(x)
            return out - out.mean(0) if self.centred else out

    return Greedy


def test_batches_whose_examples_see_each_other_are_not_halved() -> None:
    torch.manual_seed(0)
    data = (torch.randn(24, 3), torch.arange(24) % 2)
    problem = hs.Problem.of(greedy(20)(True), "cross_entropy", data)
    with pytest.raises(HesscopeError, match="see each other"):
        hs.Hessian(problem, unchecked=True) @ torch.ones(problem.space.size)


def test_a_loss_that_changes_in_a_later_batch_is_refused() -> None:
    calls = [0]  # not the model's own, which every pass begins with as they were

    class Drifts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            calls[0] += 1
            found: Tensor = self.linear(x) * (1 + 0.1 * (calls[0] if len(x) == 5 else 0))
            return found

    torch.manual_seed(0)
    batches = [(torch.randn(n, 3), torch.arange(n) % 2) for n in (8, 8, 5)]
    problem = hs.Problem.of(Drifts(), "cross_entropy", batches)
    with pytest.raises(HesscopeError, match="fixed function"):
        hs.Hessian(problem, unchecked=True) @ torch.ones(problem.space.size)


@pytest.mark.parametrize("memory", [0, "20kB", None])
def test_products_do_not_depend_on_memory(memory: float | str | None) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).double()
    batches = [(torch.randn(n, 3).double(), torch.arange(n) % 2) for n in (16, 5, 16)]
    whole = hs.Hessian(hs.Problem.of(model, "cross_entropy", batches, memory="1GB"))
    other = hs.Hessian(hs.Problem.of(model, "cross_entropy", batches, memory=memory))
    v = torch.randn(whole.shape[1], 2).double()
    assert torch.allclose(whole @ v, other @ v, rtol=1e-12, atol=1e-14)


def test_long_texts_over_a_large_vocabulary_are_looked_at_three_at_a_time() -> None:
    """Whether examples see each other shows on three as on eight, whose logits in float64 would fill memory."""
    ids, few = torch.zeros(20, 1024, dtype=torch.long), [torch.zeros(4, 4), torch.zeros(10, 2)]
    assert examples_to_look_at({"input_ids": ids, "labels": ids}, [*few, torch.zeros(50_257, 1)]) == 3
    assert examples_to_look_at((ids[:, :64], ids[:, :64]), [*few, torch.zeros(8_192, 1)]) == 8
    assert examples_to_look_at((torch.zeros(20, 3, 224, 224), ids[:, 0]), [*few, torch.zeros(4096, 1)]) == 8
    assert examples_to_look_at(None, few) == 8


@pytest.mark.parametrize("see_each_other", [False, True])
def test_three_examples_tell(see_each_other: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(independence, "_OUTPUT_BYTES", 1)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.map = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.map(x - x.mean(0) if see_each_other else x)

    torch.manual_seed(0)
    problem = hs.Problem.of(Model(), "mse", (torch.randn(9, 3), torch.randn(9, 2)))
    assert len(problem._few[0][0]) == 3
    assert problem.divisible is not see_each_other


def test_one_example_is_not_taken_apart_in_another_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(self: hs.Problem, batches: object) -> hs.Problem:
        raise AssertionError("there is nothing to find out")

    monkeypatch.setattr("hesscope.curvature.problem.exact", never)
    assert not hs.Problem.of(nn.Linear(3, 2), "mse", (torch.randn(1, 3), torch.randn(1, 2))).divisible
