"""Checkpoint folders and text: loaded without downloads and without foreign code, from the library and the commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import tokenizers
import torch
import transformers as tf
from torch import Tensor

import hesscope as hs
from hesscope.cli import main
from hesscope.errors import InputError
from integrations.tiny_models import bert, gpt2, llama, seeded

WORDS = ["[UNK]", "[MASK]", "a", "cat", "sat", "down"]
STORY = "a cat sat down a cat sat a down cat a sat " * 20


def save_tokenizer(folder: Path) -> None:
    raw = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    raw.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tf.PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="[UNK]", mask_token="[MASK]").save_pretrained(folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "model"
    seeded(gpt2).float().save_pretrained(place)
    save_tokenizer(place)
    (tmp_path / "story.txt").write_text(STORY)
    return place


def numbers(length: int) -> Tensor:
    return torch.tensor([WORDS.index(word) for word in STORY.split()])[:length]


def test_a_folder_on_text_is_the_loss_of_its_model(folder: Path) -> None:
    problem = hs.huggingface.problem_of(folder, folder.parent / "story.txt", sequences=3, batch_size=2)
    assert [len(batch["labels"]) for batch in problem.batches] == [2, 1]
    first = next(iter(problem.batches))["input_ids"]
    assert torch.equal(first[0], numbers(5))  # the model has five positions
    model = seeded(gpt2).float().eval()
    values = [float(model(**batch).loss.detach()) for batch in problem.batches]
    assert problem.loss_value() == pytest.approx((2 * values[0] + values[1]) / 3, rel=1e-5)
    assert not problem.model.training


def test_token_numbers_need_no_tokenizer(folder: Path, tmp_path: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    np.savez(tmp_path / "story.npz", tokens=numbers(100).numpy().astype(np.uint16), offsets=np.arange(3))
    np.save(tmp_path / "story.npy", numbers(100).numpy())
    a, b = (hs.huggingface.problem_of(folder, tmp_path / f"story.{end}") for end in ("npz", "npy"))
    assert a.loss_value() == b.loss_value()
    with pytest.raises(InputError, match="must hold a tokenizer where text is given"):
        hs.huggingface.problem_of(folder, tmp_path / "story.txt")


def test_a_masked_model_predicts_masked_tokens(folder: Path) -> None:
    seeded(lambda: bert("MaskedLM")).float().save_pretrained(folder)
    problem = hs.huggingface.problem_of(folder, folder.parent / "story.txt", sequences=16)
    batch = next(iter(problem.batches))
    hidden = batch["labels"] != -100
    assert bool((batch["input_ids"][hidden] == 1).all())
    assert bool(hidden.any(1).all())
    assert float(hidden.float().mean()) < 0.5


def test_adapters_come_with_their_base(folder: Path, tmp_path: Path) -> None:
    config = peft.LoraConfig(r=2, target_modules=["c_attn"], task_type="CAUSAL_LM", fan_in_fan_out=True)
    base = tf.GPT2LMHeadModel.from_pretrained(folder)
    peft.get_peft_model(base, config).save_pretrained(tmp_path / "adapter")
    problem = hs.huggingface.problem_of(tmp_path / "adapter", tmp_path / "story.txt", sequences=2)
    assert all("lora_" in name for name in problem.space.names)
    place = tmp_path / "adapter/adapter_config.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), "base_model_name_or_path": "someone/model"}))
    with pytest.raises(InputError, match="base model of an adapter must be a local folder; got 'someone/model'"):
        hs.huggingface.load_model(tmp_path / "adapter")


def test_commands_take_a_folder(folder: Path, tmp_path: Path, capsys: Any) -> None:
    text = ["--text", str(tmp_path / "story.txt"), "--sequences", "4"]
    assert main(["check", f"hf:{folder}", *text]) == 0
    assert "passed" in capsys.readouterr().out
    assert main(["blocks", f"hf:{folder}", *text, "--by", "head", "--out", str(tmp_path / "out")]) == 0
    assert main(["analyze", f"hf:{folder}", *text, "--budget", "20s", "--out", str(tmp_path / "all")]) == 0
    assert (tmp_path / "all" / "report.html").stat().st_size > 100_000
    assert main(["check", f"hf:{folder}"]) == 2
    assert "hf:FOLDER needs data; got no --text" in capsys.readouterr().err
    assert main(["check", "--preset", "mlp-digits", *text]) == 2
    assert "--text belongs to hf:FOLDER" in capsys.readouterr().err


def bad_architecture(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["TheirModel"], "auto_map": {"x": "y"}}))


def other_weights(folder: Path) -> None:
    seeded(llama).save_pretrained(folder / "other")
    (folder / "other/model.safetensors").rename(folder / "model.safetensors")


def cut(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:100])


BAD = {
    "code of its own": (bad_architecture, "must name a model of transformers in 'architectures'; got ['TheirModel']"),
    "weights of another model": (other_weights, "must be those of the model that config.json names"),
    "half a file": (cut, "must hold a model that transformers loads"),
    "pickled weights": (lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"), "must be safetensors"),
    "no config": (lambda f: (f / "config.json").unlink(), "must be a folder with config.json"),
    "no JSON": (lambda f: (f / "config.json").write_text("{"), "config.json must be JSON"),
}


@pytest.mark.parametrize("name", list(BAD))
def test_bad_folders_are_named(name: str, folder: Path) -> None:
    change, message = BAD[name]
    change(folder)
    with pytest.raises(InputError) as caught:
        hs.huggingface.load_model(folder)
    assert message in str(caught.value)


def test_bad_text_is_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("a cat")
    (tmp_path / "latin.txt").write_bytes(b"\xff\xfe\xfa")
    np.save(tmp_path / "real.npy", np.ones(20))
    for file, message in {
        "short.txt": "at least 5 tokens, one sequence; got 2",
        "latin.txt": "must be UTF-8",
        "real.npy": "tokens must be whole numbers; got float64",
        "none.txt": "the text must be a file",
    }.items():
        with pytest.raises(InputError, match=message):
            hs.huggingface.problem_of(folder, tmp_path / file)
    with pytest.raises(InputError, match="at most 5 tokens, the positions of the model; got 9"):
        hs.huggingface.problem_of(folder, tmp_path / "story.txt", length=9)
    seeded(lambda: bert("SequenceClassification")).float().save_pretrained(folder)
    with pytest.raises(InputError, match="must predict the next token, or masked ones"):
        hs.huggingface.problem_of(folder, tmp_path / "story.txt")


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[2] / "docs/howto/huggingface.md"
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {"__name__": "page"}
    blocks = page.read_text().split("```python\n")[1:]
    assert len(blocks) >= 5
    for number, block in enumerate(blocks):
        exec(compile(block.split("```")[0], f"{page.name}[{number}]", "exec"), space)
