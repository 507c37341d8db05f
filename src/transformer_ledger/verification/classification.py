"""B10: each change of a trained checkpoint is a change of its function or of its schedule, as registered before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transformer_ledger import routes
from transformer_ledger.evidence import PAST, Evidence, at_least, at_most

BOUND = "running error bounds of both forms, fp64"
SCORES = ("rope", "gqa")
"""Changes that B10.2 speaks of."""


def compute(settings: Mapping[str, Any], study: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Rows of B10.1 and B10.2 from the rows of study/classification."""
    by_key = {row["key"]: row for row in study["classification"]}
    rows = Evidence("B10.1", settings, by=routes.MODULE, source=BOUND)

    def logits(key: str) -> float:
        """Largest change of a logit, divided by its bound."""
        return float(by_key[key]["change_to_bound"])

    def scores(key: str) -> float:
        return float(by_key[key]["score_change"] / by_key[key]["score_bound"])

    quantity = "largest change of a logit, divided by its bound"
    changes = [row for row in by_key.values() if not row["control"]]
    for row in changes:
        one = rows.of(tried=row["change"], registered=row["registered"], key=row["key"])
        if row["registered"] == "function":
            one.beyond(quantity, logits(row["key"]), PAST)
        else:
            one.within(quantity, logits(row["key"]), 1)
    for name in ("function", "schedule"):
        found = sum(row["decided"] == name for row in changes)
        wanted = sum(row["registered"] == name for row in changes)
        rows.equal(f"changes of {name}", found, wanted, against="registered before", headline=True, key=name)
    named = [row for row in changes if row["stated"]]
    decided = sum(row["decided"] in ("function", "schedule") for row in named)
    rows.equal("changes named in the text that are of function or of schedule", decided, len(named),
               against=routes.TEXT, key="named")  # fmt: skip
    for key, change, kept in (("averaged", "the outputs of the blocks averaged, not merged", "blocked"),
                              ("weight", "changed by 2⁻¹⁰ in place of one unit in its last place", "ulp")):  # fmt: skip
        rows.control(
            change,
            quantity,
            lambda key=kept: logits(key),
            {"key": key},
            at_most(1),
            tried=by_key[kept]["change"],
            key=key,
        )

    asked = rows.of("B10.2")
    for key in SCORES:
        here = asked.of(tried=by_key[key]["change"])
        here.beyond(
            "largest change of a first-layer score, divided by its bound", scores(key), PAST, headline=True, key=key
        )
        here.beyond(quantity, logits(key), PAST)
    asked.control("the heads of each group made equal first", "largest change of a first-layer score, divided by its bound",
                  lambda key="gqa": scores(key), {"key": "gqa_equal"}, at_least(PAST), at_most(1), key="gqa_equal",
                  tried=by_key["gqa"]["change"])  # fmt: skip
    return rows.rows
