"""Blocks by layer, neuron, class or head: norms, spectra, scores and heat maps of curvature matrices."""

from .course import Course as Course
from .course import structure_course as structure_course
from .dense import dense_hessian as dense_hessian
from .heat import HeatMap as HeatMap
from .heat import heat_map as heat_map
from .norms import BlockNorms as BlockNorms
from .norms import block_norms as block_norms
from .norms import norm_products as norm_products
from .spectra import BlockSpectra as BlockSpectra
from .spectra import block_spectra as block_spectra
from .stripes import Stripes as Stripes
from .stripes import circulant_score as circulant_score
from .vocabulary import OutputNorms as OutputNorms
from .vocabulary import output_block_norms as output_block_norms
