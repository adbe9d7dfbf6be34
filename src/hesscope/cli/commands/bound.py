"""`hesscope bound`: a certified bound on the true error of a trained classifier with noise on its weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...folders import StateFolder
from ...pacbayes.settings import MethodName, Settings
from ..output import CommandOutput
from ..progress import ProgressBar
from ..source import Loaded, Source

if TYPE_CHECKING:
    from ...pacbayes.posterior.certificate import Certificate


@dataclass(frozen=True)
class BoundCommand(Source):
    """Optimise a Gaussian posterior around the trained weights for the smallest PAC-Bayes bound, and certify it."""

    init: str | None = None
    """The weights before training: an .npz or a torch file; or, for a dict of problems along training and for
    presets, the label of the first one (0 for presets). They must not depend on the training data."""
    method: MethodName = "local"
    """base: standard basis; appr, iter, iter_decay, iter_m: Hessian eigenbases as in the paper; local: ours."""
    out: Path = Path("hesscope-out")
    """Folder for the certificate; an unfinished run is kept there, and the same command goes on."""
    json: bool = False
    """Print JSON for machines."""
    settings: Settings = field(default_factory=Settings)

    @property
    def kept(self) -> Path:
        return self.out / f"bound-{self.method}-state"

    @property
    def names(self) -> tuple[str, ...]:
        return (f"bound-{self.method}",)

    def run(self, bars: ProgressBar) -> CommandOutput:
        from ...pacbayes import optimize

        loaded = self.load()
        found = optimize(loaded.problem, self._init(loaded), self.method, self.settings, resume=self.kept, watch=bars)
        file = found.save(self.out / f"bound-{self.method}")
        StateFolder(self.kept).clear()
        return CommandOutput([loaded.title, *found.lines()], self._data(found), True, [file])

    def _init(self, loaded: Loaded) -> Any:
        if self.init is not None and loaded.checkpoints is not None and self.init in loaded.checkpoints:
            return loaded.checkpoints[self.init].parameters
        return self.init

    @staticmethod
    def _data(found: Certificate) -> dict[str, Any]:
        return {
            "method": found.method,
            "bound": found.bound,
            "mean_error": found.mean_error,
            "gradients": found.gradients,
            "seconds": found.seconds,
        }
