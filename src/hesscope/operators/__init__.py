"""Linear operators on flat vectors; they know nothing of networks."""

from .algebra import Identity as Identity
from .algebra import Product as Product
from .algebra import Sum as Sum
from .algebra import Transposed as Transposed
from .base import LinearOperator as LinearOperator
from .counted import Counted as Counted
from .finite_difference import FiniteDifferenceHessian as FiniteDifferenceHessian
from .functions import FromFunction as FromFunction
from .given import HasOperator as HasOperator
from .given import Matrix as Matrix
from .given import as_operator as as_operator
from .layout import Layout as Layout
from .matrices import BlockDiagonal as BlockDiagonal
from .matrices import Dense as Dense
from .matrices import Kronecker as Kronecker
from .matrices import LowRank as LowRank
