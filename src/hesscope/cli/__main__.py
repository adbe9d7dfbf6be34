"""`python -m hesscope.cli`."""

import sys

from . import main

sys.exit(main())
