"""The findings and the claims on the page: verdicts, reasons, printed figures beside ours, sabotages, cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from markupsafe import Markup

from transformer_ledger.claims import text_a, text_b
from transformer_ledger.claims.claim import VERDICTS
from transformer_ledger.claims.table import plural
from transformer_ledger.evidence import ASIDE, CONTROL, EXACT, FLOATING, REPRODUCED
from transformer_ledger.ledger.counted import NOTHING
from transformer_ledger.report import layout, numbers
from transformer_ledger.report.claimfigures import PICTURES
from transformer_ledger.report.data import columns_of, encoded
from transformer_ledger.report.layout import Block, Section
from transformer_ledger.report.ledgers import rows_alone
from transformer_ledger.summary import differing, met_by
from transformer_ledger.tables import by

Row = Mapping[str, Any]
Rows = Sequence[Row]
Tables = Mapping[str, Rows]
TITLES = {"A": text_a.TITLE, "B": text_b.TITLE}
NOTABLE = ("refuted", "conditional", "not reproducible")
SURPRISES = 30  # shown; the rest is in the summary


def texts(claims: Rows) -> list[dict[str, Any]]:
    """The claims by text and by section of the text."""
    return [
        {
            "source": source,
            "title": TITLES.get(source, source),
            "claims": own,
            "sections": [
                {"id": numbers.anchor("section", source, section), "title": section, "claims": rows}
                for section, rows in by(own, "section").items()
            ],
        }
        for source, own in by(claims, "source").items()
    ]


def lead(claims: Rows) -> Markup:
    """What the whole page says, in three sentences."""
    if not claims:
        return layout.say("lead-empty")
    counts = Counter(row["verdict"] for row in claims)
    verdicts = [
        layout.told(f"tally-one/{name}" if counts[name] == 1 else f"tally/{name}", count=counts[name])
        for name in VERDICTS
        if counts[name]
    ]
    named = [layout.told(f"texts/{source}", title=title) for source, title in TITLES.items()]
    return layout.say("lead", total=len(claims), texts=layout.listed(named), verdicts=layout.listed(verdicts))


# ---------------------------------------------------------------------------------------------- findings


def _check(name: str, wrong: int, total: int, **values: Any) -> dict[str, Any]:
    """One line about a count that should be 0."""
    off = wrong or not total
    counts = {"wrong": numbers.short(wrong), "total": numbers.short(total)}
    return {
        "html": layout.say(f"checks/{name}{'' if off else '-none'}", **counts, **values),
        "css": "off" if off else "zero",
    }


def checks(verification: Tables, ledger: Tables, experiment: Tables) -> list[dict[str, Any]]:
    """Counts that differ, cases beyond their bounds, and sabotages not caught."""
    compared = [row for rows in ledger.values() for row in rows if row.get("difference") is not None]
    held = [row for rows in experiment.values() for row in rows if row.get("decisive")]
    wide = sum(row.get("decisive") is False for rows in experiment.values() for row in rows)
    alone = rows_alone(ledger)
    controls = [row for rows in verification.values() for row in rows if row["leg"] == CONTROL]
    differ = sum(map(len, differing(ledger).values()))
    met = layout.listed(
        layout.told(f"checks/met/{name}", count=numbers.short(count))
        for name, count in met_by(ledger).items()
        if count and name != NOTHING
    )
    nothing = layout.told("checks/nothing", rows=layout.listed(alone)) if alone else ""
    uncounted = layout.say("checks/uncounted", count=numbers.short(wide)) if wide else ""
    outside, missed = (sum(not row["holds"] for row in rows) for rows in (held, controls))
    return [
        _check("differ", differ, len(compared), met=met, nothing=nothing),
        _check("outside", outside, len(held), uncounted=uncounted),
        _check("controls", missed, len(controls)),
    ]


def findings(claims: Rows, surprises: Sequence[str], lines: Sequence[Mapping[str, Any]]) -> Section:
    """What was found: the map of all claims, the checks, and every claim that does not simply hold."""
    counts = Counter(row["verdict"] for row in claims)
    notable = [
        {"verdict": name, "heading": layout.words()["verdicts"][name][2], "claims": chosen}
        for name in NOTABLE
        if (chosen := [row for row in claims if row["verdict"] == name])
    ]
    shown = {
        "texts": texts(claims),
        "counts": [(name, counts[name], layout.words()["verdicts"][name][1]) for name in VERDICTS if counts[name]],
        "checks": lines,
        "surprises": surprises[:SURPRISES],
        "more": layout.say("sections/findings/more", count=len(surprises) - SURPRISES)
        if len(surprises) > SURPRISES
        else "",
        "notable": notable,
    }
    first = layout.text("findings") if claims else layout.text("sections/findings/empty", css="note")
    return layout.section("findings", first, Block("findings", shown))


# ---------------------------------------------------------------------------------------------- one claim


def value(row: Row, column: str = "measured") -> str:
    """A value of a case as people read it, with its unit: a fraction as a decimal number."""
    exact = row.get(f"{column}_exact")
    number: Any = row[column] if exact is None else Fraction(exact)
    if isinstance(number, Fraction):
        number = int(number) if number.denominator == 1 else float(number)
    return f"{numbers.short(number, 5)} {plural(row['unit'], number)}".strip()


def _printed(rows: Rows) -> list[dict[str, Any]]:
    """What the text prints beside what this run measured, and how well it reproduces."""
    out: list[dict[str, Any]] = []
    shown = [row for row in rows if row.get("reproduced") and row["applicable"]]
    repeated, arithmetics = Counter(row["quantity"] for row in shown), layout.words()["claims"]["arithmetic"]
    for row in shown:
        ratio = None if row["reproduced"] == REPRODUCED else row.get("to_printed")
        digits = 5 if ratio and abs(ratio - 1) < 0.005 else 3  # 0.99976, not 1
        outcome = (
            layout.told("claims/outcome", outcome=row["reproduced"], ratio=numbers.short(ratio, digits))
            if ratio
            else row["reproduced"]
        )
        by_arithmetic = arithmetics.get(row["backend"]) if repeated[row["quantity"]] > 1 else None
        quantity = f"{row['quantity']} ({by_arithmetic})" if by_arithmetic else row["quantity"]
        entry = {"printed": row["printed"], "ours": value(row), "quantity": quantity, "outcome": outcome}
        out += [entry] if entry not in out else []
    return out


def _sabotages(rows: Rows) -> list[dict[str, Any]]:
    """One line for each change: the same quantity as it is and with the change, of the first case that had it."""
    out = []
    for change, own in by([{**row, "change": row.get("change") or row["case"]} for row in rows], "change").items():
        # The one that was not caught, else the one that the reason quotes.
        first = min(own, key=lambda row: (row["holds"], row["key"] is None))
        both = {"quantity": first["quantity"], "measured": value(first)}
        known = first.get("unchanged") is not None
        told = (
            layout.say("claims/sabotage", unchanged=value(first, "unchanged"), **both)
            if known
            else layout.say("claims/sabotage-old", **both)
        )
        out.append(
            {
                "change": change,
                "told": told,
                "times": layout.told("claims/times", count=len(own)) if len(own) > 1 else "",
                "caught": all(row["holds"] for row in own),
            }
        )
    return out


def _evidence(claim: Row, rows: Rows) -> str:
    """What stands behind a claim in one line."""
    counts = Counter(row["leg"] for row in rows)
    parts = [layout.counted(counts[leg], *layout.words()["claims"][leg]) for leg in (EXACT, FLOATING) if counts[leg]]
    if claim["controls"]:
        parts.append(layout.counted(claim["controls"], "sabotage") + f", {claim['controls_broken']} caught")
    if not parts:
        return layout.told("claims/legs-none")
    if claim["measured_to_bound"] is not None:
        parts.append(layout.told("claims/worst", percent=numbers.short(100 * claim["measured_to_bound"], 2)))
    asides = sum(counts[leg] for leg in ASIDE)
    if asides:
        parts.append(layout.counted(asides, *layout.words()["claims"]["asides"]))
    return layout.told("claims/legs", legs=" · ".join(parts))


def _claim(claim: Row, rows: Rows, setting: str | None, play: bool) -> dict[str, Any]:
    """Everything that the page shows of one claim."""
    name = claim["claim"]
    mark = layout.words()["verdicts"][claim["verdict"]][0]
    return {
        **claim,
        "mark": mark,
        "figures": _printed(rows),
        "evidence": _evidence(claim, rows),
        "sabotages": _sabotages([row for row in rows if row["leg"] == CONTROL]),
        "surprising": layout.say("claims/surprise", registered=claim["registered"]) if claim["surprise"] else "",
        "figure": layout.figure(PICTURES[name], name) if name in PICTURES else None,
        "link": setting,
        "play": play,
        "cases_title": layout.told("claims/cases", claim=name),
        "total": len(rows),
    }


def section(claims: Rows, verification: Tables, settings: Mapping[str, str], plays: Sequence[str]) -> Section:
    """All claims, by text and section of the text; `settings` of the calculator, and `plays`, by claim."""
    grouped = by([row for table in verification.values() for row in table], "claim")
    counts = Counter(row["verdict"] for row in claims)
    parts = []
    for text in texts(claims):
        inner = []
        for own in text["sections"]:
            shown = [
                _claim(row, grouped.get(name, []), settings.get(name), name in plays)
                for row in own["claims"]
                for name in [row["claim"]]
            ]
            inner.append(Section(own["id"], own["title"], [Block("claims", {"claims": shown})]))
        title = layout.told("text-parts", source=text["source"], title=text["title"])
        parts.append(Section(numbers.anchor("text", text["source"]), title, sections=inner))
    filters = Block("filters", {"counts": [(name, counts[name]) for name in VERDICTS if counts[name]]})
    return layout.section("claims", layout.text("claims"), filters if claims else None, sections=parts)


def cases_data(verification: Tables, limit: int) -> dict[str, dict[str, Any]]:
    """For each claim its cases as an encoded table; of more than `limit`, the decisive and an even sample."""
    out = {}
    for claim, rows in by([row for table in verification.values() for row in table], "claim").items():
        kept = rows
        if len(rows) > limit:
            decisive = [i for i, row in enumerate(rows) if row["leg"] == CONTROL or row["headline"] or not row["holds"]]
            rest = [i for i in range(len(rows)) if i not in set(decisive)]
            room = max(0, limit - len(decisive))
            sample = {rest[i * len(rest) // room] for i in range(room)} if room and rest else set()
            kept = [rows[i] for i in sorted({*decisive[:limit], *sample})]
        shown = [_case(row) for row in kept]
        out[str(claim)] = encoded(shown, columns_of("cases", shown)) | {"total": len(rows)}
    return out


def _case(row: Row) -> dict[str, Any]:
    """A case with exact integers where it has them; a fraction is read as a decimal number."""

    def plain(column: str) -> Any:
        exact = row.get(f"{column}_exact")
        return row.get(column) if exact is None or "/" in exact else exact

    exact = {column: plain(column) for column in ("measured", "expected", "unchanged")}
    return {**row, **exact, "relation": "differing bits" if row["relation"] == "bitwise" else row["relation"]}
