"""What an analysis found, in words and in one self-contained HTML file; importing this never imports torch."""

from ..analysis.config import AnalyzeConfig as AnalyzeConfig
from ..results.analysis import Analysis as Analysis
from ..results.loading import load_result as load_result
from .page import write_report as write_report
from .summary import summary_lines as summary_lines
