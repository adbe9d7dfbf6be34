"""Table 9: with batch-norm (frozen statistics) inputs are centred, and E[x xᵀ] is no longer close to rank one."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from ...results.claims import Claim, Experiment, Outcome
from ._inputs import draw, measure, span
from ._trained import Setting

SOURCE = "Wu et al., Table 9, Section G.4"


@dataclass(frozen=True)
class Config(Setting):
    runs: int = 3
    images: str = "digits"  # for LeNet5
    image_epochs: int = 10


def run(config: Config) -> Outcome:
    """Fully connected networks and LeNet5, with and without batch-norm; layers behind the first."""
    setting = Setting(**{name: getattr(config, name) for name in Setting.__dataclass_fields__})
    layers = tuple(f"fc{i}" for i in range(2, config.depth + 2))
    lenet = replace(setting, network="lenet5", data=config.images, epochs=config.image_epochs)
    settings = {
        "plain": replace(setting, batch_norm=False),
        "batch-norm": replace(setting, batch_norm=True),
        "LeNet5": replace(lenet, batch_norm=False),
        "LeNet5-BN": replace(lenet, batch_norm=True),
    }
    dense = ("fc1", "fc2", "fc3")
    data = measure(settings, config.runs, {"plain": layers, "batch-norm": layers, "LeNet5": dense, "LeNet5-BN": dense})
    plain, normed, images, images_normed = data.values()
    claims = (
        Claim(
            "Without batch-norm the top eigenvector of E[x xᵀ] is the mean direction and stands out.",
            "Wu et al., Table 6",
            "(v₁ᵀÊ[x])² >= 0.99 and λ₁/λ₂ >= 2",
            f"{span(plain['alignment'])}; {span(plain['ratio'])}",
            bool(plain["alignment"].min() >= 0.99 and plain["ratio"].min() >= 2),
        ),
        Claim(
            "With batch-norm neither holds.",
            SOURCE,
            "mean (v₁ᵀÊ[x])² <= 0.5 and λ₁/λ₂ <= 2 in every layer",
            f"{span(normed['alignment'])}; {span(normed['ratio'])}",
            bool(normed["alignment"].mean() <= 0.5 and normed["ratio"].max() <= 2),
        ),
        Claim(
            "LeNet5: batch-norm takes both away as well.",
            SOURCE,
            "mean (v₁ᵀÊ[x])² <= 0.5 and mean λ₁/λ₂ <= 2",
            f"{span(images_normed['alignment'])}; {span(images_normed['ratio'])}; without {span(images['alignment'])}; "
            f"{span(images['ratio'])}",
            bool(images_normed["alignment"].mean() <= 0.5 and images_normed["ratio"].mean() <= 2),
        ),
    )
    return Outcome("wu2022.table9", asdict(config), data, claims)


EXPERIMENT = Experiment(
    name="wu2022.table9",
    title="Batch-norm removes the rank-one structure of inputs",
    source="Wu et al., Table 9",
    quick=Config(width=48, epochs=20, image_epochs=4, runs=2),
    paper=Config(data="mnist", width=200, epochs=5, rate=0.05, images="cifar10"),
    run=run,
    figures=draw,
)
