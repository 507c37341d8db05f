"""The page: every table, picture, formula and claim in one self-contained HTML file.

It reads its input tables and settings alone: no clock, no path, no network. Whatever comes from them is escaped.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jinja2
from markupsafe import Markup

from transformer_ledger.huggingface import TEXT_PART
from transformer_ledger.notation import SYMBOLS
from transformer_ledger.report import (
    calculator,
    claimfigures,
    experiments,
    layout,
    ledgers,
    numbers,
    pictures,
    studies,
)
from transformer_ledger.report import claims as judged
from transformer_ledger.report import formulas as typeset
from transformer_ledger.report import sweeps as swept
from transformer_ledger.report.data import columns_of, encoded
from transformer_ledger.report.layout import CODE, COUNT, Block, Cell, Section
from transformer_ledger.report.parts import shown
from transformer_ledger.summary import surprises

Row = Mapping[str, Any]
Rows = Sequence[Row]
Tables = Mapping[str, Rows]
SCRIPTS = (
    *("elements", "appearance", "tables", "navigation", "draw", "amounts", "quantities", "configfile", "controls"),
    *("results", "calculator", "plays", "start"),
)
"""Modules of the page's script: `elements` comes first, for all use it, and `start` last."""
NO_FUNCTIONS = "const FORMULAS = { structures: [], models: {}, recipes: {}, rules: {} };"
COMPARED = ("evidence", "agreement")  # sections about what models that ran say of the ledgers
WHOLE = ("families", "published")  # ledgers of other models than the config's
DIGEST = 16  # characters shown of a hash


def full_tables(names: Iterable[str], kinds: Mapping[str, Tables], limit: int) -> dict[str, dict[str, Any]]:
    """The tables that the page holds in full, encoded, by their names in results/."""
    out = {}
    for name in names:
        kind, stem = name.split("/")
        if rows := kinds[kind].get(stem):
            out[name] = encoded(rows[:limit], columns_of(name, rows)) | {"total": len(rows)}
    return out


def _of(models: Mapping[str, Any], tables: Tables) -> dict[str, Rows]:
    """Tables without rows of other models; a table of other things stays whole."""
    return {
        stem: rows if stem in WHOLE else [row for row in rows if row.get("model") in (None, *models)]
        for stem, rows in tables.items()
    }


def _in_full(sections: Sequence[Section]) -> Iterator[str]:
    """The tables that sections show in full."""
    for section in sections:
        yield from (block.data["name"] for block in section.blocks if block.kind == "full")
        yield from _in_full(section.sections)


def policy(scripts: Iterable[str]) -> str:
    """A Content-Security-Policy that runs these scripts only and fetches nothing."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts
    )
    rest = "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; script-src {hashes}; {rest}"


def _notes(notes: Any) -> list[str]:
    return [] if not notes else [notes] if isinstance(notes, str) else [str(note) for note in notes]


def _models(models: Mapping[str, Any], given: ledgers.Inputs, every: int, whole: Block) -> Section:
    """The models side by side, in one formula each, and what was read into them."""
    if not models:
        return layout.section("models", layout.text("sections/models/empty", css="note"))
    notes = [
        {"label": given.labels[name], "notes": own} for name in models if (own := _notes(models[name].get("notes")))
    ]
    text_parts = {
        given.labels[name] for name in models if any(TEXT_PART in note for note in _notes(models[name].get("notes")))
    }
    noted = Block("notes", {"title": layout.told("sections/models/notes"), "notes": notes}) if notes else None
    return layout.section(
        "models",
        layout.text("models"),
        layout.text("sections/models/part", css="note", shown=len(models), every=every)
        if every > len(models)
        else None,
        *ledgers.side_by_side(given, text_parts),
        noted,
        sections=[layout.section("whole-formulas", layout.text("whole-formulas"), whole)],
    )


def _provenance(provenance: Mapping[str, Mapping[str, Any]]) -> Section:
    """The commands, and the path, job and digests of every table that the page read."""
    rows = [
        {
            "path": path,
            "digest": _digest(str(metadata.get("digest", ""))),
            "sources": _digest(metadata.get("sources")),
            "inputs": len(metadata.get("inputs") or ()),
        }
        for path, metadata in sorted(provenance.items())
        if path.endswith(".parquet")
    ]
    packages: dict[str, str] = {}
    for metadata in provenance.values():
        found = metadata.get("packages")
        packages |= found if isinstance(found, Mapping) else {}
    columns = {"path": CODE, "digest": CODE, "sources": CODE, "inputs": COUNT}
    return layout.section(
        "provenance",
        Block("commands", {"text": layout.words()["sections"]["provenance"]["commands"]}),
        layout.text("provenance"),
        layout.table("provenance-table", rows, columns),
        Block("packages", {"packages": dict(sorted(packages.items()))}) if packages else None,
    )


def _digest(sources: Any) -> Cell | None:
    if not sources:
        return None
    text = sources if isinstance(sources, str) else hashlib.sha256(calculator.quoted(sources).encode()).hexdigest()
    return Cell(Markup('<code title="{}">{}</code>').format(text, text[:DIGEST]), text)


def _calculator(possible: bool, device: Mapping[str, Any], mixed: Sequence[str]) -> Section:
    """The calculator and which models it leaves out, or why there is none."""
    if not possible:
        return layout.section("what-if", layout.text("sections/what-if/empty", css="note"))
    named = " " + layout.told("sections/what-if/device", device="{device}") if device["name"] else ""
    said = layout.say_text(
        layout.words()["sections"]["what-if"]["text"].replace("{device}", named), device=device["name"]
    )
    without = layout.text("sections/what-if/mixed", models=layout.listed(mixed)) if mixed else None
    return layout.section("what-if", Block("text", {"html": said, "css": ""}), without, Block("calculator", {}))


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("transformer_ledger.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        name: getattr(numbers, name) for name in ("anchor", "number", "linked", "prose", "short", "equation")
    }
    environment.globals |= {"words": layout.words(), "say": layout.say, "told": layout.told}
    return environment


def compute(
    *,
    models: Mapping[str, Any] = {},
    workloads: Mapping[str, Any] = {},
    training_runs: Mapping[str, Any] = {},
    recipes: Mapping[str, Any] = {},
    cache_dtypes: Sequence[str] = (),
    devices: Mapping[str, Mapping[str, Any]] = {},
    report: Mapping[str, Any] = {},
    claims: Mapping[str, Rows] = {},
    verification: Mapping[str, Rows] = {},
    ledger: Mapping[str, Rows] = {},
    experiment: Mapping[str, Rows] = {},
    timing: Mapping[str, Rows] = {},
    study: Mapping[str, Rows] = {},
    sweeps: Mapping[str, Any] = {},
    answers: Mapping[str, Rows] = {},
    maps: Mapping[str, Rows] = {},
    figure: Mapping[str, str] = {},
    formulas: Mapping[str, Any] = {},
    provenance: Mapping[str, Mapping[str, Any]] = {},
    parts: Sequence[str] | None = None,
) -> str:
    """HTML of the page. Any argument may be missing or empty: what rests on it is left out or said to be missing.

    `figure` are the texts of the pictures' SVG files, by their stems; `formulas` is what results/formulas.json holds.
    `parts` are the sections that the page has, where it is not to have all.
    """
    rows, every, models = list(claims.get("claims", [])), len(models), shown(models, report)
    given = ledgers.Inputs(_of(models, ledger), calculator.specs(models), _labels(models), ledger)
    recipes = {name: one for name, one in recipes.items() if not one.get("lora")}  # the calculator has no adapters
    training_runs = {name: run for name, run in training_runs.items() if run["model"] in models}
    kinds = {"ledger": ledger, "experiment": experiment, "study": study, "timing": timing}
    surprised = surprises(claims=claims, verification=verification, **kinds)
    tries, plays = claimfigures.tries(models, recipes), claimfigures.plays(models if formulas else {}, recipes)
    possible = bool(formulas and models and recipes)
    sections = [
        judged.findings(rows, surprised, judged.checks(verification, ledger, experiment)),
        _calculator(possible, calculator.first_device(devices), given.mixed()),
        judged.section(rows, verification, tries, plays),
        _ledgers(given, parts),
        _models(models, given, every, typeset.whole(formulas, given.labels)),
        _chapter("sweeps", swept.sections(sweeps, answers, maps)),
        _chapter("experiments", experiments.sections(experiment)),
        _chapter("studies", studies.sections(study, timing)),
        _timing(timing),
        typeset.section(formulas, given.labels),
        layout.section("glossary", layout.text("glossary"), Block("glossary", {"terms": layout.words()["glossary"]})),
        _provenance(provenance),
    ]
    sections = [part for part in sections if parts is None or part.id in parts]
    data = _data(sections, {**kinds, "ledger": given.ledger}, verification, report)
    every_model, start = calculator.every_model(models), report.get("whatif", {})
    data["whatif"] = calculator.described(every_model, training_runs, recipes, list(cache_dtypes), devices, start)
    lead = layout.say("lead-ledgers") if parts else judged.lead(rows)
    title, script = report.get("title", "Transformer Ledger"), formulas.get("script", NO_FUNCTIONS)
    return _html(title, lead, sections, figure, data, script)


def _labels(models: Mapping[str, Any]) -> dict[str, str]:
    return {name: model.get("label") or name for name, model in models.items()}


def _chapter(id: str, sections: Iterable[Section | None]) -> Section:
    return layout.section(id, layout.text(id), sections=sections)


def _ledgers(given: ledgers.Inputs, parts: Sequence[str] | None) -> Section:
    """The ledgers; on a page of some parts, where nothing ran, without what models that ran say of them."""
    costs = [part for part in ledgers.sections(given) if not parts or part.id not in COMPARED]
    return layout.section("ledgers", layout.text("sections/ledgers/alone" if parts else "ledgers"), sections=costs)


def alone(title: str, lead: Markup, sections: Sequence[Section]) -> str:
    """HTML of a page that has these sections and nothing else: no calculator, no pictures, no whole tables."""
    data = {**_data([], {}, {}, {}), "whatif": calculator.described({}, {}, {}, [], {}, {})}
    return _html(title, lead, sections, {}, data, NO_FUNCTIONS)


def _timing(timing: Tables) -> Section:
    words = layout.text("timing" if timing.get("attention") else "timing-alone")
    return layout.section("timing", words, sections=studies.clocks(timing))


def _data(
    sections: Sequence[Section], kinds: Mapping[str, Tables], verification: Tables, report: Mapping[str, Any]
) -> dict[str, Any]:
    """What the script shows where it is asked for: whole tables, the cases of each claim, the symbols."""
    return {
        "tables": full_tables(_in_full(sections), kinds, report.get("rows_per_table", 3000)),
        "cases": judged.cases_data(verification, report.get("cases_per_claim", 200)),
        "symbols": {name: f"{s.meaning}{f' [{s.unit}]' if s.unit else ''}" for name, s in SYMBOLS.items()},
    }


def _html(
    title: str,
    lead: Markup,
    sections: Sequence[Section],
    figure: Mapping[str, str],
    data: Mapping[str, Any],
    formulas_script: str,
) -> str:
    """The file: what was put together, its style, its scripts and its data."""
    scripts = [formulas_script, "\n".join(layout.file(f"script/{name}.js") for name in SCRIPTS)]
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            title=title,
            lead=lead,
            sections=[part for part in sections if part.sections or part.id not in ("studies", "sweeps", "timing")],
            tables=data["tables"],
            pictures=pictures.inlined(figure),
            style=Markup(layout.file("style.css") + layout.file("whatif.css")),
            scripts=[Markup(text) for text in scripts],
            policy=policy(scripts),
            data=Markup(calculator.quoted(data)),
        )
        .lstrip()
    )
