"""Exact Hessian spectra of fundamental networks: bulk read off, outliers from a small matrix (NumPy only)."""

from .attention import self_attention as self_attention
from .coupled import Coupled as Coupled
from .coupled import couple as couple
from .linear import linear_network as linear_network
from .linear import linear_network_with_bias as linear_network_with_bias
from .products import WeightProduct as WeightProduct
from .relu import relu_network as relu_network
from .row_activation import LINEAR as LINEAR
from .row_activation import SOFTMAX as SOFTMAX
from .row_activation import RowActivation as RowActivation
from .row_activation import elementwise as elementwise
from .separable import separable_inputs as separable_inputs
from .separable import separable_outputs as separable_outputs
from .sharpness import LearningPhase as LearningPhase
from .sharpness import SharpnessParts as SharpnessParts
from .sharpness import learning_phase as learning_phase
from .sharpness import sharpness_parts as sharpness_parts
from .spectrum import Bulk as Bulk
from .spectrum import ClosedFormSpectrum as ClosedFormSpectrum
from .theorem_scalars import AttentionScalars as AttentionScalars
from .theorem_scalars import attention_scalars as attention_scalars
