"""Layer-wise decoupling: E[M], E[x xᵀ], overlaps, correspondence, full-Hessian approximation."""

from ..results.kronecker import FullApproximation as FullApproximation
from ..results.kronecker import KroneckerComparison as KroneckerComparison
from ..results.kronecker import KroneckerErrors as KroneckerErrors
from ..results.kronecker import LogitGradients as LogitGradients
from ..results.kronecker import ModelOverlap as ModelOverlap
from ..results.kronecker import PredictedEigenspace as PredictedEigenspace
from .clusters import logit_gradients as logit_gradients
from .curvature_choice import decouplable_layers as decouplable_layers
from .factors import Decoupling as Decoupling
from .factors import decouple as decouple
from .factors import decouple_layers as decouple_layers
from .full_hessian import approximate_full_eigenpairs as approximate_full_eigenpairs
from .layer_operator import LayerHessian as LayerHessian
from .layer_operator import layer_hessian as layer_hessian
from .model_overlaps import model_overlap as model_overlap
from .nearest import NearestKronecker as NearestKronecker
from .output_eigenspace import predicted_output_eigenspace as predicted_output_eigenspace
from .subspaces import correspondence as correspondence
from .subspaces import matricize as matricize
from .subspaces import subspace_overlap as subspace_overlap
