"""The one place that knows layers: how each kind uses its parameters, what it was given, and what may be concluded.

A layer is a call of a torch function that uses parameters as weight and bias (`F.linear`, `torch.conv2d`, ...), not a
module: hooks, patched forwards, tied weights and weights that are used again elsewhere are then seen for what they are.
"""

from .capturing import Capture as Capture
from .capturing import CapturedLayer as CapturedLayer
from .capturing import capture as capture
from .facts import ProblemFacts as ProblemFacts
from .facts import facts_of as facts_of
from .layer import LayerFacts as LayerFacts
from .substitution import LinearMap as LinearMap
from .substitution import SubstitutedLinears as SubstitutedLinears
