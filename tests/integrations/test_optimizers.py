"""Optimisers as trainers wrap them and as their checkpoints hold them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from lightning.pytorch.core.optimizer import LightningOptimizer

import hesscope as hs


def test_a_trainers_optimiser_its_checkpoint_and_lightnings_say_the_same(tmp_path: Path) -> None:
    """Accelerate wraps it; the checkpoint has two groups without names; Lightning makes a subclass."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=31, n_positions=8, n_embd=8, n_layer=1, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0
    )
    model = transformers.GPT2LMHeadModel(config)
    tokens = torch.randint(0, 31, (16, 8))
    settings = transformers.TrainingArguments(
        str(tmp_path),
        max_steps=4,
        per_device_train_batch_size=8,
        save_steps=4,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        lr_scheduler_type="constant",
    )
    rows = [{"input_ids": row, "labels": row} for row in tokens]
    trainer = transformers.Trainer(model, settings, train_dataset=rows)
    trainer.train()

    def loss(network: Any, batch: Any) -> tuple[torch.Tensor, int]:
        return network(**batch).loss * len(batch["labels"]), len(batch["labels"])

    problem = hs.Problem.of(model.eval(), loss, [{"input_ids": tokens, "labels": tokens}])
    saved = torch.load(tmp_path / "checkpoint-4/optimizer.pt", weights_only=True)
    assert len(saved["param_groups"]) == 2
    wrapped = LightningOptimizer(trainer.optimizer.optimizer)
    found = [hs.read_optimizer(problem, given) for given in (trainer.optimizer, saved, wrapped)]
    assert [state.name for state in found] == ["AdamW"] * 3
    assert found[0].steps == 4
    for other in found[1:]:
        torch.testing.assert_close(other.inverse_preconditioner, found[0].inverse_preconditioner)
        assert other.edge == found[0].edge
