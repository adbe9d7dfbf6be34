"""The callback in a real training of transformers: same weights, in the trainer's own log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from hesscope.integrations.transformers import CurvatureCallback
from hesscope.results.monitoring import load_run

pytestmark = pytest.mark.filterwarnings("ignore")


def _rows(count: int) -> list[dict[str, Any]]:
    ids = torch.randint(0, 30, (count, 7), generator=torch.Generator().manual_seed(0))
    return [{"input_ids": row, "labels": row} for row in ids]


def _train(folder: Path, watch: dict[str, Any] | None, steps: int = 4) -> tuple[Any, Any]:
    transformers.set_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=30,
        hidden_size=8,
        intermediate_size=12,
        num_hidden_layers=1,
        num_attention_heads=2,
        attention_dropout=0.1,
    )
    model = transformers.LlamaForCausalLM(config)
    args = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=4,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
        learning_rate=1e-2,
        lr_scheduler_type="constant",
    )
    trainer = transformers.Trainer(model, args, train_dataset=_rows(16), eval_dataset=_rows(8))
    if watch is not None:
        trainer.add_callback(CurvatureCallback(trainer, **watch))
    trainer.train()
    return model, trainer


def test_the_training_is_the_same_and_the_trainer_logs_it(tmp_path: Path) -> None:
    alone, _ = _train(tmp_path / "a", None)
    watched, trainer = _train(tmp_path / "b", {"every": 2, "budget": None, "on_error": "raise"})
    for name, value in alone.state_dict().items():
        assert torch.equal(value, watched.state_dict()[name]), name
    run = load_run(tmp_path / "b" / "curvature.jsonl")
    assert run.steps.tolist() == [1, 2, 4]
    logged = {row["step"]: row for row in trainer.state.log_history if "curvature/sharpness" in row}
    assert sorted(logged) == [1, 2, 4]
    assert logged[4]["curvature/sharpness"] == pytest.approx(run.readings[-1].sharpness)
    assert run.readings[-1].optimizer == "AdamW"
    assert run.readings[0].gauss_newton_share is not None
    ids = torch.stack([row["input_ids"] for row in _rows(8)])
    own = watched.eval()(input_ids=ids, labels=ids).loss.detach()
    assert run.readings[-1].loss == pytest.approx(float(own), rel=1e-4)
