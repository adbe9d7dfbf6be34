"""`hesscope.analyze`, as users call it; see `_analyze`."""

from ._analyze import analyze as analyze
