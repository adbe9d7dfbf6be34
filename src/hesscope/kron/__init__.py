"""Layer-wise decoupling: E[M], E[x xᵀ], overlaps, correspondence, full-Hessian approximation."""

from .clusters import LogitGradients as LogitGradients
from .clusters import logit_gradients as logit_gradients
from .compare import Comparison as Comparison
from .compare import KroneckerErrors as KroneckerErrors
from .decouple import Decoupling as Decoupling
from .decouple import decouple as decouple
from .decouple import decouple_layers as decouple_layers
from .full import FullApproximation as FullApproximation
from .full import approximate_full_eigenpairs as approximate_full_eigenpairs
from .layer_hessian import LayerHessian as LayerHessian
from .layer_hessian import layer_hessian as layer_hessian
from .models import ModelOverlap as ModelOverlap
from .models import model_overlap as model_overlap
from .nearest import NearestKronecker as NearestKronecker
from .overlap import correspondence as correspondence
from .overlap import matricize as matricize
from .overlap import subspace_overlap as subspace_overlap
from .predicted import PredictedEigenspace as PredictedEigenspace
from .predicted import predicted_output_eigenspace as predicted_output_eigenspace
