"""docs/benchmarks.md from benchmarks/results/*.json."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
TITLES = {"parameters": "parameters", "cache_bytes": "cache", "prefill_flops": "forward FLOPs"}


def read() -> dict[str, Any]:
    """What the bench has measured, by part."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))}


def number(value: float) -> str:
    """Three digits that count."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def shown(found: Mapping[str, Any]) -> str:
    """Median and quartiles, where there is more than one value."""
    quartiles = f" ({number(found['low'])} – {number(found['high'])})" if found["repeats"] > 1 else ""
    return number(found["median"]) + quartiles


def _change(ratio: float) -> str:
    """A difference in per cent, to two decimals; a smaller one to one digit, so that it does not read as none."""
    return f"{100 * ratio:+.2f} %" if abs(ratio) >= 5e-5 else f"{Decimal(f'{100 * ratio:.1g}'):+f} %"


def _grid(head: list[str], rows: list[list[str]]) -> Iterator[str]:
    yield from ("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))
    yield ""


def _speed(found: Mapping[str, Any]) -> Iterator[str]:
    yield from ("## Configurations a second of processor time", "")
    repeats = next(iter(found["rates"].values()))["repeats"]
    yield f"Each way runs on one core, one way after another, in {repeats} rounds."
    yield f"The arrays hold {found['configurations']:,} unrelated configurations."
    yield "`All together` computes parameters, weights, cache, FLOPs of three phases and training state. The other tools compute other"
    yield "figures, as the next section shows."
    yield ""
    rows = [
        [name, shown(rate), f"{shown(found['ratios'][name])} times slower" if name in found["ratios"] else ""]
        for name, rate in found["rates"].items()
    ]
    yield from _grid(["way", "configurations a processor second", "against arrays, all together"], rows)


def _exactness(found: Mapping[str, Any]) -> Iterator[str]:
    yield from ("## The same ten models", "")
    load = found["workload"]
    yield f"Batch {load['batch']}, context {load['context']}, cache in bf16."
    yield "Each cell says by how many per cent the tool’s figure differs from the exact one; `=` means the same number."
    yield "calflops runs the model of transformers on the meta device; we double its multiply-adds. We did not ask why some are low."
    yield "llm-analysis gets the sizes, the feed-forward width and the experts of the model’s file; it assumes one kind of layer,"
    yield "two feed-forward matrices and one embedding."
    yield ""
    tools = [("llm-analysis", key) for key in TITLES] + [("calflops", key) for key in ("parameters", "prefill_flops")]
    rows = []
    for model, answers in found["models"].items():
        exact = answers["exact"]
        row = [model, f"{exact['parameters']:,}"]
        for tool, key in tools:
            given = answers[tool][key]
            row.append("=" if given == exact[key] else _change(given / exact[key] - 1))
        rows.append(row)
    yield from _grid(["model", "parameters", *(f"{tool}: {TITLES[key]}" for tool, key in tools)], rows)


def _costs(title: str, found: Mapping[str, Any]) -> Iterator[str]:
    yield from (title, "")
    rows = [
        [name, shown(one["processor"]), shown(one["wall"]), f"{one['memory'] / 2**20:,.0f}"]
        for name, one in sorted(found.items(), key=lambda item: -item[1]["processor"]["median"])
    ]
    yield f"Runs of each: {next(iter(found.values()))['processor']['repeats']}."
    yield ""
    yield from _grid(["what", "processor [s]", "wall [s]", "most memory [MiB]"], rows)


def _waiting(found: Mapping[str, Any]) -> Iterator[str]:
    yield from ("## How long a user waits", "")
    times = found["a clean run"]["repeats"]
    yield f"`snakemake --cores 2` from the call to its end, {times} times each. The floor is what all jobs take, each in a process that"
    yield "has imported everything already: the timings one after another, and half of the rest."
    yield ""
    yield from _grid(["what", "wall [s]"], [[name, shown(one)] for name, one in found.items()])
    ratio = found["a clean run"]["median"] / found["floor of a clean run"]["median"]
    yield from (f"A clean run takes {number(ratio)} times its floor.", "")


def _sweep(found: Mapping[str, Any]) -> Iterator[str]:
    yield from ("## A large sweep", "")
    yield "Rows of config.sweep.yaml’s grid, written by one job on one core."
    yield ""
    rows = [
        [
            f"{one['rows']:,}",
            number(one["wall"]["median"]),
            number(one["rows"] / one["wall"]["median"]),
            f"{one['memory'] / 2**20:,.0f}",
            f"{one['bytes'] / 2**20:,.0f}",
        ]
        for one in sorted(found.values(), key=lambda one: one["rows"])
    ]
    yield from _grid(["rows", "wall [s]", "rows a second", "most memory [MiB]", "file [MiB]"], rows)


def text(results: Mapping[str, Any]) -> str:
    """The page."""
    machine = next(iter(results.values()))["machine"]
    lines = [
        "# Benchmarks",
        "",
        "`make bench` writes this page from `benchmarks/results/*.json`. Times and rates are medians (lower – upper quartile).",
        "",
    ]
    lines += [
        f"Machine: {machine['processor']}, {machine['cores']} cores, {machine['memory'] / 2**30:.0f} GiB; Python {machine['python']}, "
        f"NumPy {machine['numpy']}, PyArrow {machine['pyarrow']}. Other work ran on it at the time.",
        "",
    ]
    parts = {
        "speed": _speed,
        "exactness": _exactness,
        "startup": lambda found: _costs("## Start of `size`", found),
        "waiting": _waiting,
        "sweep": _sweep,
        "jobs": lambda found: _costs("## Jobs of config.yaml", found),
    }
    for name, write in parts.items():
        if name in results:
            lines += write(results[name][name])
    return "\n".join(lines).rstrip() + "\n"
