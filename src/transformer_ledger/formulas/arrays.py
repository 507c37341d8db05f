"""Formulas on whole arrays of integers: as fast as int64 where a bound allows it, exact everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from transformer_ledger.formulas.shim import interval


class Values(np.ndarray):
    """Integers that a formula takes as they are: int64 where no result can pass 2⁶³ (see `checked`), else Python ints.

    Like an int, and unlike an array, they may stand in a description that is compared as a whole: two arrays are then
    equal if they are the same one.
    """

    checked = True

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)

    def __bool__(self) -> bool:
        present = np.asarray(self) != 0
        if present.any() != present.all():
            raise ValueError("some are 0 and some are not")
        return bool(present.all())


def checked(function: Callable[..., Any], *arguments: Any) -> Any:
    """function(*arguments), where arguments may be integer arrays (or mappings of them), never wrapping.

    Intervals go through the same function first. Where they show that nothing on the way can pass 2⁶³ the arrays are
    int64, else Python ints.
    """
    try:
        function(*(_each(interval, argument) for argument in arguments))
        kind: Any = "int64"
    except OverflowError:
        kind = object
    return function(*(_each(lambda values: values.astype(kind).view(Values), argument) for argument in arguments))


def _each(change: Callable[[Any], Any], argument: Any) -> Any:
    if isinstance(argument, dict):
        return {name: _each(change, value) for name, value in argument.items()}
    return change(argument) if isinstance(argument, np.ndarray) else argument
