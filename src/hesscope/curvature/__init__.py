"""From networks to operators: the problem, and the curvature of its loss."""

from .gauss_newton import Fisher as Fisher
from .gauss_newton import GaussNewton as GaussNewton
from .gauss_newton import Jacobian as Jacobian
from .hessian import CurvatureOperator as CurvatureOperator
from .hessian import FunctionalHessian as FunctionalHessian
from .hessian import Hessian as Hessian
from .problem import Problem as Problem
