"""`hesscope compare`: two results, checkpoints or models side by side."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import tyro

from ...analysis.config import AnalyzeConfig
from ...arguments import need_count
from ..output import CommandOutput
from ..progress import ProgressBar
from ..source import Loaded, from_folder, from_preset, from_text

if TYPE_CHECKING:
    from ...results.analysis import Analysis


@dataclass(frozen=True)
class Compare:
    """Spectra, blocks and top eigenspaces of two analyses: result files, file.py:function[@weights.npz],
    hf:FOLDER, or presets."""

    a: tyro.conf.Positional[str]
    """The first."""
    b: tyro.conf.Positional[str]
    """The second."""
    k: int = 10
    """Dimension of the top eigenspaces to compare."""
    data_dir: Path | None = None
    """Folder with real data for presets."""
    text: Path | None = None
    """For hf:FOLDER: a text file (or token numbers, .npy or .npz) that the model predicts."""
    out: Path = Path("hesscope-out")
    """Folder for the figure."""
    json: bool = False
    """Print JSON for machines."""

    names: ClassVar = ("compare",)

    def run(self, bars: ProgressBar) -> CommandOutput:
        from ...plots.export import save_figures
        from ...plots.spectrum import density_panel
        from ...plots.static import figure_of

        need_count("k", self.k)
        first, second = (self._analysis(text, bars) for text in (self.a, self.b))
        data = comparison(first, second, self.k)
        lines = [f"{'':<26}{'A':>14}{'B':>14}"]
        lines += [f"{name:<26}{a:>14.5g}{b:>14.5g}" for name, (a, b) in data["numbers"].items()]
        lines.append(f"Spectra: Kolmogorov distance {data['kolmogorov']:.3f}, W₁ distance {data['wasserstein']:.3g}")
        lines += [f"Blocks by {kind}: relative difference {gap:.1%}" for kind, gap in data["blocks"].items()]
        if data["overlap"] is not None:
            lines.append(f"Overlap of the top eigenspaces, dimension 1 to {len(data['overlap'])}: ")
            lines[-1] += " ".join(f"{value:.2f}" for value in data["overlap"])
        named = [(f"A: {first.title}", first.density), (f"B: {second.title}", second.density)]
        files = save_figures({"compare": figure_of([density_panel(named)])}, self.out)
        return CommandOutput(lines, data, True, files)

    def _analysis(self, text: str, bars: ProgressBar) -> Analysis:
        from ...analysis.run import analyze
        from ...errors import refuse
        from ...report import Analysis, load_result

        if ".py:" not in text and Path(text).suffix in (".json", ".npz"):
            found = load_result(text)
            if not isinstance(found, Analysis):
                refuse("compare needs two analyses", f"{found.kind} in {text!r}", "Write them with `hesscope analyze`.")
            return found
        loaded = self._loaded(text)
        settings = AnalyzeConfig(k=max(self.k, 3), decouple=0)
        return analyze(loaded.problem, settings, title=loaded.title, source=loaded.source, watch=bars)

    def _loaded(self, text: str) -> Loaded:
        if text.startswith("hf:"):
            return from_folder(text.removeprefix("hf:"), self.text)
        return from_text(text) if ".py" in text else from_preset(text, self.data_dir)


def comparison(a: Analysis, b: Analysis, k: int) -> dict[str, Any]:
    """Numbers of both, distances of their spectra and blocks, overlap of top spaces where they share parameters."""
    pairs = {
        "parameters": (a.size, b.size),
        "loss": (a.loss, b.loss),
        "sharpness": (a.sharpness, b.sharpness),
        "trace": (float(a.trace), float(b.trace)),
        "negative share of Σ|λ|": (a.negative_weight, b.negative_weight),
        "outliers": (a.gap[0], b.gap[0]),
    }
    blocks = {}
    for one in a.blocks:
        other = b.block_norms(one.partition)
        if other is not None and other.names == one.names:
            blocks[one.partition] = float(np.linalg.norm(one.norms - other.norms) / np.linalg.norm(one.norms))
            pairs[f"share between {one.partition}s"] = (one.off_diagonal_share, other.off_diagonal_share)
    return {
        "numbers": pairs,
        "kolmogorov": a.density.kolmogorov(b.density),
        "wasserstein": a.density.wasserstein(b.density),
        "blocks": blocks,
        "overlap": _overlaps(a, b, k),
    }


def _overlaps(a: Analysis, b: Analysis, k: int) -> list[float] | None:
    u, v = (np.asarray(one.largest.vectors, dtype=np.float64)[:, :k] for one in (a, b))
    if not u.size or not v.size or a.parameters != b.parameters:
        return None
    cosines = u.T @ v
    return [float((cosines[:j, :j] ** 2).sum() / j) for j in range(1, min(cosines.shape) + 1)]
