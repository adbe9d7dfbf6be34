"""Small models and data to try things on."""

from ..missing_data import stand_ins as stand_ins
from .data import Examples as Examples
from .data import load as load
