"""What a row of evidence can do, and that every control fails when its change is switched off."""

import math
from fractions import Fraction

import numpy as np
import pytest

from transformer_ledger import routes
from transformer_ledger.claims import table
from transformer_ledger.claims.claim import Claim, verdict
from transformer_ledger.evidence import (
    Evidence,
    Printed,
    at_least,
    at_most,
    between,
    exactly,
    other_than,
    outside,
    switched_off,
)

CLAIM = Claim("A1.1", "s", "v", "statement", None, "confirmed")


def evidence(**more):
    return Evidence("A1.1", {"size": 3}, by=routes.SEQUENTIAL, against=routes.FORMULA, **more)


@pytest.mark.parametrize(
    ("region", "inside", "not_inside"),
    [
        (at_most(2), [2, -5], [Fraction(201, 100), math.nan, math.inf]),
        (at_least(2), [2, math.inf], [1.99, math.nan]),
        (exactly(10**30), [10**30], [10**30 + 1]),
        (other_than(0), [1, -1], [0, math.nan]),
        (between(1, 2), [1, 1.5, 2], [0.9, 2.1, math.nan]),
        (outside(1, 2), [0, 3], [1, 2, 1.5, math.nan]),
    ],
)
def test_regions_are_exact_and_hold_no_nan(region, inside, not_inside):
    assert all(value in region for value in inside)
    assert not any(value in region for value in not_inside)


@pytest.mark.parametrize("keeps", [at_most(2), at_least(2), exactly(0), between(1, 2)])
def test_what_breaks_a_region_never_meets_it(keeps):
    assert not keeps.meets(keeps.broken())


@pytest.mark.parametrize("keeps", [at_most(2), between(1, 3), other_than(7), outside(5, 6), at_least(-1)])
def test_regions_that_share_a_number_meet(keeps):
    assert keeps.meets(exactly(2))


def shifted(shift=0):
    return 1e-3 + shift


def test_a_control_keeps_both_values_and_breaks():
    rows = evidence()
    rows.control("moved", "distance", shifted, {"shift": 1}, at_most(2e-3))
    (row,) = rows.rows
    assert row["holds"]
    assert (row["unchanged"], row["measured"]) == (1e-3, 1.001)


def test_a_control_whose_change_does_nothing_fails():
    rows = evidence()
    rows.control("not moved", "distance", shifted, {"shift": 0}, at_most(2e-3))
    with switched_off():
        rows.control("moved", "distance", shifted, {"shift": 1}, at_most(2e-3))
    assert [row["holds"] for row in rows.rows] == [False, False]


def test_a_control_whose_unchanged_code_is_off_fails():
    rows = evidence()
    rows.control("moved", "distance", shifted, {"shift": 1}, at_most(1e-4))
    assert not rows.rows[0]["holds"]


@pytest.mark.parametrize("breaks", [at_least(1e-3), other_than(5), between(0, 1)])
def test_a_control_that_could_pass_unchanged_is_refused(breaks):
    with pytest.raises(ValueError, match="keep the claim and break it"):
        evidence().control("moved", "distance", shifted, {"shift": 1}, at_most(2e-3), breaks)


def test_a_control_changes_one_thing():
    with pytest.raises(ValueError, match="changes one thing"):
        evidence().control("moved", "distance", shifted, {"shift": 1, "other": 2}, at_most(1))


def test_one_route_on_both_sides_settles_nothing():
    rows = evidence()
    rows.control("moved", "distance", shifted, {"shift": 1}, at_most(2e-3))
    rows.equal("number", 1, 1)
    assert verdict(CLAIM, rows.rows) == "confirmed"
    rows.equal("number", 1, 1, against=routes.SEQUENTIAL)
    assert verdict(CLAIM, rows.rows) == "not settled"


def test_repetitions_and_theorems_count_for_nothing():
    rows = evidence()
    rows.control("moved", "distance", shifted, {"shift": 1}, at_most(2e-3))
    rows.repetition("again", 1, 1)
    rows.theorem("probability", 0.5, 0, 1)
    assert verdict(CLAIM, rows.rows) == "not settled"
    rows.equal("number", 1, 1)
    rows.theorem("probability", 2, 0, 1)
    assert verdict(CLAIM, rows.rows) == "confirmed"


@pytest.mark.parametrize(
    ("printed", "measured", "outcome"),
    [
        (Printed("2.22e-16"), 2.224e-16, "reproduced"),
        (Printed("2.22e-16"), 8.88e-16, "same magnitude"),
        (Printed("2.22e-16"), 8.88e-15, "not reproduced"),
        (Printed("2.22e-16"), 0.0, "not reproduced"),
        (Printed("0"), 0, "reproduced"),
        (Printed("0"), 1e-300, "not reproduced"),
        (Printed("32,776"), 32776, "reproduced"),
        (Printed("32,776"), 32768, "same magnitude"),
        (Printed("1", rounded=True), Fraction(104, 100), "reproduced"),
        (Printed("1"), Fraction(104, 100), "same magnitude"),
        (Printed("65.48", scale=10**9), 65_475_182_592, "reproduced"),
        (Printed("65.48", scale=10**9), 65_474_999_999, "same magnitude"),
        (Printed("6.30e24"), 63 * 10**23, "reproduced"),
        (Printed("-0.319"), 0.319, "same magnitude"),
        (Printed("1e-12", most=True), 0.0, "reproduced"),
        (Printed("1e-12", most=True), 2e-12, "same magnitude"),
    ],
)
def test_one_rule_says_how_well_a_printed_figure_comes_out(printed, measured, outcome):
    assert printed.outcome(measured) == outcome
    ratio = printed.ratio(measured)
    assert (ratio is None) == (0 in (measured, printed.value))
    assert ratio is None or math.isclose(ratio * float(printed.value), measured, rel_tol=1e-12)


def test_a_figure_applies_with_the_settings_it_was_printed_for():
    printed = Printed("1", {"size": 3, "deep.er": [1]})
    assert printed.applies({"size": 3, "deep": {"er": [1]}, "more": 0})
    assert not printed.applies({"size": 4, "deep": {"er": [1]}})
    assert not printed.applies({"size": 3, "deep": 2})


@pytest.mark.parametrize(("unpublished", "found"), [("", "refuted"), ("initial weights", "not reproducible")])
def test_digits_count_against_a_claim_where_their_inputs_are_published(unpublished, found):
    rows = evidence()
    rows.control("moved", "distance", shifted, {"shift": 1}, at_most(2e-3))
    rows.equal("number", 1, 1)
    rows.prints("change", 8.88e-16, Printed("2.22e-16", {"size": 3}, unpublished=unpublished))
    assert verdict(CLAIM, rows.rows) == found


def test_the_entry_nearest_to_its_bound_is_kept():
    rows = evidence()
    rows.agree("apart", np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.5, 3.1]), np.array([0.0, 1.0, 0.15]))
    assert (rows.rows[0]["measured"], rows.rows[0]["expected"]) == (pytest.approx(0.1), 0.15)
    rows.within("not a number", np.array([0.0, math.nan]), 1.0)
    assert not rows.rows[1]["holds"]


def test_words_are_made_from_parameters_and_keys_are_unique():
    rows = evidence(heads=4).of(tried="rotated")
    rows.equal("number", 1, 1, head_dim=8, key="it")
    assert rows.rows[0]["case"] == "rotated, H = 4, d_h = 8"
    assert rows.rows[0]["parameters"] == '{"head_dim": 8, "heads": 4}'
    with pytest.raises(ValueError, match="two rows have the key"):
        rows.equal("number", 1, 1, key="it")


def test_reasons_hold_the_runs_numbers():
    rows = evidence(unit="parameter")
    rows.equal("number", 32768, 32768, key="n")
    rows.control("moved", "distance", shifted, {"shift": 1}, at_most(2e-3), key="c")
    text = "{n}; {n:,}; {c:.2f} against {c.unchanged:.3f}, {gone:.1f} {gone.unchanged}"
    assert table.told(text, rows.rows) == "32,768 parameters; 32,768; 1.00 against 0.001, — —"
