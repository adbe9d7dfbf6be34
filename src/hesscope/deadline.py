"""A moment by which work is to end: whoever multiplies or evaluates next after it is stopped there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_MOMENT: ContextVar[float | None] = ContextVar("deadline", default=None)


class OutOfTime(BaseException):
    """Raised at the next product or pass after a deadline; no Exception, so that nothing on the way takes it for its own."""


def now() -> float:
    """Seconds on a clock that only goes forward."""
    return time.monotonic()


@contextmanager
def work_until(moment: float | None) -> Iterator[None]:
    """Products and passes inside are stopped after this moment of `now()`, or of an earlier one around it."""
    outer = _MOMENT.get()
    ends = [end for end in (outer, moment) if end is not None]
    token = _MOMENT.set(min(ends) if ends else None)
    try:
        yield
    finally:
        _MOMENT.reset(token)


def stop_if_late() -> None:
    """Raise OutOfTime where the deadline has passed."""
    moment = _MOMENT.get()
    if moment is not None and now() > moment:
        raise OutOfTime
