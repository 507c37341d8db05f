"""Formulas on whole arrays of integers: as fast as int64 where a bound allows it, exact everywhere.

A formula runs once on intervals. They show whether anything on its way can pass 2⁶³, and they carry its result as a
polynomial of the arguments. Its sums and products may then be taken in any order, and wrap on the way: modulo 2⁶⁴ they
are a ring, and a result that fits int64 is its own remainder. So common factors are taken out, what is small is
multiplied before what is large, and a few thousand configurations at a time stay in the processor's cache.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from transformer_ledger.formulas.interval import LIMIT, UNIT, Interval, Monomial, Terms

CHUNK = 2**13  # numbers of an argument that are worked on together: 64 KiB
Register = int  # a place in a program's list of values


class Values(np.ndarray):
    """Python ints that a formula takes as they are.

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


def _divided(a: Any, b: Any) -> Any:
    if np.any(a % b):
        raise ArithmeticError(f"{b} does not divide {a}")
    return a // b


OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": np.add,
    "*": np.multiply,
    "//": np.floor_divide,
    "/": _divided,
    "minimum": np.minimum,
}


class Program:
    """Steps that work out polynomials of some arrays, each value once."""

    def __init__(self, leaves: Sequence[Any]):
        self.leaves = leaves
        self.shapes: list[tuple[int, ...]] = [leaf.shape for leaf in leaves]
        self.constants: dict[Register, int] = {}
        self.steps: list[tuple[Callable[[Any, Any], Any], Register, Register, Register]] = []
        self.known: dict[Hashable, Register] = {index: index for index in range(len(leaves))}

    def constant(self, value: int) -> Register:
        """An integer, modulo 2⁶⁴."""
        key = "constant", (value + LIMIT) % (2 * LIMIT) - LIMIT
        if key not in self.known:
            self.known[key] = len(self.shapes)
            self.constants[len(self.shapes)] = key[1]
            self.shapes.append(())
        return self.known[key]

    def step(self, operation: str, a: Register, b: Register) -> Register:
        """What an operation makes of two values."""
        if operation == "*" and 1 in (self.constants.get(a), self.constants.get(b)):
            return b if self.constants.get(a) == 1 else a
        key = operation, *(sorted((a, b)) if operation in "+*" else (a, b))
        if key not in self.known:
            self.known[key] = made = len(self.shapes)
            self.steps.append((OPERATIONS[operation], made, a, b))
            self.shapes.append(np.broadcast_shapes(self.shapes[a], self.shapes[b]))
        return self.known[key]

    def atom(self, atom: Any) -> Register:
        """An argument, or what an operation makes of two polynomials."""
        if atom not in self.known:
            operation, a, b = atom
            self.known[atom] = self.step(operation, self.polynomial(dict(a)), self.polynomial(dict(b)))
        return self.known[atom]

    def sum(self, parts: Sequence[Register]) -> Register:
        """The sum of some values, the small ones first."""
        first, *rest = sorted(parts, key=lambda part: (math.prod(self.shapes[part]), part))
        for part in rest:
            first = self.step("+", first, part)
        return first

    def polynomial(self, terms: Terms) -> Register:
        """The value of a polynomial."""
        key = frozenset(terms.items())
        if key not in self.known:
            common = math.gcd(*terms.values()) * (-1 if max(terms.values(), default=0) < 0 else 1)
            if not terms.keys() - {UNIT}:
                self.known[key] = self.constant(terms.get(UNIT, 0))
            elif common != 1:
                inner = self.polynomial({monomial: n // common for monomial, n in terms.items()})
                self.known[key] = self.step("*", inner, self.constant(common))
            else:
                self.known[key] = self.sum(self._parts(terms))
        return self.known[key]

    def _parts(self, terms: Terms) -> list[Register]:
        """Summands of a polynomial, what is wide in as few steps as may be."""
        shapes = {atom: self.shapes[self.atom(atom)] for monomial in terms for atom, _ in monomial}
        widest = max(shapes.values(), key=math.prod)
        groups: dict[Monomial, dict[Monomial, int]] = {}
        rest: dict[Monomial, int] = {}
        for monomial, n in terms.items():
            inner = frozenset(part for part in monomial if shapes[part[0]] == widest)
            if inner:
                groups.setdefault(monomial - inner, {})[inner] = n
            else:
                rest[monomial] = n
        if list(groups) == [UNIT]:
            parts = self._factored(groups[UNIT])
        else:
            parts = [
                self.step("*", self.polynomial({outer: 1}), self.polynomial(inner)) for outer, inner in groups.items()
            ]
        return [*parts, *([self.polynomial(rest)] if rest else [])]

    def _factored(self, terms: Terms) -> list[Register]:
        """Summands of a polynomial without a constant, the atom that most of them share taken out."""
        shares = Counter(atom for monomial in terms for atom, _ in monomial)
        atom = max(shares, key=lambda one: (shares[one], -self.atom(one)))
        held: dict[Monomial, int] = {}
        rest: dict[Monomial, int] = {}
        for monomial, n in terms.items():
            powers = dict(monomial)
            if atom in powers:
                powers[atom] -= 1
                held[frozenset((one, power) for one, power in powers.items() if power)] = n
            else:
                rest[monomial] = n
        product = self.step("*", self.atom(atom), self.polynomial(held))
        return [product, *([self.polynomial(rest)] if rest else [])]

    def run(self, results: Sequence[Register]) -> list[Any]:
        """The arrays in some registers, worked out a chunk of the first axis at a time."""
        length = max(shape[0] for shape in self.shapes if shape)
        step = max(1, CHUNK * length // max(leaf.size for leaf in self.leaves))
        out = [np.empty(self.shapes[result], np.int64) for result in results]
        values: list[Any] = [self.constants.get(register) for register in range(len(self.shapes))]
        for start in range(0, length, step):
            part = slice(start, start + step)
            values[: len(self.leaves)] = [leaf[part] if len(leaf) > 1 else leaf for leaf in self.leaves]
            for operation, made, a, b in self.steps:
                values[made] = operation(values[a], values[b])
            for array, result in zip(out, results, strict=True):
                array[part if len(array) > 1 else ...] = values[result]
        return out


def checked(function: Callable[..., Any], *arguments: Any) -> Any:
    """function(*arguments), where arguments may be integer arrays (or mappings of them), never wrapping.

    Where intervals show that nothing on the way can pass 2⁶³ the results are int64 arrays, else arrays of Python ints.
    All arrays have the same number of axes and broadcast. An int that no array goes into stays an int.
    """
    leaves: list[Any] = []

    def bounded(values: Any) -> Any:
        if not isinstance(values, np.ndarray):
            return values
        leaves.append(values.astype(np.int64, copy=False))
        return Interval(int(values.min()), int(values.max()), {frozenset({(len(leaves) - 1, 1)}): 1})

    def exact(values: Any) -> Any:
        return values.astype(object).view(Values) if isinstance(values, np.ndarray) else values

    try:
        found = function(*(_each(bounded, argument) for argument in arguments))
    except OverflowError:
        return function(*(_each(exact, argument) for argument in arguments))
    program = Program(leaves)
    asked: dict[int, Register] = {}
    _each(
        lambda one: asked.update({id(one): program.polynomial(one.terms)}) if isinstance(one, Interval) else one, found
    )
    made = dict(zip(asked, program.run(list(asked.values())), strict=True)) if asked else {}
    return _each(lambda one: made.get(id(one), one), found)


def _each(change: Callable[[Any], Any], value: Any) -> Any:
    """A value with all that is in its mappings and tuples changed."""
    if isinstance(value, dict):
        return {name: _each(change, inner) for name, inner in value.items()}
    return tuple(_each(change, inner) for inner in value) if isinstance(value, tuple) else change(value)
