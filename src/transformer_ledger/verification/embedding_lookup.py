"""A one-hot row times an embedding table gives the bits of the row that it points at.

Claims A1.1 and A1.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from transformer_ledger import routes
from transformer_ledger.evidence import Evidence, Printed, differing, exactly
from transformer_ledger.reference.arithmetic import BACKENDS, RATIONAL, SEQUENTIAL

TABLE = {"vocabulary": 29, "d_model": 24}  # the text's
EXACT_SUM = "every product is 0 or the entry, and adding 0 rounds nothing"


class Counted(Fraction):
    """A fraction that counts the multiplications it takes part in."""

    products = 0

    def __mul__(self, other: Any) -> Counted:  # type: ignore[override]
        Counted.products += 1
        return Counted(Fraction(self) * Fraction(other))

    def __radd__(self, start: Any) -> Counted:  # type: ignore[override]
        return Counted(Fraction(start) + Fraction(self))

    __add__ = __radd__  # type: ignore[assignment]


def products(table: Any, rows: list[int], by_index: bool = False) -> int:
    """Multiplications that fetching each of `rows` from the table (V, d) takes, by one-hot product or by index."""
    numbers = np.vectorize(Counted, otypes=[object])
    counted, hot = numbers(table), numbers(np.eye(len(table), dtype=int)[rows])
    Counted.products = 0
    _ = counted[rows] if by_index else SEQUENTIAL.matmul(hot, counted)
    return Counted.products


def compute(
    settings: Mapping[str, Any],
    vocabulary: int,
    d_model: int,
    negative_zero: list[int],
    infinite_row: int,
    two_hot: list[int],
    seed: int,
) -> list[dict[str, Any]]:
    """Rows for A1.1 and A1.2.

    The (vocabulary, d_model) table is drawn normal; `negative_zero` is the row and column that get −0.0, `infinite_row`
    the row that gets an infinity in that column, `two_hot` the rows that the two-hot control points at.
    """
    drawn = np.random.Generator(np.random.PCG64(seed)).standard_normal((vocabulary, d_model))
    row, column = negative_zero
    first, second = two_hot
    lookup = Evidence("A1.1", settings, against="row read by its index", source=EXACT_SUM)
    exact = RATIONAL.array(drawn)
    product = RATIONAL.matmul(RATIONAL.array(np.eye(vocabulary, dtype=int)), exact)
    lookup.same(
        "entries of the product that differ from the table's", product.ravel(), exact.ravel(), by=routes.RATIONAL
    )

    def differ(run: Any, edit: tuple[int, float] | None = None, hot: tuple[int, ...] | None = None) -> int:
        """Entries whose bits differ from the row read: every row, or the first of two that are hot.

        `edit` puts a value into one row of the table; where it is an infinity its own row is left out.
        """
        table, one_hot = drawn.copy(), np.eye(vocabulary)
        if edit:
            table[edit[0], column] = edit[1]
        read = [i for i in range(vocabulary) if not (edit and np.isinf(edit[1]) and i == edit[0])]
        if hot:
            one_hot[hot[0]] = one_hot[list(hot)].sum(axis=0)
        with np.errstate(invalid="ignore"):
            return differing(run.matmul(one_hot, table)[read], table[read])

    quantity = "entries whose bits differ from the row read"
    for run in BACKENDS:
        here = lookup.of(by=routes.ARITHMETICS[run.name])
        equal = min(d_model - differing(run.matmul(np.eye(vocabulary), drawn)[i], drawn[i]) for i in range(vocabulary))
        here.prints("fewest equal entries in a row", equal, Printed("24", TABLE), scope="conditioned",
                    headline=run is SEQUENTIAL, key=f"equal_{run.name}")  # fmt: skip
        here.equal(quantity, differ(run), 0, scope="conditioned", tried="no −0.0, no infinity", leg="floating")
        for key, words, edit, lost in (
            ("zero", "a −0.0 in the table", (row, -0.0), 1),
            ("infinity", "an infinity in another row", (infinite_row, np.inf), vocabulary - 1),
        ):
            edited = here.of(tried=words, leg="floating", source="the −0.0 itself; the other rows' entry in the column")
            edited.equal(quantity, differ(run, edit=edit), 0, key=f"{key}_{run.name}")
            edited.equal(quantity, differ(run, edit=edit), lost, scope="corrected", against=routes.FORMULA)
        here.control("two ones in the one-hot row", quantity, lambda run=run, **change: differ(run, **change),
                     {"hot": (first, second)}, exactly(0))  # fmt: skip
    cost = Evidence("A1.2", settings, unit="multiplication", by=routes.ENUMERATION, against=routes.FORMULA)
    cost.prints("multiplications of one product", products(drawn, [first]), Printed("696", TABLE), headline=True)
    cost.equal("multiplications", products(drawn, [first]), vocabulary * d_model, source="entries", key="products")
    cost.control("the row is read by its index", "multiplications", lambda **change: products(drawn, [first], **change),
                 {"by_index": True}, exactly(vocabulary * d_model), exactly(0))  # fmt: skip
    return lookup.rows + cost.rows
