"""Blocks by layer, neuron, class or head: norms, spectra, scores and heat maps of curvature matrices."""

from .circulant import CirculantScore as CirculantScore
from .circulant import circulant_score as circulant_score
from .dense import dense_hessian as dense_hessian
from .heatmap import HeatMap as HeatMap
from .heatmap import heat_map as heat_map
from .history import Course as Course
from .history import structure_course as structure_course
from .norms import BlockNorms as BlockNorms
from .norms import block_norms as block_norms
from .norms import norm_products as norm_products
from .spectra import BlockSpectra as BlockSpectra
from .spectra import block_spectra as block_spectra
from .vocabulary import OutputNorms as OutputNorms
from .vocabulary import output_block_norms as output_block_norms
