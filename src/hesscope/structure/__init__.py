"""Blocks by layer, neuron, class or head: norms, spectra, scores and heat maps of curvature matrices."""

from ..results.blocks import BlockNorms as BlockNorms
from ..results.blocks import BlockSpectra as BlockSpectra
from ..results.blocks import CirculantScore as CirculantScore
from ..results.blocks import HeatMap as HeatMap
from ..results.blocks import OutputNorms as OutputNorms
from ..results.history import TrainingHistory as TrainingHistory
from .circulant import circulant_score as circulant_score
from .dense import dense_hessian as dense_hessian
from .heatmap import heat_map as heat_map
from .history import structure_history as structure_history
from .norms import block_norms as block_norms
from .norms import norm_products as norm_products
from .spectra import block_spectra as block_spectra
from .vocabulary import output_block_norms as output_block_norms
