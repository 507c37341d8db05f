"""A one-hot row times an embedding table gives the bits of the row that it points at.

Claims A1.1 and A1.2.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from transformer_ledger.cases import case, differing
from transformer_ledger.reference.arithmetic import BACKENDS, RATIONAL, SEQUENTIAL

PRINTED = {"vocabulary": 29, "d_model": 24}
EXACT_SUM = "every product is 0 or the entry and adding 0 rounds nothing: a bound of 0"


class Counted:
    """A rational number that counts the multiplications it takes part in."""

    products = 0

    def __init__(self, value: Any):
        self.value = Fraction(value)

    def __mul__(self, other: Counted) -> Counted:
        Counted.products += 1
        return Counted(self.value * other.value)

    def __radd__(self, start: Any) -> Counted:
        return Counted(start + self.value)

    def __add__(self, other: Counted) -> Counted:
        return Counted(self.value + other.value)


def _products(vocabulary: int, table: Any, row: int) -> tuple[int, int]:
    """Multiplications of the one-hot product for one row, and of reading the row."""
    numbers = np.vectorize(Counted, otypes=[object])
    counted, hot = numbers(table), numbers(np.eye(vocabulary, dtype=int)[row : row + 1])
    Counted.products = 0
    SEQUENTIAL.matmul(hot, counted)
    product = Counted.products
    Counted.products = 0
    _ = counted[row]
    return product, Counted.products


def compute(
    vocabulary: int, d_model: int, negative_zero: list[int], infinite_row: int, two_hot: list[int], seed: int
) -> list[dict[str, Any]]:
    """Rows for A1.1 and A1.2.

    The (vocabulary, d_model) table is drawn normal; `negative_zero` is the row and column that get −0.0, `infinite_row`
    the row that gets an infinity in that column, `two_hot` the rows that the two-hot control points at.
    """
    table = np.random.Generator(np.random.PCG64(seed)).standard_normal((vocabulary, d_model))
    one_hot = np.eye(vocabulary)
    row, column = negative_zero
    with_zero, with_infinity = table.copy(), table.copy()
    with_zero[row, column] = -0.0
    with_infinity[infinite_row, column] = np.inf
    as_printed = {"vocabulary": vocabulary, "d_model": d_model} == PRINTED
    drawn = "drawn table, no −0.0 and no infinity"
    rational = RATIONAL.matmul(RATIONAL.array(np.eye(vocabulary, dtype=int)), RATIONAL.array(table))
    rows = [
        case(
            "A1.1",
            "every row of the table",
            "exact",
            "entries of the product that are not the table's",
            int(np.count_nonzero(rational != RATIONAL.array(table))),
            "==",
            0,
            bound_source="rational arithmetic on the stored numbers",
            backend="rational",
        )
    ]
    for run in BACKENDS:
        with np.errstate(invalid="ignore"):
            product = run.matmul(one_hot, table)
            zero = differing(run.matmul(one_hot, with_zero), with_zero)
            infinite = run.matmul(one_hot, with_infinity)
        others = np.arange(vocabulary) != infinite_row
        infinity = differing(infinite[others], with_infinity[others])
        both = run.matmul(one_hot[two_hot].sum(axis=0, keepdims=True), table)[0]
        equal = min(d_model - differing(product[i], table[i]) for i in range(vocabulary))
        first = run is SEQUENTIAL

        def bits(name: str, count: int, run: Any = run, **extra: Any) -> dict[str, Any]:
            return case(
                "A1.1",
                name,
                "floating",
                "entries whose bits differ from the row read",
                count,
                "bitwise",
                0,
                bound_source=EXACT_SUM,
                backend=run.name,
                **extra,
            )

        def broken(name: str, count: int, run: Any = run) -> dict[str, Any]:
            return case(
                "A1.1",
                name,
                "control",
                "entries whose bits differ from the row read",
                count,
                ">=",
                1,
                bound_source="bit for bit",
                backend=run.name,
            )

        rows += [
            case(
                "A1.1",
                drawn,
                "floating",
                "fewest equal entries in a row",
                equal,
                "==",
                d_model,
                scope="conditioned",
                bound_source=EXACT_SUM,
                printed="24",
                backend=run.name,
                headline=first,
                applicable=as_printed,
            ),
            case(
                "A1.1",
                drawn,
                "floating",
                "worst difference",
                float(np.abs(product - table).max()),
                "==",
                0,
                scope="conditioned",
                bound_source=EXACT_SUM,
                printed="0",
                backend=run.name,
                applicable=as_printed,
            ),
            bits(f"{drawn}, every row", differing(product, table), scope="conditioned"),
            bits(f"table with −0.0 in row {row}", zero),
            bits(f"table with an infinity in row {infinite_row}, the other rows", infinity),
            broken("a −0.0 in the table comes back as +0.0", zero),
            broken("an infinity in another row comes back as NaN", infinity),
            broken("two-hot vector, against the first of its rows", differing(both, table[two_hot[0]])),
        ]
    products, reads = _products(vocabulary, table, two_hot[0])
    rows += [
        case(
            "A1.2",
            "one-hot product, executed on numbers that count",
            "exact",
            "multiplications",
            products,
            "==",
            vocabulary * d_model,
            bound_source="entries of the table",
            printed="696",
            headline=True,
            applicable=as_printed,
            backend="rational",
        ),
        case(
            "A1.2",
            "indexed read, executed on numbers that count",
            "exact",
            "multiplications",
            reads,
            "==",
            0,
            bound_source="a read computes nothing",
            backend="rational",
        ),
    ]
    return rows
