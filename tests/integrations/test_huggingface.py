"""Hugging Face models: every number against dense double backward of the model's own loss, in float64."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf
from torch import nn

import hesscope as hs
from hesscope.errors import HesscopeError, InputError
from integrations.tiny_models import (
    CASES,
    Batch,
    Case,
    batches_of,
    bert,
    dense_gauss_newton,
    dense_truth,
    exactly,
    gpt2,
    llama,
    lora,
    pictures,
    roberta,
    seeded,
    t5,
    text,
    tokens,
    trained,
    translated,
    vit,
)

EXACT = 1e-10


def close(found: Any, truth: Any) -> bool:
    """Equal to 1e-10 of the largest entry."""
    a, b = np.asarray(found, dtype=float), np.asarray(truth, dtype=float)
    return a.shape == b.shape and float(np.abs(a - b).max()) <= EXACT * float(np.abs(b).max())


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_everything_is_that_of_the_models_own_loss(case: Case) -> None:
    model, batches = seeded(case.make), batches_of(case)
    loss, truth = dense_truth(copy.deepcopy(model), case, batches)
    problem = hs.Problem.of(model, data=batches)
    assert problem.space.size == sum(p.numel() for p in trained(model))
    assert problem.loss_value() == pytest.approx(loss, rel=EXACT)
    H, G = hs.Hessian(problem), hs.GaussNewton(problem)
    assert close(H.dense(), truth)
    assert close(G.dense(), dense_gauss_newton(copy.deepcopy(model), case, batches))
    trace, diagonal, pairs = hs.trace(H), hs.diagonal(H), hs.eigenpairs(H, k=3)
    assert trace.exact
    assert close(trace.value, float(truth.trace()))
    assert diagonal.exact
    assert close(diagonal.value, truth.diagonal())
    assert close(pairs.values, torch.linalg.eigvalsh(truth).flip(0)[:3])
    partition = hs.Partition.by("tensor", problem)
    found, parts = hs.block_norms(problem, partition), [partition.labels == b for b in range(partition.count)]
    assert found.exact
    assert close(found.norms, [[float(truth[a][:, b].norm()) for b in parts] for a in parts])


def test_the_users_model_and_its_configuration_stay_as_they_are() -> None:
    model = seeded(lambda: bert("SequenceClassification", num_labels=3)).train()
    before, state = model.config.to_dict(), copy.deepcopy(model.state_dict())
    ids = tokens(2, 4, 0)
    hs.Hessian(hs.Problem.of(model, data=[{"input_ids": ids, "labels": torch.tensor([0, 2])}])).dense()
    assert model.config.to_dict() == before  # not even the problem type, which the model writes down itself
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in state.items())
    assert model.training


def test_batches_of_a_tokenizer_and_of_a_loader_with_a_collator() -> None:
    model, case = seeded(gpt2), CASES["gpt2, tied"]
    expected = hs.Problem.of(model, data=batches_of(case))
    encoded = hs.Problem.of(model, data=[tf.BatchEncoding(dict(batch)) for batch in batches_of(case)])
    assert encoded.totals == expected.totals
    rows = [{name: value[k] for name, value in batch.items()} for batch in batches_of(case) for k in range(len(batch["labels"]))]  # fmt: skip
    loader: Any = torch.utils.data.DataLoader(rows, batch_size=2, collate_fn=tf.default_data_collator)
    assert hs.Problem.of(model, data=loader).loss_value() == pytest.approx(expected.loss_value(), rel=1e-12)


def test_several_batches_are_averaged_over_their_items() -> None:
    model, case = seeded(gpt2), CASES["gpt2, tied"]
    batches = batches_of(case)
    items = int(sum(case.count(batch) for batch in batches))
    with exactly():
        expected = float(sum(model(**batch, num_items_in_batch=items).loss.detach() for batch in batches))
    assert hs.Problem.of(model, data=batches).loss_value() == pytest.approx(expected, rel=EXACT)
    named = [{**batch, "num_items_in_batch": torch.tensor(items)} for batch in batches]
    assert hs.Problem.of(model, data=named).loss_value() == pytest.approx(expected, rel=EXACT)
    with pytest.raises(InputError, match=f"all batches together: {items}; got {items + 1}"):
        hs.Problem.of(model, data=[{**batch, "num_items_in_batch": items + 1} for batch in batches])


def recompute(model: Any, **settings: Any) -> None:
    """Checkpoint activations, by the name that this version of transformers has for it."""
    name = next(name for name in ("activation", "gradient") if hasattr(model, f"{name}_checkpointing_enable"))
    getattr(model, f"{name}_checkpointing_enable")(**{f"{name}_checkpointing_kwargs": settings or None})


@pytest.mark.parametrize("make", [gpt2, llama, t5], ids=["gpt2", "llama", "t5"])
def test_checkpointed_layers_run_again_as_they_ran(make: Any) -> None:
    model = seeded(make).train()
    batches = [translated(2, 0)]
    plain = hs.Hessian(hs.Problem.of(model, data=batches)).dense()
    recompute(model)
    problem = hs.Problem.of(model, data=batches)
    assert problem._evaluation.recomputes
    assert close(hs.Hessian(problem).dense(), plain)
    assert close(hs.GaussNewton(problem).dense(), hs.GaussNewton(hs.Problem.of(model.eval(), data=batches)).dense())


def test_reentrant_checkpointing_is_refused() -> None:
    model = seeded(gpt2).train()
    recompute(model, use_reentrant=True)
    with pytest.raises(InputError, match="use_reentrant=False"):
        hs.Problem.of(model, data=[text(2, 0)])


def test_compiled_models_run_as_they_were_written() -> None:
    expected = hs.Hessian(hs.Problem.of(seeded(gpt2), data=[text(2, 0)])).dense()
    in_place, inside, patched = seeded(gpt2), seeded(gpt2), seeded(gpt2)
    in_place.compile(backend="eager")
    inside.transformer.h[0] = torch.compile(inside.transformer.h[0], backend="aot_eager")
    patched.transformer.h[0].mlp.act = torch.compile(patched.transformer.h[0].mlp.act, backend="aot_eager")
    for model in (torch.compile(seeded(gpt2), backend="aot_eager"), in_place, inside, patched):
        assert close(hs.Hessian(hs.Problem.of(model, data=[text(2, 0)])).dense(), expected)


def test_autocast_inside_a_model_is_named() -> None:
    model = seeded(gpt2).float()
    forward = model.transformer.forward
    model.transformer.forward = torch.autocast("cpu", dtype=torch.bfloat16)(forward)
    try:
        found = hs.Hessian(hs.Problem.of(model, data=[text(4, 0)])).verified
    except HesscopeError as error:
        assert "autocast" in str(error) or "fixed function" in str(error) or "holds on" in str(error)  # noqa: PT017
    else:
        assert "the network computes in bfloat16 inside" in found
    with torch.autocast("cpu", dtype=torch.bfloat16):  # around the call: products are in the model's own type
        inside = hs.Problem.of(seeded(gpt2), data=[text(2, 0)]).loss_value()
    assert inside == hs.Problem.of(seeded(gpt2), data=[text(2, 0)]).loss_value()


@pytest.mark.parametrize(
    ("make", "name", "axis", "heads"),
    [
        (gpt2, "transformer.h.0.attn.c_attn.weight", 1, 6),
        (gpt2, "transformer.h.0.attn.c_proj.weight", 0, 2),
        (llama, "model.layers.0.self_attn.q_proj.weight", 0, 2),
        (llama, "model.layers.0.self_attn.k_proj.weight", 0, 1),
        (llama, "model.layers.0.self_attn.o_proj.weight", 1, 2),
        (lambda: bert("MaskedLM"), "bert.encoder.layer.0.attention.self.value.bias", 0, 2),
        (lambda: bert("MaskedLM"), "bert.encoder.layer.0.attention.output.dense.weight", 1, 2),
        (t5, "decoder.block.0.layer.1.EncDecAttention.k.weight", 0, 2),
        (t5, "encoder.block.0.layer.0.SelfAttention.o.weight", 1, 2),
        (t5, "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", 1, 2),
        (vit, "vit.layers.0.attention.q_proj.weight", 0, 2),
        (lora, "base_model.model.model.layers.0.self_attn.q_proj.lora_B.default.weight", 0, 2),
        (lora, "base_model.model.model.layers.0.self_attn.o_proj.lora_A.default.weight", 1, 2),
    ],
)
def test_heads_own_their_slices(make: Any, name: str, axis: int, heads: int) -> None:
    model = make()
    batch = pictures(2, 0) if make is vit else translated(2, 0)
    problem = hs.Problem.of(model.double().eval(), data=[batch])
    partition = hs.Partition.by("head", problem)
    shape = dict(zip(problem.space.names, problem.space.shapes, strict=True))[name]
    labels = partition.labels[problem.space.slice_of(name)].view(shape).movedim(axis, 0).reshape(shape[axis], -1)
    assert (labels == labels[:, :1]).all()
    slices = labels[:, 0].view(heads, -1)
    assert (slices == slices[:, :1]).all()
    named = [partition.names[k] for k in slices[:, 0]]
    kinds = [f"{kind} head {h}]" for kind in ("query", "key", "value") for h in range(heads // 3)]
    expected = kinds if "c_attn" in name else [f"head {h}]" for h in range(heads)]
    assert [label.rpartition("[")[2] for label in named] == expected
    assert partition.names[int(partition.labels[-1])]  # and everything else has a block, too


def test_neurons_of_transformers_own_linear_layers_are_columns() -> None:
    """GPT-2 writes weights with their inputs first; a neuron has the weights of its output, and its bias."""
    problem = hs.Problem.of(seeded(gpt2), data=[text(2, 0)])
    partition = hs.Partition.by("neuron", problem)
    up = "transformer.h.0.mlp.c_fc"
    columns = partition.labels[problem.space.slice_of(f"{up}.weight")].view(4, 3)
    assert (columns == columns[:1]).all()
    assert len(set(columns[0].tolist())) == 3
    assert partition.labels[problem.space.slice_of(f"{up}.bias")].tolist() == columns[0].tolist()


@pytest.mark.parametrize("layer", ["attn.c_attn", "mlp.c_fc"])
@pytest.mark.parametrize(("matrix", "curvature"), [(hs.Hessian, "second_derivative"), (hs.GaussNewton, "gauss_newton")])
def test_layer_hessians_of_transformers_own_linear_layers(layer: str, matrix: Any, curvature: Any) -> None:
    problem, name = hs.Problem.of(seeded(gpt2), data=[text(2, 0)]), f"transformer.h.0.{layer}"
    found = hs.layer_hessian(problem, name, curvature=curvature)
    places = problem.space.slice_of(f"{name}.weight")
    truth = matrix(problem).dense()[places, places]
    shape = dict(zip(problem.space.names, problem.space.shapes, strict=True))[f"{name}.weight"]
    order = torch.arange(truth.shape[0]).view(shape).T.reshape(-1)  # W of z = W x, row by row
    assert close(found.dense(), truth[order][:, order])


def test_a_head_that_is_cut_off_has_no_curvature() -> None:
    """Which columns of the output projection are head 1's, told by the model and not by its shapes."""
    model = seeded(llama)
    weight = model.model.layers[0].self_attn.v_proj.weight
    assert weight.shape == (2, 4)  # one value head for two query heads
    o = model.model.layers[0].self_attn.o_proj.weight
    with torch.no_grad():
        o[:, 2:] = 0
    problem = hs.Problem.of(model, data=[text(2, 0)])
    partition = hs.Partition.by("head", problem)
    dense = hs.Hessian(problem).dense()
    one, other = (partition.indices(f"model.layers.0.self_attn.q_proj[head {h}]") for h in (1, 0))
    assert float(dense[one][:, one].abs().max()) == 0
    assert float(dense[other][:, other].abs().max()) > 0


def test_losses_that_are_read_in_other_ways() -> None:
    ids = tokens(2, 4, 0)
    asked = {"input_ids": ids, "start_positions": torch.tensor([0, 1]), "end_positions": torch.tensor([2, 3])}
    model = seeded(lambda: bert("QuestionAnswering"))
    problem = hs.Problem.of(model, data=[asked])
    assert problem.has_outputs
    assert problem.loss_value() == pytest.approx(float(model(**asked).loss.detach()), rel=EXACT)
    beyond = {name: torch.tensor([0, 1, place]) for name, place in (("start_positions", 4), ("end_positions", 9))}
    cut = {"input_ids": tokens(3, 4, 1), **beyond}  # an answer that was cut off does not count
    problem = hs.Problem.of(model, data=[asked, cut])
    own = [float(model(**batch).loss.detach()) for batch in (asked, cut)]
    assert problem.totals[1] == 8
    assert problem.loss_value() == pytest.approx(sum(own) / 2, rel=EXACT)
    cut["start_positions"] = torch.tensor([0, -100, 3])  # models take it for the first place
    cut["end_positions"] = torch.tensor([0, 1, 3])
    own[1] = float(model(**cut).loss.detach())
    assert hs.Problem.of(model, data=[asked, cut]).loss_value() == pytest.approx(
        (4 * own[0] + 6 * own[1]) / 10, rel=EXACT
    )
    cut["end_positions"] = torch.tensor([0, 1, 9])  # half of an answer: the model's means weigh the other halves more
    with pytest.raises(InputError, match="same function of its logits in all examples"):
        hs.Problem.of(model, data=[asked, cut])
    pre = seeded(lambda: bert("PreTraining"))
    both = {**text(2, 0), "next_sentence_label": torch.tensor([0, 1])}
    whole = hs.Problem.of(pre, data=[both])  # two losses added up: none of the logits alone
    assert not whole.has_outputs
    assert whole.loss_value() == pytest.approx(float(pre(**both).loss.detach()), rel=EXACT)
    with pytest.raises(InputError, match="a loss of the model's own that is none of its logits alone"):
        hs.GaussNewton(whole)
    with pytest.raises(InputError, match="must be a mean over examples where there is more than one batch"):
        hs.Problem.of(pre, data=[both, {**text(3, 1), "next_sentence_label": torch.tensor([0, 1, 1])}])


def test_an_auxiliary_loss_is_not_left_out() -> None:
    config = tf.MixtralConfig(
        vocab_size=6, hidden_size=4, intermediate_size=3, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, num_local_experts=2, num_experts_per_tok=2, output_router_logits=True,
        router_aux_loss_coef=1e-3, max_position_embeddings=8, experts_implementation="eager",
    )  # fmt: skip
    model = seeded(lambda: tf.MixtralForCausalLM(config))
    batch = text(2, 0)
    problem = hs.Problem.of(model, data=[batch])
    with exactly():
        own = float(model(**batch).loss.detach())
    assert problem.loss_value() == pytest.approx(own, rel=EXACT)
    assert not problem.has_outputs


def test_a_given_loss_is_shifted_as_the_model_shifts() -> None:
    model, case = seeded(gpt2), CASES["gpt2, tied"]
    own = hs.Problem.of(model, data=batches_of(case))
    assert hs.Problem.of(model, "cross_entropy", batches_of(case)).totals == pytest.approx(own.totals, rel=1e-12)
    smoothed = hs.Problem.of(model, nn.CrossEntropyLoss(label_smoothing=0.1), batches_of(case))
    assert smoothed.totals[1] == own.totals[1]
    assert smoothed.loss_value() != pytest.approx(own.loss_value(), rel=1e-3)
    both = hs.Problem.of(seeded(t5), "cross_entropy", [translated(2, 0)])
    assert both.loss_value() == pytest.approx(hs.Problem.of(seeded(t5), data=[translated(2, 0)]).loss_value())


def test_dropout_is_refused_in_training_and_frozen_where_asked() -> None:
    config = tf.GPT2Config(vocab_size=6, n_positions=5, n_embd=4, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    model = seeded(lambda: tf.GPT2LMHeadModel(config)).train()
    with pytest.raises(InputError, match=r"model.eval\(\)"):
        hs.Problem.of(model, data=[text(2, 0)])
    assert hs.Problem.of(model, data=[text(2, 0)], freeze=True).loss_value() > 0


def test_a_frozen_base_is_left_out() -> None:
    problem = hs.Problem.of(seeded(lora), data=[text(2, 0)])
    assert all("lora_" in name for name in problem.space.names)


def _without(name: str) -> Batch:
    return {key: value for key, value in text(2, 0).items() if key != name}


BAD = {
    "tokens beyond the vocabulary": (gpt2, {**text(2, 0), "input_ids": tokens(2, 4, 0) + 6}, r"must lie in \[0, 6\)"),
    "tokens below zero": (gpt2, {**text(2, 0), "input_ids": tokens(2, 4, 0) - 9}, r"must lie in \[0, 6\)"),
    "labels beyond the vocabulary": (gpt2, {**text(2, 0), "labels": tokens(2, 4, 0) + 6}, r"class labels must lie in"),
    "all labels ignored": (gpt2, {**text(2, 0), "labels": torch.full((2, 4), -100)}, "the data must count for something"),
    "labels missing": (gpt2, _without("labels"), "batches must have labels"),
    "no head": (lambda: tf.GPT2Model(gpt2().config), text(2, 0), "must return a loss when it is given labels"),
    "too long for gpt2": (gpt2, text(2, 0, 9), "at most 5 tokens, the positions of the model; got 9"),
    "too long for bert": (lambda: bert("MaskedLM"), text(2, 0, 9), "at most 5 tokens"),
    "too long for roberta": (roberta, {**text(2, 0, 6), "attention_mask": torch.ones(2, 6).long()}, "at most 5 tokens, the positions of the model; got 6"),
    "kinds of tokens that are not there": (lambda: bert("MaskedLM"), {**text(2, 0), "token_type_ids": tokens(2, 4, 0)}, r"token_type_ids must lie in \[0, 1\)"),
    "lists": (gpt2, {"input_ids": [[1, 2]], "labels": [[1, 2]]}, "return_tensors='pt'"),
    "a tuple": (gpt2, (tokens(2, 4, 0), tokens(2, 4, 0)), "a loss must be given where batches have no names"),
    "no data": (gpt2, None, "a loss must be given where batches have no names"),
    "a model without labels": (lambda: nn.Linear(4, 2), {"x": torch.ones(2, 4)}, "which takes no labels"),
    "other lengths": (gpt2, {**text(2, 0), "labels": tokens(2, 3, 0)}, "must run on the first batch"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(BAD))
def test_bad_input_is_named(name: str) -> None:
    make, batch, message = BAD[name]
    model: Any = make()
    with pytest.raises(HesscopeError, match=message):
        _ = hs.Problem.of(model.eval(), data=None if batch is None else [batch]).totals


def test_a_bad_batch_among_good_ones_is_named() -> None:
    bad = {**text(2, 0), "input_ids": tokens(2, 4, 0) + 6}
    with pytest.raises(InputError, match=r"tokens in input_ids must lie in \[0, 6\)"):
        _ = hs.Problem.of(gpt2().eval(), data=[text(2, 0), bad]).totals


def test_a_model_without_logits_is_named() -> None:
    model = tf.GPT2Model(gpt2().config).eval()
    with pytest.raises(InputError, match="the model must return logits; got a BaseModelOutput"):
        hs.Problem.of(model, "cross_entropy", [text(2, 0)])
