"""From networks to operators: the problem, and the curvature of its loss."""

from .fisher import Fisher as Fisher
from .gauss_newton import GaussNewton as GaussNewton
from .hessian import CurvatureOperator as CurvatureOperator
from .hessian import FunctionalHessian as FunctionalHessian
from .hessian import Hessian as Hessian
from .jacobian import Jacobian as Jacobian
from .problem import Problem as Problem
