"""Sweeps on the page: the heat map and the answers of each; all its rows stay in its files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from transformer_ledger.report import layout, numbers
from transformer_ledger.report.layout import COUNT, SIZE, TEXT, Block, Cell, Column, Format, Section

Rows = Sequence[Mapping[str, Any]]
FRONT = "front"
SHADES = 60  # percent of the accent under the largest value


def _heat(name: str, rows: Rows, value: str, x: str, y: str) -> Block | None:
    """One line for each y, one column for each x; the darker, the larger on a logarithmic scale."""
    logs = [math.log2(max(1, row["least"])) for row in rows]
    if not logs:
        return None
    low, span = min(logs), max(max(logs) - min(logs), 1e-9)
    cells: dict[int, dict[str, Any]] = {}
    for row, log in zip(rows, logs, strict=True):
        number = row["least"]
        shown = numbers.size(number) if value.endswith("bytes") else numbers.number(number, 3)
        style = f"background:color-mix(in srgb,var(--accent) {SHADES * (log - low) / span:.0f}%,transparent)"
        html = Markup('<span class="heat" style="{}">{}</span>').format(style, shown)
        cells.setdefault(row["y"], {"y": row["y"]})[str(row["x"])] = Cell(html, number)
    columns: dict[str, Format | Column] = {"y": Column(f"{y} ↓  {x} →", COUNT)}
    columns |= {str(size): Column(numbers.grouped(size), COUNT) for size in sorted({row["x"] for row in rows})}
    lines = [cells[size] for size in sorted(cells)]
    return layout.table(f"map-{numbers.anchor(name)}", lines, columns, "sweep-map", value=value, x=x, y=y)


def _answers(name: str, rows: Rows) -> Block | None:
    columns = {"question": TEXT, "model": TEXT}
    columns |= dict.fromkeys(("layers", "d_model", "heads", "kv_heads", "d_ff", "batch", "context"), COUNT)
    columns |= {"cache_dtype": TEXT, "recipe": TEXT, "devices": COUNT, "parameters": COUNT, "inference_bytes": SIZE}
    columns |= {"state_bytes_per_device": SIZE, "decode_flops": COUNT}
    return layout.table(f"answers-{numbers.anchor(name)}", rows, columns, "sweep-answers")


def sections(sweeps: Mapping[str, Any], answers: Mapping[str, Rows], maps: Mapping[str, Rows]) -> Iterator[Section]:
    """One section a sweep."""
    for name, sweep in sweeps.items():
        found, shown = answers.get(name, []), sweep["map"]
        front = [row for row in found if row["question"] == FRONT]
        asked = sweep["front"] or {"least": [], "most": []}
        objectives = [f"least {c}" for c in asked["least"]] + [f"most {c}" for c in asked["most"]]
        values = {"name": name, "rows": numbers.grouped(sum(row["rows"] for row in maps.get(name, [])))}
        yield layout.section(
            f"sweep-{numbers.anchor(name)}",
            layout.text("sections/sweep/text" if shown else "sections/sweep/alone", **values),
            _heat(name, maps.get(name, []), shown["value"], shown["x"], shown["y"]) if shown else None,
            _answers(name, [row for row in found if row["question"] != FRONT]),
            layout.text(
                "sections/sweep/front",
                count=layout.counted(len(front), "configuration"),
                objectives=layout.listed(objectives),
                name=name,
            )
            if front
            else None,
            title=name,
        )
