"""Models, parameters and settings of which no problem can be made."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .given import INF, NAN, SIZE, data, function_loss, hessian, hs, inputs, labels, network, of, problem, spoiled
from .row import Row


def _frozen() -> nn.Module:
    return network().requires_grad_(False)


def _half_frozen() -> nn.Module:
    model = network()
    model[0].requires_grad_(False)
    return model


def _spoiled_weight(value: float) -> nn.Module:
    model = network()
    with torch.no_grad():
        model[0].weight[0, 0] = value
    return model


class Turning(nn.Module):
    """A real layer and a complex phase."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.phase = nn.Parameter(torch.ones(3, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.phase.abs()


class Sometimes(nn.Module):
    """Random where an input is large; the first batches are not."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x)
        return out + torch.randn_like(out) if bool((x > 50).any()) else out


class Pair(nn.Module):
    """Gives its outputs in a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.layer(x), x


class Decided(Pair):
    """Gives the number of the class."""

    def forward(self, x: Tensor) -> Any:
        return self.layer(x).argmax(-1)


class Broken(Pair):
    """Cannot be run."""

    def forward(self, x: Tensor) -> Any:
        raise KeyError("hidden")


def _later_noise() -> object:
    return of(Sometimes(), batch=(spoiled(inputs(), 99.0, 4 * 12 - 1), labels()), batch_size=4).gradient()


def _at(**values: Any) -> Any:
    return problem().at({name.replace("_", "."): value for name, value in values.items()})


ROWS = [
    Row("only-nothing", lambda: problem().only([]), "at least one name must be chosen", "none", r"0\.weight"),
    Row(
        "loss-left-out",
        lambda: hs.Problem.of(network(), data=data()),
        "a loss must be given where batches have no names",
        "tuple",
        "loss=",
    ),
    Row(
        "loss-left-out-of-a-model-without",
        lambda: hs.Problem.of(network(), data={"input": inputs(), "labels": labels()}),
        "a loss must be given where the model has none of its own",
        "Sequential, which takes no labels",
        "cross_entropy",
    ),
    Row(
        "checkpoint-folder-missing",
        lambda: hs.huggingface.load_model("nowhere"),
        "a checkpoint must be a folder with config",
        "nowhere",
        "save_pretrained",
    ),
    Row(
        "tokens-too-few",
        lambda: hs.huggingface.token_batches([1, 2, 3], length=8),
        "at least 8 tokens",
        "3",
        "smaller length",
    ),
    Row(
        "tokens-alone",
        lambda: hs.huggingface.token_batches([1, 2], length=1),
        "at least 2 tokens",
        "length 1",
        "before",
    ),
    Row(
        "model-none",
        lambda: hs.Problem.of(None, "mse", data()),
        r"model must be a torch\.nn\.Module",
        "NoneType",
        "Module",
    ),
    Row("model-function", lambda: of(lambda x: x), r"model must be a torch\.nn\.Module", "function", "Wrap"),
    Row(
        "model-class",
        lambda: of(nn.Linear),
        r"model must be a torch\.nn\.Module",
        "type|class",
        r"Module|instance|\(\)",
    ),
    Row("model-text", lambda: of("resnet18"), r"model must be a torch\.nn\.Module", "str", "Module"),
    Row("model-array", lambda: of(np.ones((3, 4))), r"model must be a torch\.nn\.Module", "ndarray", "Module"),
    Row("model-problem", lambda: of(problem()), r"model must be a torch\.nn\.Module", "Problem", "Module"),
    Row("model-without-parameters", lambda: of(nn.ReLU()), "the model must have parameters", "ReLU with none", "model"),
    Row("model-frozen", lambda: of(_frozen()), "require a gradient", "all frozen", r"requires_grad_\(True\)"),
    Row(
        "model-float16",
        lambda: of(network().half()),
        "parameters must have",
        r"'0\.weight' in float16",
        r"model\.float\(\)",
    ),
    Row("model-on-meta", lambda: of(network().to("meta")), "device|data|values", "meta", r"to_empty|\.to\("),
    Row("model-complex", lambda: of(nn.Linear(4, 3, dtype=torch.complex64)), "real", "complex64", r"\w"),
    Row("model-partly-complex", lambda: of(Turning()), "real", "'phase'.*complex64", r"params|real"),
    Row("model-nan-weight", lambda: of(_spoiled_weight(NAN)), "finite", r"0\.weight", r"\w"),
    Row("model-infinite-weight", lambda: of(_spoiled_weight(INF)), "finite", r"0\.weight", r"\w"),
    Row(
        "model-dropout",
        lambda: of(nn.Sequential(network(), nn.Dropout(0.5))),
        "fixed|eval|random",
        r"1 \(Dropout\)",
        "freeze=True|eval",
    ),
    Row(
        "model-batch-norm",
        lambda: of(nn.Sequential(network(), nn.BatchNorm1d(3))),
        "fixed|eval|random",
        r"1 \(BatchNorm1d\)",
        "freeze=True|eval",
    ),
    Row("model-random-later", _later_noise, "fixed function of the parameters", "batch", "freeze=True|Switch off"),
    Row("model-gives-tuple", lambda: of(Pair()), "must return a floating-point tensor", "tuple", "forward="),
    Row("model-gives-integers", lambda: of(Decided()), "must return a floating-point tensor", "int64", "forward="),
    Row("model-raises", lambda: of(Broken()), "must run on the first batch", "KeyError: 'hidden'", "forward="),
    Row("params-unknown", lambda: of(params="fc*"), "match at least one parameter", r"'fc\*'", r"0\.weight, 0\.bias"),
    Row("params-number", lambda: of(params=5), "params|glob", "5|int", r"0\.weight"),
    Row("params-numbers", lambda: of(params=[0, 1]), "params|glob", "0|int", r"0\.weight"),
    Row("params-nothing", lambda: of(params=[]), "params|glob", r"\[\]|none", r"\w"),
    Row("params-none", lambda: of(params=None), "params|glob", "None", r"0\.weight"),
    Row(
        "params-tensors",
        lambda: of(params=list(network().parameters())),
        "params|glob",
        "Parameter|Tensor",
        r"name|0\.weight",
    ),
    Row(
        "params-frozen",
        lambda: of(_half_frozen(), params="0.*"),
        "params must select a trainable parameter",
        r"'0\.\*'",
        "requires_grad_",
    ),
    Row("forward-number", lambda: of(forward=3), "forward must be", "3|int", r"\(outputs, targets\)"),
    Row(
        "forward-one-value",
        lambda: of(forward=lambda model, batch: model(batch[0])),
        "forward must return",
        "Tensor",
        r"\(outputs, targets\)",
    ),
    Row(
        "forward-none",
        lambda: of(forward=lambda model, batch: None),
        "forward must return",
        "None",
        r"\(outputs, targets\)",
    ),
    Row(
        "forward-three-values",
        lambda: of(forward=lambda model, batch: (model(batch[0]), *batch)),
        "forward must return",
        "3|tuple",
        r"\(outputs, targets\)",
    ),
    Row(
        "forward-array",
        lambda: of(forward=lambda model, batch: (model(batch[0]).detach().numpy(), batch[1])),
        "floating-point tensor",
        "ndarray",
        "forward=",
    ),
    Row(
        "forward-targets-array",
        lambda: of(forward=lambda model, batch: (model(batch[0]), batch[1].numpy())),
        "targets must be a tensor",
        "ndarray",
        r"\w",
    ),
    Row("batch-size-negative", lambda: of(batch_size=-3), "batch_size must be", "-3", r"\w"),
    Row("batch-size-zero", lambda: of(batch_size=0), "batch_size must be", "0", r"\w"),
    Row("batch-size-fraction", lambda: of(batch_size=2.5), "batch_size must be", r"2\.5", r"\w"),
    Row("batch-size-text", lambda: of(batch_size="64"), "batch_size must be", "'64'", r"\w"),
    Row("batch-size-nan", lambda: of(batch_size=NAN), "batch_size must be", "nan", r"\w"),
    Row("memory-words", lambda: of(memory="lots"), "memory must be", "'lots'", "4GB"),
    Row("memory-dots", lambda: of(memory="1.2.3GB"), "memory must be", r"'1\.2\.3GB'", "4GB"),
    Row("memory-negative", lambda: of(memory=-1), "memory must be", "-1", "0.5"),
    Row("memory-nan", lambda: of(memory=NAN), "memory must be", "nan", r"0\.5|4GB"),
    Row("memory-list", lambda: of(memory=[1]), "memory must be", r"\[1\]|list", r"0\.5|4GB"),
    Row("freeze-text", lambda: of(freeze="no"), "freeze must be", "'no'", "True|False"),
    Row("at-unknown", lambda: problem().at({"0.wieght": torch.zeros(5, 4)}), "parameter", "'0.wieght'", r"0\.weight"),
    Row("at-shape", lambda: _at(**{"0_weight": torch.zeros(4, 5)}), r"0\.weight.*shape \(5, 4\)", r"\(4, 5\)", r"\w"),
    Row("at-one-number", lambda: _at(**{"0_weight": torch.zeros(())}), r"0\.weight.*shape \(5, 4\)", r"\(\)", r"\w"),
    Row("at-nan", lambda: _at(**{"0_weight": torch.full((5, 4), NAN)}), "finite", r"0\.weight", r"\w"),
    Row("at-text", lambda: _at(**{"0_weight": "zeros"}), r"0\.weight.*tensor", "str", r"as_tensor"),
    Row(
        "at-complex", lambda: _at(**{"0_weight": torch.zeros(5, 4, dtype=torch.complex64)}), "real", "complex64", r"\w"
    ),
    Row("at-list", lambda: problem().at([torch.zeros(5, 4)]), "by name|mapping|dict", "list", r"\w"),
    Row("at-vector", lambda: problem().at(torch.zeros(SIZE)), "by name|mapping|dict", "Tensor", r"unpack|\w"),
    Row("select-unknown", lambda: problem().select("fc*"), "match at least one parameter", r"'fc\*'", r"0\.weight"),
    Row("select-number", lambda: problem().select(0), "glob", "0|int", r"0\.weight"),
    Row("select-nothing", lambda: problem().select([]), "glob", r"\[\]|none", r"\w"),
    Row("subset-none", lambda: problem().subset(0), "examples must be", "0", r"\w"),
    Row("subset-negative", lambda: problem().subset(-4), "examples must be", "-4", r"\w"),
    Row("subset-fraction", lambda: problem().subset(0.5), "examples must be", r"0\.5", r"\w"),
    Row("subset-text", lambda: problem().subset("half"), "examples must be", "'half'", r"\w"),
    Row("cast-integer", lambda: problem().cast(torch.int64), "float", "int64", r"\w"),
    Row("cast-float16", lambda: problem().cast(torch.float16), "float", "float16", r"\w"),
    Row("cast-text", lambda: problem().cast("float64"), "dtype", "'float64'|str", r"torch\.float64"),
    Row("cast-complex", lambda: problem().cast(torch.complex64), "float", "complex64", r"\w"),
    Row("hessian-of-model", lambda: hs.Hessian(network()), "Problem", "Sequential", r"Problem\.of"),
    Row("hessian-of-hessian", lambda: hs.Hessian(hessian()), "Problem", "Hessian", r"\w"),
    Row("hessian-of-nothing", lambda: hs.Hessian(None), "Problem", "None", r"Problem\.of"),
    Row("hessian-of-array", lambda: hs.Hessian(np.eye(3)), "Problem", "ndarray", r"Problem\.of"),
    Row("hessian-method", lambda: hs.Hessian(problem(), method="fast"), "method must be", "'fast'", "auto"),
    Row("hessian-method-number", lambda: hs.Hessian(problem(), method=3), "method must be", "3", "auto"),
    Row(
        "hessian-block-unknown", lambda: hessian().block("fc*"), "match at least one parameter", r"'fc\*'", r"0\.weight"
    ),
    Row("hessian-block-number", lambda: hessian().block(0), "glob", "0|int", r"0\.weight"),
    Row("gauss-newton-of-model", lambda: hs.GaussNewton(network()), "Problem", "Sequential", r"Problem\.of"),
    Row(
        "gauss-newton-of-function",
        lambda: hs.GaussNewton(of(loss=function_loss)),
        "outputs and the loss apart",
        r"\(sum, count\)",
        "forward=",
    ),
    Row(
        "functional-of-function",
        lambda: hs.FunctionalHessian(of(loss=function_loss)),
        "outputs and the loss apart",
        r"\(sum, count\)",
        "forward=",
    ),
    Row("functional-of-text", lambda: hs.FunctionalHessian("problem"), "Problem", "str", r"Problem\.of"),
    Row(
        "jacobian-of-function",
        lambda: hs.Jacobian(of(loss=function_loss)),
        "outputs and the loss apart",
        r"\(sum, count\)",
        "forward=",
    ),
    Row("jacobian-of-hessian", lambda: hs.Jacobian(hessian()), "Problem", "Hessian", r"\w"),
    Row("fisher-kind", lambda: hs.Fisher(problem(), kind="true"), "kind must be", "'true'", "docstring"),
    Row("fisher-no-samples", lambda: hs.Fisher(problem(), samples=0), "samples must be", "0", r"\w"),
    Row("fisher-samples-fraction", lambda: hs.Fisher(problem(), samples=1.5), "samples must be", r"1\.5", r"\w"),
    Row("fisher-samples-text", lambda: hs.Fisher(problem(), samples="many"), "samples must be", "'many'", r"\w"),
    Row("fisher-seed", lambda: hs.Fisher(problem(), rng=0.5), "rng must be", r"0\.5", r"Rng"),
    Row(
        "fisher-of-function",
        lambda: hs.Fisher(of(loss=function_loss)),
        "outputs and the loss apart",
        r"\(sum, count\)",
        "forward=",
    ),
    Row("check-operator", lambda: hs.check(hessian()), "Problem", "Hessian", r"\w"),
    Row("check-no-examples", lambda: hs.check(problem(), examples=0), "examples must be", "0", r"\w"),
    Row("check-examples-text", lambda: hs.check(problem(), examples="all"), "examples must be", "'all'", r"\w"),
    Row("check-seed", lambda: hs.check(problem(), rng="0"), "rng must be", "'0'", "Rng"),
    Row("plan-task", lambda: hs.plan(problem(), "svd"), "task must be known", "'svd'", "eigenpairs"),
    Row("plan-operator", lambda: hs.plan(hessian()), "Problem", "Hessian", r"\w"),
    Row("plan-k-zero", lambda: hs.plan(problem(), k=0), "k must be", "0", r"\w"),
    Row("plan-k-text", lambda: hs.plan(problem(), k="ten"), "k must be", "'ten'", r"\w"),
    Row("plan-setting-unknown", lambda: hs.plan(problem(), vectors=3), "setting", "'vectors'", "k|which"),
    Row("zoo-unknown", lambda: hs.zoo.load("imagenet"), "data set must be known", "'imagenet'", "digits"),
    Row("zoo-split", lambda: hs.zoo.load("digits", "validation"), "split must be", "'validation'", r"\w"),
    Row("zoo-count-zero", lambda: hs.zoo.load("digits", count=0), "count must be", "0", r"\w"),
    Row("zoo-count-negative", lambda: hs.zoo.load("digits", count=-5), "count must be", "-5", r"\w"),
    Row(
        "zoo-folder",
        lambda: hs.zoo.load("mnist", folder="nowhere"),
        "data folder must exist",
        "'nowhere'",
        "HESSCOPE_DATA",
    ),
]
