"""Verdicts follow from cases: every rule, and what turns each verdict."""

import math
from fractions import Fraction
from pathlib import Path

import pytest
from cases import case

from transformer_ledger import documents
from transformer_ledger.claims import table
from transformer_ledger.claims.claim import VERDICTS, Claim, verdict
from transformer_ledger.evidence import differing

ROOT = Path(__file__).parents[1]

CLAIM = Claim("A1.1", "s", "v", "statement", None, "confirmed")


def row(leg="exact", holds=True, scope="stated", applicable=True):
    return case("A1.1", "c", leg, "q", 0 if holds else 1, "==", 0, scope=scope, applicable=applicable)


CONTROL = row("control")


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], "not settled"),
        ([row()], "not settled"),  # no control
        ([CONTROL], "not settled"),  # nothing measured
        ([row(), CONTROL], "confirmed"),
        ([row(), CONTROL, row("control", False)], "not settled"),
        ([row(holds=False), CONTROL], "refuted"),
        ([row(holds=False), row(scope="conditioned"), CONTROL], "conditional"),
        ([row(holds=False), row(scope="conditioned", holds=False), CONTROL], "refuted"),
        ([row(holds=False), row(scope="corrected"), CONTROL], "refuted"),
        ([row(holds=False), row(scope="corrected", holds=False), CONTROL], "not settled"),
        ([row(), row(scope="conditioned", holds=False), CONTROL], "not settled"),
        ([row(), row(scope="printed", holds=False), CONTROL], "not reproducible"),
        ([row(), row(scope="printed"), CONTROL], "confirmed"),
        ([row(), row(holds=False, applicable=False), CONTROL], "not applicable"),
        ([row(applicable=False), CONTROL], "not applicable"),
        ([row(holds=False), row(applicable=False), CONTROL], "refuted"),
    ],
)
def test_verdict(rows, expected):
    assert verdict(CLAIM, rows) == expected


@pytest.mark.parametrize(
    ("measured", "relation", "expected", "holds"),
    [
        (10**30 + 1, "==", 10**30, False),  # equal as floats, not as integers
        (Fraction(1, 3), "==", Fraction(1, 3), True),
        (1 / 3, "==", Fraction(1, 3), False),
        (math.nan, "<=", 1.0, False),
        (math.nan, ">=", 1.0, False),
        (0.5, "in", (0.5, 0.6), True),
        (0.7, "in", (0.5, 0.6), False),
        (1, "bitwise", 0, False),
    ],
)
def test_relations_are_exact_and_nan_never_holds(measured, relation, expected, holds):
    assert case("A1.1", "c", "exact", "q", measured, relation, expected)["holds"] is holds


def test_bits_are_compared_not_values():
    import numpy as np

    assert differing(np.array([0.0, 1.0]), np.array([-0.0, 1.0])) == 1
    assert differing(np.array([math.nan]), np.array([math.nan])) == 0


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (32768, "parameter", "32,768 parameters"),
        (1, "parameter", "1 parameter"),
        (0, "pair", "0 pairs"),
        (11.4, "day", "11.4 days"),
        (16, "byte/parameter", "16 bytes/parameter"),
        (2, "FLOP per weight and token", "2 FLOP per weight and token"),
        (6 * 10**24, "FLOP", "6e+24 FLOP"),
        (Fraction(5, 8), "", "5/8"),
        (1.04397, "%", "1.04397 %"),
        (2.5, "s", "2.5 s"),
        (4.0, "rad/token", "4 rad/token"),
        (math.nan, "nat", "nan nats"),
    ],
)
def test_values_are_shown_with_their_units(value, unit, text):
    assert table.shown(case("A1.1", "c", "exact", "q", value, "<=", 0, unit=unit)) == text


def test_the_registry_is_whole():
    identifiers = [claim.id for claim in table.CLAIMS]
    assert len(set(identifiers)) == len(identifiers)
    assert all(claim.registered in VERDICTS and claim.statement for claim in table.CLAIMS)


def test_unmeasured_claims_appear_and_are_no_surprise():
    rows = table.compute(verification={})
    assert {row["verdict"] for row in rows} == {"not settled"}
    assert not any(row["surprise"] for row in rows)
    assert len(rows) == len(table.CLAIMS)


def test_a_case_for_an_unknown_claim_is_an_error():
    with pytest.raises(ValueError, match="Z9"):
        table.compute(verification={"v": [case("Z9", "c", "exact", "q", 0, "==", 0)]})


def test_the_readme_counts_what_the_registry_expects():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert documents.readme(text) == text, "run `make dictionary`"
    for claim in table.CLAIMS:
        assert (claim.registered == "refuted") == (f"- {claim.id}:" in text)


def test_a_count_of_the_readme_that_is_wrong_is_put_right():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    wrong = text.replace(f"{len(table.CLAIMS)} of their statements", "1 of\ntheir statements")
    assert wrong != text
    assert f"{len(table.CLAIMS)} of\ntheir statements" in documents.readme(wrong)
    with pytest.raises(ValueError, match="once: This project checks"):
        documents.readme(text.replace("of their statements", "of the statements"))
