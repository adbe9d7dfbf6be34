"""`hesscope doctor`: what is installed here, and what is missing for what."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from ..._version import __version__
from ..output import CommandOutput
from ..progress import ProgressBar

# Package -> (what it is for, the extra that brings it; none for what is needed in any case).
PACKAGES = {
    "torch": ("everything but theory", ""),
    "numpy": ("everything", ""),
    "scipy": ("laws and closed forms", ""),
    "matplotlib": ("figures", "plots"),
    "plotly": ("the interactive report", "plots"),
    "rich": ("progress on the command line", ""),
    "pandas": ("result.to_dataframe()", "notebook"),
    "nbclient": ("running the notebooks of the documentation", "notebook"),
    "transformers": ("Hugging Face models", "hf"),
    "peft": ("LoRA and other adapters", "hf"),
    "lightning": ("the Lightning callback", "lightning"),
    "tensorboard": ("logging to TensorBoard", "track"),
    "wandb": ("logging to Weights & Biases", "track"),
    "mlflow-skinny": ("logging to MLflow", "track"),
    "trackio": ("logging to trackio", "track"),
    "scikit-learn": ("t-SNE of logit gradients", "extra"),
}


@dataclass(frozen=True)
class Doctor:
    """Versions, threads, memory, data folder and optional packages, and what is missing for what."""

    json: bool = False
    """Print JSON for machines."""

    def run(self, bars: ProgressBar) -> CommandOutput:
        found = {name: _version(name) for name in PACKAGES}
        lines = [
            f"hesscope {__version__}, Python {platform.python_version()} on {platform.system()} {platform.machine()}"
        ]
        data: dict[str, object] = {"hesscope": __version__, "python": platform.python_version(), "packages": found}
        if found["torch"] is not None:
            import torch

            from ...memory import free_bytes

            free = free_bytes(torch.device("cpu"))
            devices = [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())]
            data |= {"threads": torch.get_num_threads(), "free_bytes": free, "gpus": devices}
            lines.append(f"{torch.get_num_threads()} threads of {os.cpu_count()} cores, {free / 1e9:.1f} GB free")
            lines.append(f"GPUs: {', '.join(devices)}" if devices else "no GPU: products run on the CPU")
        folder = os.environ.get("HESSCOPE_DATA")
        there = folder is not None and Path(folder).is_dir()
        data |= {"data": folder, "data_found": there}
        lines.append(
            f"data: {folder}"
            if there
            else f"data: HESSCOPE_DATA is {folder or 'not set'}; presets with real data are refused, or drawn by --stand-in"
        )
        width = max(map(len, PACKAGES))
        for name, (purpose, extra) in PACKAGES.items():
            missing = "" if found[name] else f" ({_remedy(name, extra)})"
            lines.append(f"{name:<{width}}  {found[name] or 'missing':<11} for {purpose}{missing}")
        needed = [name for name, (_, extra) in PACKAGES.items() if not extra and found[name] is None]
        lines.append("all that is needed is here" if not needed else f"needed and missing: {', '.join(needed)}")
        return CommandOutput(lines, data, not needed)


def _remedy(name: str, extra: str) -> str:
    return f"pip install hesscope[{extra}]" if extra else f"pip install {name}"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
