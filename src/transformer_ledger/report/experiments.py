"""The two experiments on the page: the text's own case, all cases by precision, and their pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from transformer_ledger.report import layout, numbers
from transformer_ledger.report.layout import CODE, COUNT, DIFFER, TEXT, YES, Block, Cell, Section
from transformer_ledger.report.rows import counting, ratio
from transformer_ledger.tables import by

Rows = Sequence[Mapping[str, Any]]
DIGITS = 12  # shown of a reference; the exact figures show all
NAMES = {"rope": "rope_dot_product", "softmax": "blocked_softmax", "states": "blocked_softmax_states"}


def sections(experiment: Mapping[str, Rows]) -> list[Section | None]:
    """E1 and E2, each with what its table holds."""
    rope, softmax, states = (experiment.get(name, []) for name in NAMES.values())
    return [
        _rope(rope),
        _softmax(softmax, states),
        _decoder(experiment.get("decoder", [])),
    ]


def _printed(rows: Rows) -> list[dict[str, Any]]:
    """The text's own cases, their reference to some digits, and whether those that count are within their bound."""
    return [
        {
            **row,
            "reference": _reference(row),
            "holds": row["holds"] if row["decisive"] else Cell(Markup('<span class="none">not counted</span>')),
        }
        for row in rows
        if str(row["case"]).startswith("printed")
    ]


def _reference(row: Mapping[str, Any]) -> Cell:
    whole = row.get("reference_decimal") or repr(row["reference"])
    return Cell(numbers.two(whole[: DIGITS + 1], whole), whole)


def _by_precision(rows: Rows) -> list[dict[str, Any]]:
    out = []
    for dtype, own in by(rows, "dtype").items():
        counted = counting(own)
        differences = [row["difference"] for row in counted if row["difference"] is not None]
        out.append(
            {
                "dtype": dtype,
                "cases": len(counted),
                "uncounted": len(own) - len(counted) or None,
                "difference": max(differences, default=None),
                "share": max((100 * ratio(row) for row in counted), default=None),
                "outside": sum(not row["holds"] for row in own),
            }
        )
    return out


BY_PRECISION = {
    "dtype": TEXT,
    "cases": COUNT,
    "outside": DIFFER,
    "share": layout.number(3),
    "difference": layout.number(3),
    "uncounted": COUNT,
}


def _rope(rows: Rows) -> Section:
    values = dict.fromkeys(("observed", "relative", "shifted"), layout.number(9))
    columns = {"case": TEXT, "dtype": TEXT, "holds": YES, **values, "reference": COUNT}
    return layout.section(
        "e1",
        layout.text("e1"),
        Block("play", {"name": "E1"}),
        layout.figure("rope", "rotations"),
        layout.table("e1-printed", _printed(rows), columns | dict.fromkeys(("difference", "bound"), layout.number(3))),
        layout.table(
            "e1-summary",
            _by_precision(rows),
            BY_PRECISION,
            key="experiment-summary",
            name="E1",
            between="from the reference",
        ),
        layout.figure("rope-margin", "margins"),
        layout.full(f"experiment/{NAMES['rope']}"),
    )


def _softmax(rows: Rows, states: Rows) -> Section:
    forward = [row for row in _printed(rows) if row["pass"] == "forward"]
    progress = [
        {
            **row,
            "keys": f"[{row['begin']}, {row['end']})",
            "quotient": row["numerator"] / row["denominator"] if row["denominator"] else None,
        }
        for row in sorted(states, key=lambda row: row["block"])
    ]
    state = dict.fromkeys(("maximum", "denominator", "numerator", "quotient"), layout.number(9))
    errors = dict.fromkeys(("dense_error", "blocked_error", "bound"), layout.number(3))
    columns = {"case": TEXT, "order": TEXT, "dtype": TEXT, "holds": YES, **errors, "naive": layout.number(3)}
    return layout.section(
        "e2",
        layout.text("e2"),
        Block("play", {"name": "E2"}),
        layout.figure("softmax", "states"),
        layout.table("e2-states", progress, {"block": COUNT, "keys": TEXT, **state}),
        layout.table("e2-printed", forward, columns | {"reference": COUNT}),
        layout.table(
            "e2-summary",
            _by_precision(rows),
            BY_PRECISION,
            key="experiment-summary",
            name="E2",
            between="between dense and blocked",
        ),
        layout.figure("softmax-margin", "margins"),
        layout.full(f"experiment/{NAMES['softmax']}"),
    )


def _decoder(rows: Rows) -> Section | None:
    """Our decoder against the NumPy reference and transformers: small models, and one switch at a time."""
    if not rows:
        return None
    shares = [{**row, "share": 100 * ratio(row)} for row in rows]
    models = [
        {
            "case": case,
            **{f"to {other}": max(row["share"] for row in found) for other, found in by(own, "other").items()},
            "compared": len(own),
            "outside": sum(not row["holds"] for row in own),
        }
        for case, own in by([row for row in shares if not row["switch"]], "case").items()
    ]
    switches = [
        {
            "switch": switch,
            "share": max(row["share"] for row in own),
            "changed": min(row["changed_difference"] / row["bound"] for row in own if row["bound"]),
            "outside": sum(not row["holds"] for row in own),
        }
        for switch, own in by([row for row in shares if row["switch"]], "switch").items()
    ]
    share = layout.number(3)
    others = dict.fromkeys(("to NumPy reference", "to transformers"), share)
    return layout.section(
        "decoder",
        layout.text("decoder"),
        layout.table("decoder-models", models, {"case": TEXT, **others, "compared": COUNT, "outside": DIFFER}),
        layout.table(
            "decoder-switches", switches, {"switch": CODE, "share": share, "changed": share, "outside": DIFFER}
        ),
        layout.full("experiment/decoder"),
    )
