"""What the values of a problem tell: true of it in any of its parameters, and found out once for all of them."""

from __future__ import annotations

from functools import cached_property
from typing import Any, TypeVar

T = TypeVar("T")


class of_values(cached_property[T]):
    """A cached property that a problem in some of the parameters takes from the one it was selected from."""

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        whole = None if instance is None else instance.selected_from
        return super().__get__(instance, owner) if whole is None else getattr(whole, self.attrname or "")
