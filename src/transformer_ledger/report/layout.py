"""What the page is made of: sections of blocks, and tables by specification. The words stand in words.yaml.

A table is an id, rows, and columns; a column is a key of the rows, a label with its unit, and a format. One macro of
the template draws them all. A cell knows what is read of it, and the plain number that sorts and that a CSV file gets.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import yaml
from markupsafe import Markup

from transformer_ledger.report import numbers

Row = Mapping[str, Any]
Rows = Sequence[Row]
NONE = Markup('<span class="none">—</span>')
MANY = 10
"""Tables of more rows than this get a box that filters them."""


def file(name: str) -> str:
    """A file of this package."""
    return resources.files("transformer_ledger.report").joinpath(name).read_text(encoding="utf-8")


@functools.cache
def words() -> Mapping[str, Any]:
    """Everything that the page says, from words.yaml."""
    return dict(yaml.safe_load(file("words.yaml")))


def _found(path: str) -> Any:
    return functools.reduce(lambda part, key: part[key], path.split("/"), words())


def _marked(text: str) -> Markup:
    """Escaped text in which *this* is emphasised, `this` is code, and [this](#there) leads to a place on the page."""
    html = "".join(part if part.startswith("`") else str(numbers.prose(part)) for part in re.split(r"(`[^`]+`)", text))
    html = re.sub(r"\[([^\]]+)\]\(#([\w.-]+)\)", r'<a href="#\2">\1</a>', html)
    html = re.sub(r"`([^`]+)`", r"<code>\1</code>", html)
    html = re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", html)
    return Markup(re.sub(r"(?<![\w*])\*([^*\s][^*]*)\*(?!\w)", r"<em>\1</em>", html))


def say(path: str, **values: Any) -> Markup:
    """The text at `path` of words.yaml as HTML, with `values` put into its braces (escaped, whatever they hold)."""
    return say_text(_found(path), **values)


def say_text(text: str, **values: Any) -> Markup:
    """A text of words.yaml as HTML, with `values` put into its braces."""
    return _marked(" ".join(text.split())).format(**values)


def told(path: str, **values: Any) -> str:
    """The same as plain text."""
    return " ".join(str(_found(path)).split()).format(**values)


def counted(count: int, one: str, many: str = "") -> str:
    """1 model, 12 models."""
    return f"{numbers.grouped(count)} {one if count == 1 else many or one + 's'}"


def listed(names: Iterable[Any]) -> str:
    """a, b and c."""
    *most, last = list(map(str, names)) or ["none"]
    return f"{', '.join(most)} and {last}" if most else last


# ---------------------------------------------------------------------------------------------- tables


@dataclass(frozen=True)
class Cell:
    """What is read of a cell, and what it sorts by; `high` is the other end of an interval."""

    html: Any
    value: Any = None
    high: Any = None
    css: str = ""
    title: str = ""


@dataclass(frozen=True)
class Format:
    """How a column's values are shown: `kind` is text, number or interval; a Cell in a row is taken as it is."""

    kind: str
    cell: Callable[[Any], Cell]

    def __call__(self, value: Any) -> Cell:
        """The cell of `value`."""
        return value if isinstance(value, Cell) else Cell(NONE, "") if value in (None, "") else self.cell(value)


def number(digits: int = 5) -> Format:
    """A number to so many digits; the exact one where the page shows exact figures."""
    return Format("number", lambda value: Cell(numbers.number(value, digits), value))


def measured(show: Callable[[Any], Markup]) -> Format:
    """A quantity with its own units: `numbers.size`, `numbers.duration`."""
    return Format("number", lambda value: Cell(show(value), value))


def interval(show: Callable[[Any], Any]) -> Format:
    """(low, high), one number where both are read alike, a dash where an end is missing."""

    def cell(ends: tuple[Any, Any]) -> Cell:
        low, high = ends
        if low is None or high is None:
            return Cell(NONE, "")
        shown = [show(low), show(high)]
        html = shown[0] if len(set(map(numbers.plain, shown))) == 1 else Markup("{} to {}").format(*shown)
        return Cell(html, low, high)

    return Format("interval", cell)


TEXT = Format("text", Cell)
LONG = Format("text", lambda value: Cell(numbers.prose(value), css="wrap"))
CODE = Format("text", lambda value: Cell(Markup("<code>{}</code>").format(value)))
YES = Format("text", lambda value: Cell("yes" if value else Markup('<span class="none">no</span>')))
COUNT, SIZE, TIME = number(), measured(numbers.size), measured(numbers.duration)
LARGE, PARAMETERS = measured(numbers.large), measured(lambda value: numbers.large(value, "B"))
PERCENT = Format("number", lambda value: Cell(numbers.percent(value), float(value * 100)))
DIFFER = Format("number", lambda value: Cell(numbers.number(value), value, css="off" if value else "zero"))


def differing(differ: int, compared: int) -> Cell:
    """How many of the rows that were compared differ."""
    of = Markup('{} <span class="of">of {}</span>').format(numbers.number(differ), numbers.short(compared))
    return Cell(
        of if compared else NONE, differ if compared else "", css="off" if differ else "zero" if compared else ""
    )


@dataclass(frozen=True)
class Column:
    """A column whose label comes from the data, not from words.yaml."""

    label: str
    format: Format = COUNT
    unit: str = ""
    title: str = ""


# ---------------------------------------------------------------------------------------------- blocks


@dataclass(frozen=True)
class Block:
    """One piece of a section; `kind` names the template's macro that draws it from the data."""

    kind: str
    data: Mapping[str, Any]


@dataclass
class Section:
    """A heading with its blocks; sections within it are the next level of the contents."""

    id: str
    title: str
    blocks: list[Block] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)


def section(id: str, *blocks: Block | None, sections: Iterable[Section | None] = (), title: str = "") -> Section:
    """A section with its title from words.yaml, and without what is missing."""
    return Section(
        id,
        title or told(f"sections/{id}/title"),
        [block for block in blocks if block],
        [part for part in sections if part],
    )


def text(path: str, css: str = "", **values: Any) -> Block:
    """A paragraph: `text` of a section, or another path of words.yaml."""
    path = path if "/" in path else f"sections/{path}/text"
    return Block("text", {"html": say(path, **values), "css": css})


def table(id: str, rows: Rows, columns: Mapping[str, Format | Column], key: str = "", **values: Any) -> Block | None:
    """A table with its words at tables/`key` (or `id`), `values` put into its caption; the first column names the rows.

    A column in which no row has anything is left out.
    """
    if not rows:
        return None
    spoken = _found(f"tables/{key or id}")
    made: list[Column] = []
    cells: list[list[Cell]] = []
    for name, form in columns.items():
        entry = spoken["columns"].get(name) if isinstance(form, Format) else None
        label, unit, title = [*(entry if isinstance(entry, list) else [str(entry)]), "", ""][:3]
        column = form if isinstance(form, Column) else Column(label, form, unit.format(**values), title)
        own = [column.format(row.get(name)) for row in rows]
        if made and all(cell.html is NONE for cell in own):
            continue
        made.append(column)
        cells.append(own)
    shown = [{"cells": own, "row": row} for row, own in zip(rows, zip(*cells, strict=True), strict=True)]
    caption = told(f"tables/{key or id}/caption", **values)
    return Block("table", {"id": id, "caption": caption, "columns": made, "rows": shown, "filter": len(rows) > MANY})


def figure(name: str, key: str = "", **values: Any) -> Block:
    """The picture `name`, where something is drawn in it, with its caption from words.yaml at figures/`key` (or `name`)."""
    return Block("figure", {"name": name, "caption": say(f"figures/{key or name}", **values)})


def full(name: str) -> Block:
    """The whole table `name` of results/, closed until it is asked for."""
    titles = words()["full"]
    return Block("full", {"name": name, "title": titles.get(name, titles["other"])})
