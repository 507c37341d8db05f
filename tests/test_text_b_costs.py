"""B1, B2, B3 and B5: what the run does not show, with other settings than the shipped ones."""

import pytest

from transformer_ledger.claims import table
from transformer_ledger.verification import grouped_query, matmul_scaling, teaching_parameters, training_state

SHAPE = {"layers": 2, "d_model": 12, "heads": 3, "d_ff": 20, "vocabulary": 29, "context": 16}
GROUPED = {
    "largest_heads": 8,
    "map": {"heads": 8, "kv_heads": 2},
    "printed": {"heads": 8, "kv_heads": 2, "head_dim": 16},
    "tokens": 2,
    "head_dim": 2,
    "cache": {"batch": 2, "context": 8, "heads": 8, "kv_heads": 2, "head_dim": 4},
    "seed": 0,
}


def _verdicts(rows):
    return {row["claim"]: row["verdict"] for row in table.compute(verification={"": rows}) if row["value"]}


def test_other_shapes_give_the_same_verdicts():
    step = {"models": {}, "shape": SHAPE, "batches": [1, 2], "length": 8, "seed": 0}
    rows = teaching_parameters.compute([SHAPE], batch=2, lengths=[2, 4], seed=0)
    rows += matmul_scaling.compute(SHAPE, batches=[1, 3], lengths=[8, 16], blocks=[4])
    rows += training_state.compute(step, **step)
    assert set(_verdicts(rows).values()) == {"confirmed"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"B5.1": "confirmed", "B5.2": "confirmed", "B5.3": "refuted", "B5.4": "confirmed"}),
        ({"printed": {"heads": 4, "kv_heads": 2, "head_dim": 8}}, {"B5.3": "not applicable"}),
        ({"map": {"heads": 4, "kv_heads": 4}}, {"B5.1": "not applicable"}),
        ({"cache": GROUPED["cache"] | {"kv_heads": 4}}, {"B5.2": "not applicable", "B5.4": "confirmed"}),
    ],
)
def test_figures_speak_of_the_settings_that_they_were_printed_for(changes, expected):
    settings = GROUPED | changes
    found = _verdicts(grouped_query.compute(settings, **settings))
    assert {claim: found[claim] for claim in expected} == expected
