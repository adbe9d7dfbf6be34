"""Checkpoints that the real packages wrote: the problem at them is that of the model with those weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning
import peft
import pytest
import safetensors.torch
import torch
import transformers
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import hesscope as hs
from hesscope.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore")

X = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))
Y = torch.arange(24) % 3


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))


class Lit(lightning.LightningModule):  # type: ignore[misc]
    def __init__(self, width: int = 5) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net = network()

    def forward(self, x: Tensor) -> Any:
        return self.net(x)

    def training_step(self, batch: Any, index: int) -> Tensor:
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), 0.05)


def tiny_gpt(tie: bool = True) -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=1, n_head=2, n_embd=8, vocab_size=20, n_positions=8, tie_word_embeddings=tie
    )
    return transformers.GPT2LMHeadModel(config).eval()


TOKENS = torch.randint(0, 20, (4, 6), generator=torch.Generator().manual_seed(1))
BATCHES = [{"input_ids": TOKENS, "labels": TOKENS}]


def moved(model: nn.Module, by: float) -> Any:
    with torch.no_grad():
        for p in model.parameters():
            p.add_(by * torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel())))
    return model


def same(found: hs.Problem, truth: hs.Problem) -> bool:
    v = torch.randn(truth.space.size, generator=torch.Generator().manual_seed(3))
    return found.loss_value() == truth.loss_value() and torch.equal(hs.Hessian(found) @ v, hs.Hessian(truth) @ v)


def test_lightning_checkpoints_along_a_run(tmp_path: Path) -> None:
    """With hyperparameters, optimiser states, loops and callbacks in the files, and the prefix of the module."""
    torch.manual_seed(0)
    lit = Lit()
    start = hs.Problem.of(network().eval(), "cross_entropy", (X, Y))
    keep = ModelCheckpoint(tmp_path / "runs", save_top_k=-1, filename="{epoch}-{step}")
    trainer = lightning.Trainer(
        max_epochs=3, callbacks=[keep], logger=False, enable_progress_bar=False, enable_model_summary=False,
        accelerator="cpu", default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(lit, DataLoader(TensorDataset(X, Y), batch_size=12))
    along = start.along(tmp_path / "runs")
    assert list(along) == ["2", "4", "6"]
    assert same(along["6"], hs.Problem.of(lit.net.eval(), "cross_entropy", (X, Y)))
    assert along["2"].loss_value() != along["4"].loss_value()
    whole = hs.Problem.of(Lit().eval(), "cross_entropy", (X, Y))
    assert same(whole.at(tmp_path / "runs" / "epoch=2-step=6.ckpt"), hs.Problem.of(lit.eval(), "cross_entropy", (X, Y)))


def test_safetensors_files(tmp_path: Path) -> None:
    model = network().eval()
    later = moved(network(), 0.1).eval()
    safetensors.torch.save_file(later.state_dict(), tmp_path / "later.safetensors", metadata={"format": "pt"})
    start = hs.Problem.of(model, "cross_entropy", (X, Y))
    assert same(start.at(tmp_path / "later.safetensors"), hs.Problem.of(later, "cross_entropy", (X, Y)))
    safetensors.torch.save_file({**later.state_dict(), "other": X}, tmp_path / "unknown.safetensors")
    with pytest.raises(InputError, match="other"):
        start.at(tmp_path / "unknown.safetensors")


@pytest.mark.parametrize("tie", [True, False])
def test_hugging_face_folders_along_training(tmp_path: Path, tie: bool) -> None:
    """Tied weights are saved once; large ones in shards."""
    model = tiny_gpt(tie)
    start = hs.Problem.of(model, data=BATCHES)
    for step, size in ((5, "10MB"), (50, "2KB")):
        model = moved(tiny_gpt(tie), 0.01 * step)
        model.save_pretrained(tmp_path / f"checkpoint-{step}", max_shard_size=size)
    assert len(list((tmp_path / "checkpoint-50").glob("*.safetensors"))) > 1
    along = start.along(tmp_path)
    assert list(along) == ["5", "50"]
    assert same(along["50"], hs.Problem.of(model, data=BATCHES))


def test_folders_of_the_trainer(tmp_path: Path) -> None:
    model = tiny_gpt()
    start = hs.Problem.of(model, data=BATCHES)
    arguments = transformers.TrainingArguments(
        str(tmp_path / "out"), max_steps=4, save_steps=2, report_to=[], use_cpu=True, disable_tqdm=True,
        per_device_train_batch_size=2,
    )  # fmt: skip
    rows = [{"input_ids": row, "labels": row} for row in TOKENS]
    transformers.Trainer(model, arguments, train_dataset=rows).train()
    along = start.along(tmp_path / "out")
    assert list(along) == ["2", "4"]
    assert same(along["4"], hs.Problem.of(model.eval(), data=BATCHES))


def test_adapters(tmp_path: Path) -> None:
    """A PEFT folder holds the adapters alone, which are all that is selected."""

    def adapted(seed: int) -> Any:
        torch.manual_seed(seed)
        config = peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM")
        return peft.get_peft_model(tiny_gpt(), config).eval()

    start, later = adapted(0), moved_adapters(adapted(1))
    later.save_pretrained(tmp_path / "adapter")
    found = hs.Problem.of(start, data=BATCHES).at(tmp_path / "adapter")
    assert same(found, hs.Problem.of(later, data=BATCHES))


def moved_adapters(model: Any) -> Any:
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_" in name:
                p.add_(0.1)
    return model
