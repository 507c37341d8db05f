"""The page's pictures: matplotlib draws, the page's style sheet colours.

Every colour is a placeholder that becomes a CSS variable, so one picture serves both themes and print. Text stays text.
The same data give the same bytes.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from transformer_ledger.report.numbers import percent, short

INK, SOFT, RULE, PAPER = "#0a0b01", "#0a0b02", "#0a0b03", "#0a0b04"
SERIES = tuple(f"#0a0c{index:02d}" for index in range(1, 9))
_VARIABLES = {INK: "--ink", SOFT: "--soft", RULE: "--rule", PAPER: "--paper"} | {
    colour: f"--series-{index}" for index, colour in enumerate(SERIES, 1)
}
WIDTH = 6.6  # inches
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.2, 1.4)), (0, (6, 1.5, 1.2, 1.5)))
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "transformer-ledger",
    "font.size": 8.5,
    "font.family": "DejaVu Sans",
    "text.color": INK,
    "text.parse_math": False,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.5,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "lines.linewidth": 1.5,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
}


def style() -> Any:
    """Context in which the pictures are drawn: matplotlib's own defaults, whatever a matplotlibrc says, then ours."""
    return matplotlib.rc_context({**matplotlib.rcParamsDefault, **_STYLE})


def svg(figure: Figure, name: str, title: str, description: str) -> Markup:
    """`figure` as inline SVG with the accessible name `title` and `description`; ids begin with `name`."""
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    box = re.search(r'viewBox="([^"]*)"', text)
    assert box is not None
    text = text[text.index(">", text.index("<svg")) + 1 :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r'<g id="[^"]*">', "<g>", text)  # groups are never referred to
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", text)
    text = text.replace("xlink:href", "href")
    text = text.replace("font-family: 'DejaVu Sans'; ", "")  # the page's own face
    text = re.sub(r' transform="rotate\(-?0 [^)]*\)"', "", text)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    text = re.sub(r"\s*\n\s*", "\n", text)
    head = (
        f'<svg class="picture" id="{name}" viewBox="{box[1]}" role="img" aria-labelledby="{name}-title {name}-desc">'
        f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-desc">{escape(description)}</desc>'
    )
    return Markup(head + text)


def _spread(positions: Sequence[float], gap: float) -> list[float]:
    """`positions` moved as little as needed, in order, until neighbours are `gap` apart."""
    order = sorted(range(len(positions)), key=lambda index: positions[index])
    groups: list[tuple[float, list[int]]] = []  # (centre, members)
    for index in order:
        groups.append((positions[index], [index]))
        while len(groups) > 1:
            (below, left), (above, right) = groups[-2:]
            if above - below >= gap * (len(left) + len(right)) / 2:
                break
            members = left + right
            groups[-2:] = [(sum(positions[member] for member in members) / len(members), members)]
    out = [0.0] * len(positions)
    for centre, members in groups:
        for place, member in enumerate(members):
            out[member] = centre + gap * (place - (len(members) - 1) / 2)
    return out


def clipped(label: str, most: int = 34) -> str:
    """A label that leaves a picture's margin whole."""
    return label if len(label) <= most else label[: most - 1] + "…"


def _margin(labels: Iterable[str], least: float = 0.1) -> float:
    """Share of a picture's width that the longest of `labels` takes, at the pictures' one width and size of type."""
    longest = max((len(clipped(label)) for label in labels), default=0)
    return max(least, (12 + 4.5 * longest) / (72 * WIDTH))


def _label_ends(axes: Axes, ends: Sequence[tuple[str, float, float, str]]) -> None:
    """Names of lines beside their right ends (label, x, y, colour), moved apart where they would touch."""
    height = axes.get_position().height * axes.get_figure().get_size_inches()[1] * 72  # type: ignore[union-attr]
    places = axes.transData.transform([(x, y) for _, x, y, _ in ends])
    inside = [float(axes.transAxes.inverted().transform(place)[1]) for place in places]
    edge = axes.get_xlim()[1]
    for (label, x, y, colour), where in zip(ends, _spread(inside, 11 / height), strict=True):
        level = axes.transData.inverted().transform(axes.transAxes.transform((1.0, where)))[1]
        axes.plot((x, edge), (y, level), color=colour, linewidth=0.5, alpha=0.5, clip_on=False)
        axes.annotate(
            clipped(label),
            xy=(1.0, where),
            xycoords="axes fraction",
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color=colour,
            annotation_clip=False,
        )


def lines(
    name: str,
    title: str,
    description: str,
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    x_label: str,
    y_label: str,
    x_scale: str = "linear",
    y_scale: str = "linear",
    x_ticks: Sequence[tuple[float, str]] = (),
    y_ticks: Sequence[tuple[float, str]] = (),
    marks: bool = False,
    guides: Sequence[tuple[float, str]] = (),
    bottom: float | None = None,
    top: float | None = None,
) -> Markup:
    """Line chart, one line a series with its name at its end; guides are named horizontal lines."""
    with style():
        figure = Figure(figsize=(WIDTH, 3.5))
        axes = figure.add_axes((0.105, 0.14, 0.885 - _margin(series), 0.77))
        axes.set_xscale(x_scale)
        axes.set_yscale(y_scale)
        ends = []
        for index, (label, points) in enumerate(series.items()):
            points = [(x, y) for x, y in points if math.isfinite(y) and (y_scale == "linear" or y > 0)]
            if not points:
                continue
            colour = SERIES[index % len(SERIES)]
            axes.plot(
                *zip(*points, strict=True),
                color=colour,
                linestyle=DASHES[(index // len(SERIES) + index) % len(DASHES)],
                marker="o" if marks else None,
                markersize=3.2,
            )
            ends.append((label, *points[-1], colour))
        for value, label in guides:
            axes.axhline(value, color=SOFT, linewidth=0.8, linestyle=(0, (2, 2)))
            axes.annotate(
                label,
                xy=(0, value),
                xycoords=("axes fraction", "data"),
                xytext=(4, 3),
                textcoords="offset points",
                color=SOFT,
            )
        if bottom is not None or top is not None:
            axes.set_ylim(bottom=bottom, top=top)
        if x_ticks:
            axes.set_xticks([x for x, _ in x_ticks], [text for _, text in x_ticks])
            axes.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())
        if y_ticks:
            axes.set_yticks([y for y, _ in y_ticks], [text for _, text in y_ticks])
            axes.yaxis.set_minor_locator(matplotlib.ticker.NullLocator())
        elif y_scale == "log":
            axes.yaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: _power(value)))
        axes.set_xlabel(x_label)
        axes.set_title(y_label)
        axes.set_xlim(axes.get_xlim())
        axes.set_ylim(axes.get_ylim())
        figure.canvas.draw()
        _label_ends(axes, ends)
        return svg(figure, name, title, description)


def _power(value: float) -> str:
    exponent = round(math.log10(value)) if value > 0 else 0
    return f"10{str(exponent).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def stacked_shares(name: str, title: str, description: str, shares: Mapping[str, Mapping[str, int]]) -> Markup:
    """Horizontal bars of equal length, one for each outer key, cut into its parts; totals at the right."""
    parts = list(dict.fromkeys(part for row in shares.values() for part in row))
    with style():
        height = 0.62 + 0.27 * len(shares)
        figure = Figure(figsize=(WIDTH, height))
        left_edge, totals = _margin(shares), 0.16
        axes = figure.add_axes((left_edge, 0.02, 1 - left_edge - totals, 1 - 0.42 / height - 0.02))
        axes.grid(False)
        for side in axes.spines.values():
            side.set_visible(False)
        axes.tick_params(length=0)
        labels = list(shares)
        left = [0.0] * len(labels)
        for index, part in enumerate(parts):
            widths = [shares[label].get(part, 0) / max(1, sum(shares[label].values())) for label in labels]
            axes.barh(
                range(len(labels)),
                widths,
                left=left,
                height=0.68,
                color=SERIES[index],
                edgecolor=PAPER,
                linewidth=0.8,
                label=part,
            )
            for row, width in enumerate(widths):
                if width >= 0.055:
                    axes.text(left[row] + width / 2, row, f"{100 * width:.0f} %", ha="center", va="center", color=PAPER)
            left = [start + width for start, width in zip(left, widths, strict=True)]
        for row, label in enumerate(labels):
            total = 1 + totals / (1 - left_edge - totals)
            axes.text(total, row, short(sum(shares[label].values()), 4), va="center", ha="right", color=INK)
        axes.set_yticks(range(len(labels)), [clipped(label) for label in labels])
        axes.set_xticks([])
        axes.set_xlim(0, 1)
        axes.set_ylim(len(labels) - 0.5, -0.5)
        figure.legend(
            loc="upper left",
            bbox_to_anchor=(0.01, 1.0),
            ncols=len(parts),
            handlelength=0.9,
            handleheight=0.9,
            columnspacing=1.1,
            borderaxespad=0.2,
            handletextpad=0.5,
        )
        return svg(figure, name, title, description)


def rotations(
    name: str,
    title: str,
    description: str,
    q: Sequence[float],
    k: Sequence[float],
    views: Sequence[tuple[str, float, float]],
) -> Markup:
    """q and k in the plane, turned by two angles in each view: (heading, angle of q, angle of k)."""
    reach = 1.15 * max(math.hypot(*q), math.hypot(*k))
    with style():
        figure = Figure(figsize=(WIDTH, 2.6))
        for place, (heading, turn_q, turn_k) in enumerate(views):
            width = 1 / len(views)
            axes = figure.add_axes((place * width + 0.01, 0.02, width - 0.02, 0.8))
            axes.set_aspect("equal")
            axes.set_axis_off()
            axes.set_xlim(-reach, reach)
            axes.set_ylim(-reach, reach)
            for radius in (math.hypot(*q), math.hypot(*k)):
                axes.add_patch(matplotlib.patches.Circle((0, 0), radius, fill=False, edgecolor=RULE, linewidth=0.7))
            axes.axhline(0, color=RULE, linewidth=0.6)
            axes.axvline(0, color=RULE, linewidth=0.6)
            ends = []
            for vector, turn, label, colour in ((q, turn_q, "q", SERIES[0]), (k, turn_k, "k", SERIES[1])):
                angle = math.atan2(vector[1], vector[0]) + turn
                length = math.hypot(*vector)
                x, y = length * math.cos(angle), length * math.sin(angle)
                axes.annotate(
                    "",
                    xy=(x, y),
                    xytext=(0, 0),
                    arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 1.6, "shrinkA": 0, "shrinkB": 0},
                )
                axes.text(x * 1.13, y * 1.13, label, color=colour, ha="center", va="center", style="italic", size=10)
                ends.append(math.degrees(angle))
            span = (ends[0] - ends[1] + 180) % 360 - 180
            first = ends[1] if span >= 0 else ends[0]
            axes.add_patch(
                matplotlib.patches.Arc(
                    (0, 0), 0.8 * reach, 0.8 * reach, theta1=first, theta2=first + abs(span), color=SOFT, linewidth=1
                )
            )
            axes.set_title(f"{heading}\n{abs(span):.1f}° between them", loc="center", size=8.5)
        return svg(figure, name, title, description)


def panels(
    name: str,
    title: str,
    description: str,
    columns: Sequence[tuple[str, Sequence[float], float | None]],
    ticks: Sequence[str],
) -> Markup:
    """Small line charts side by side over the same steps, each (heading, values, value it must reach or None)."""
    with style():
        figure = Figure(figsize=(WIDTH, 2.1))
        width = 1 / len(columns)
        for place, (heading, values, goal) in enumerate(columns):
            axes = figure.add_axes((place * width + 0.012, 0.17, width - 0.03, 0.62))
            axes.plot(range(len(values)), values, color=SERIES[place], marker="o", markersize=4)
            if goal is not None:
                axes.axhline(goal, color=SOFT, linewidth=0.8, linestyle=(0, (2, 2)))
            low, high = (
                min([*values, *([goal] if goal is not None else [])]),
                max([*values, *([goal] if goal is not None else [])]),
            )
            pad = 0.25 * ((high - low) or 1)
            axes.set_ylim(low - 1.2 * pad, high + 1.3 * pad)
            axes.set_xlim(-0.35, len(values) - 0.65)
            axes.set_xticks(range(len(values)), ticks)
            axes.tick_params(axis="y", length=0, labelleft=False)  # every point says its value
            for step, value in enumerate(values):
                beside = values[max(0, step - 1) : step + 2]
                below = value == min(beside) and value < max(beside)
                axes.annotate(
                    short(value, 4),
                    (step, value),
                    xytext=(0, -11 if below else 5),
                    textcoords="offset points",
                    ha="center",
                    size=7.5,
                )
            axes.set_title(heading)
        return svg(figure, name, title, description)


FLOOR = 1e-6
"""Smallest share of the limit that a strip chart tells apart; what lies below is drawn there."""


def dots(
    name: str,
    title: str,
    description: str,
    rows: Sequence[tuple[str, float, str]],
    *,
    x_label: str,
    limit: float,
    groups: Sequence[str],
) -> Markup:
    """Strip chart on a logarithmic axis: (row label, value, group) with a line at `limit` that no dot may pass."""
    labels = list(dict.fromkeys(label for label, _, _ in rows))
    with style():
        height = 0.85 + 0.25 * len(labels)
        figure = Figure(figsize=(WIDTH, height))
        axes = figure.add_axes((0.2, 0.5 / height, 0.77, 1 - 0.78 / height))
        axes.set_xscale("log")
        floor = limit * FLOOR
        for index, group in enumerate(groups):
            own = [(max(value, floor), labels.index(label)) for label, value, member in rows if member == group]
            if not own:
                continue
            shift = 0.22 * (index - (len(groups) - 1) / 2)
            axes.scatter(
                [x for x, _ in own],
                [y + shift for _, y in own],
                s=11,
                color=SERIES[index],
                alpha=0.55,
                linewidth=0,
                label=group,
            )
        axes.axvline(limit, color=SOFT, linewidth=1, linestyle=(0, (2, 2)))
        axes.set_yticks(range(len(labels)), labels)
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: _power(value)))
        axes.set_xlabel(x_label)
        if len(groups) > 1:
            axes.legend(
                loc="lower left",
                bbox_to_anchor=(0, 1.0),
                ncols=len(groups),
                handletextpad=0.1,
                columnspacing=1,
                borderaxespad=0.1,
            )
        return svg(figure, name, title, description)


def bars(name: str, title: str, description: str, groups: Mapping[str, Sequence[tuple[str, float]]]) -> Markup:
    """Bar charts side by side, one for each heading, over the same categories."""
    with style():
        figure = Figure(figsize=(WIDTH, 2.3))
        width = 1 / len(groups)
        for place, (heading, rows) in enumerate(groups.items()):
            axes = figure.add_axes((place * width + 0.065, 0.17, width - 0.085, 0.66))
            axes.bar(range(len(rows)), [value for _, value in rows], color=SERIES[place], width=0.7)
            axes.axhline(0, color=SOFT, linewidth=0.6)
            axes.grid(axis="x", visible=False)
            axes.set_xticks(range(len(rows)), [label for label, _ in rows])
            axes.set_xlabel("head")
            axes.set_title(heading)
        return svg(figure, name, title, description)


def diverging(name: str, title: str, description: str, rows: Sequence[tuple[str, float]], *, x_label: str) -> Markup:
    """Horizontal bars from zero to either side, each with its value in per cent."""
    with style():
        height = 0.55 + 0.24 * len(rows)
        figure = Figure(figsize=(WIDTH, height))
        left_edge = _margin(label for label, _ in rows)
        axes = figure.add_axes((left_edge, 0.45 / height, 0.94 - left_edge, 1 - 0.5 / height))
        values = [value for _, value in rows]
        axes.barh(
            range(len(rows)), values, height=0.62, color=[SERIES[1] if value > 0 else SERIES[0] for value in values]
        )
        axes.axvline(0, color=SOFT, linewidth=0.8)
        axes.grid(axis="y", visible=False)
        low, high = min(0.0, *values), max(0.0, *values)
        room = 0.1 * ((high - low) or 1)
        axes.set_xlim(low - (2 * room if low < 0 else 0), high + room)
        axes.spines.left.set_visible(False)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_yticks(range(len(rows)), [clipped(label) for label, _ in rows])
        axes.tick_params(axis="y", length=0)
        for place, value in enumerate(values):
            axes.annotate(
                percent(value / 100), (value, place), xytext=(4 if value >= 0 else -4, 0), textcoords="offset points",
                ha="left" if value >= 0 else "right", va="center", size=7.5,
            )  # fmt: skip
        axes.set_xlabel(x_label)
        return svg(figure, name, title, description)


def small_multiples(
    name: str,
    title: str,
    description: str,
    charts: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]],
    *,
    x_label: str,
    y_label: str,
    x_ticks: Sequence[tuple[float, str]],
    y_ticks: Sequence[tuple[float, str]] = (),
) -> Markup:
    """Line charts side by side, {heading: {series: points}}, on common logarithmic axes; the series named once."""
    names = list(dict.fromkeys(label for series in charts.values() for label in series))
    with style():
        figure = Figure(figsize=(WIDTH, 2.65))
        left = 0.1
        width = (1 - left) / len(charts)
        handles: dict[str, Any] = {}
        first: Axes | None = None
        for place, (heading, series) in enumerate(charts.items()):
            axes = figure.add_axes((left + place * width, 0.165, width - 0.03, 0.635), sharex=first, sharey=first)
            axes.set_xscale("log")
            axes.set_yscale("log")
            for label, points in series.items():
                index = names.index(label)
                (handles[label],) = axes.plot(
                    *zip(*points, strict=True),
                    color=SERIES[index % len(SERIES)],
                    linestyle=DASHES[index % len(DASHES)],
                    marker="o",
                    markersize=3.2,
                )
            axes.set_xticks([x for x, _ in x_ticks], [text for _, text in x_ticks])
            if y_ticks:
                axes.set_yticks([y for y, _ in y_ticks], [text for _, text in y_ticks])
            else:
                axes.yaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: _power(value)))
            axes.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())
            axes.yaxis.set_minor_locator(matplotlib.ticker.NullLocator())
            axes.tick_params(axis="y", labelleft=first is None)
            axes.margins(x=0.05 * len(charts))  # neighbours' first and last ticks keep apart
            axes.set_xlabel(x_label)
            axes.set_title(heading)
            first = first or axes
        figure.text(0.005, 0.985, y_label, va="top", size=9)
        figure.legend(
            handles.values(),
            handles.keys(),
            loc="upper left",
            bbox_to_anchor=((24 + 4.5 * len(y_label)) / (72 * WIDTH), 1.0),
            ncols=len(handles),
            handlelength=2,
            columnspacing=1.3,
            borderaxespad=0,
        )
        return svg(figure, name, title, description)


def intervals(
    name: str,
    title: str,
    description: str,
    groups: Mapping[str, Sequence[tuple[str, float, float, float]]],
    *,
    x_label: str,
) -> Markup:
    """Values with their intervals, {group: [(label, value, low, high)]}; filled where the interval leaves 0 out."""
    rows = [(group, *row) for group, own in groups.items() for row in own]
    places = [place + 1.1 * list(groups).index(group) for place, (group, *_) in enumerate(rows)]
    with style():
        height = 0.5 + 0.24 * (places[-1] + 2)
        figure = Figure(figsize=(WIDTH, height))
        left = _margin(label for _, label, *_ in rows)
        axes = figure.add_axes((left, 0.45 / height, 0.98 - left, 1 - 0.5 / height))
        for place, (group, _, value, low, high) in zip(places, rows, strict=True):
            colour = SERIES[list(groups).index(group) % len(SERIES)]
            if math.isfinite(low) and math.isfinite(high):  # of one training alone there is no interval
                axes.plot((low, high), (place, place), color=colour)
            seen = low > 0 or high < 0
            axes.plot(value, place, "o", markersize=5, color=colour, markerfacecolor=colour if seen else PAPER)
        axes.axvline(0, color=SOFT, linewidth=0.8)
        for group in groups:
            first = places[[member for member, *_ in rows].index(group)]
            axes.text(0.005, first - 0.95, group, transform=axes.get_yaxis_transform(), va="center", color=SOFT)
        axes.grid(axis="y", visible=False)
        axes.spines.left.set_visible(False)
        axes.tick_params(axis="y", length=0)
        axes.set_yticks(places, [clipped(label) for _, label, *_ in rows])
        axes.set_ylim(places[-1] + 0.6, -1.6)
        axes.set_xlabel(x_label)
        return svg(figure, name, title, description)


def counted_and_measured(
    name: str,
    title: str,
    description: str,
    groups: Mapping[str, Sequence[tuple[str, float, float]]],
    *,
    x_label: str,
) -> Markup:
    """Charts side by side, {heading: [(label, by the count, measured)]}: a ring for the count, a dot for the clock."""
    labels = list(dict.fromkeys(label for rows in groups.values() for label, _, _ in rows))
    largest = max(value for rows in groups.values() for _, *values in rows for value in values)
    with style():
        height = 1.05 + 0.27 * len(labels)
        figure = Figure(figsize=(WIDTH, height))
        left = _margin(labels)
        ring: dict[str, Any] = {
            "marker": "o",
            "markersize": 7,
            "color": SOFT,
            "markerfacecolor": "none",
            "linestyle": "none",
        }
        dot: dict[str, Any] = {"marker": "o", "markersize": 4, "color": SERIES[0], "linestyle": "none"}
        width = (0.98 - left) / len(groups)
        for chart, (heading, rows) in enumerate(groups.items()):
            axes = figure.add_axes((left + chart * width, 0.45 / height, width - 0.03, 1 - 1.05 / height))
            for label, counted, measured in rows:
                place = labels.index(label)
                axes.plot((counted, measured), (place, place), color=RULE, linewidth=2, zorder=1)
                axes.plot(counted, place, zorder=2, label="by the count", **ring)
                axes.plot(measured, place, zorder=3, label="by the clock", **dot)
                axes.annotate(
                    short(measured, 3), (max(counted, measured), place), xytext=(7, 0), textcoords="offset points",
                    va="center", size=7.5,
                )  # fmt: skip
            axes.set_xlim(0, 1.18 * largest)
            axes.set_ylim(len(labels) - 0.5, -0.5)
            axes.set_yticks(range(len(labels)), labels)
            axes.tick_params(axis="y", length=0, labelleft=chart == 0)
            axes.spines.left.set_visible(False)
            axes.set_xlabel(x_label)
            axes.set_title(heading)
        handles = dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True))
        figure.legend(
            handles.values(),
            handles.keys(),
            loc="upper left",
            bbox_to_anchor=(left, 1.0),
            ncols=2,
            handletextpad=0.1,
            borderaxespad=0,
        )
        return svg(figure, name, title, description)
