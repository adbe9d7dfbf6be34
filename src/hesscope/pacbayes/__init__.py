"""PAC-Bayes bounds on the true error of a stochastic network, in Hessian eigenbases."""

from .bound import Bound as Bound
from .bound import Grid as Grid
from .bound import bound as bound
from .certificate import Certificate as Certificate
from .gaussian import gaussian_kl as gaussian_kl
from .kl import binary_kl as binary_kl
from .kl import binary_kl_inverse as binary_kl_inverse
from .optimize import optimize as optimize
from .sample import split as split
from .settings import Settings as Settings
