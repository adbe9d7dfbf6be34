"""Small models and data to try things on."""

from .data import Examples as Examples
from .data import load as load
