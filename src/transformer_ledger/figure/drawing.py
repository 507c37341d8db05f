"""The pictures' drawings: data in, SVG out, by matplotlib.

Each picture becomes three files: NAME.svg, as wide as a slide or a page, NAME-narrow.svg, as wide as a column of a
paper, and NAME.csv, the numbers that are drawn. An SVG stands alone: white ground, its title above the drawing, text as
text. The same data give the same bytes. The page shows the same drawings in its own colours (`report/pictures.py`).
"""

from __future__ import annotations

import csv
import io
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from transformer_ledger.figure.palette import INK, PAPER, RULE, SERIES, SOFT
from transformer_ledger.report.numbers import percent, short

WIDE, NARROW = 6.6, 3.4  # inches
WIDTHS = {"": WIDE, "-narrow": NARROW}
PAD = 8  # points around a drawing
FACE = "DejaVu Sans"
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.2, 1.4)), (0, (6, 1.5, 1.2, 1.5)))
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "transformer-ledger",
    "font.size": 8.5,
    "font.family": FACE,
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


@dataclass(frozen=True)
class Picture:
    """What is drawn, as data: a function of this module, and what it draws.

    `data` are nested mappings down to a list of tuples or to numbers; `columns` names their levels, from outside in.
    `description` says in words what a reader sees; `look` is what else the function takes: labels, scales, ticks.
    """

    draw: Callable[..., Figure]
    title: str
    description: str
    columns: tuple[str, ...]
    data: Any
    look: Mapping[str, Any] = field(default_factory=dict)


def files(pictures: Mapping[str, Picture | None], folder: str = "figure") -> dict[str, str]:
    """The files of some pictures, {path: text}; a picture for which there are no numbers is a file that says so."""
    made = {}
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **_STYLE}):  # whatever a matplotlibrc says
        for name, picture in pictures.items():
            stem = f"results/{folder}/{name}"
            for ending, width in WIDTHS.items():
                made[f"{stem}{ending}.svg"] = (
                    svg(f"{name}{ending}", picture, width) if picture else f"{EMPTY}<title>No numbers</title></svg>\n"
                )
            made[f"{stem}.csv"] = table(picture) if picture else "no numbers\n"
    return made


EMPTY = '<svg xmlns="http://www.w3.org/2000/svg">'


def table(picture: Picture) -> str:
    """The numbers of a picture as CSV, one row for each that is drawn."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(picture.columns)
    writer.writerows(_rows(picture.data))
    return stream.getvalue()


def _rows(data: Any) -> Iterator[tuple[Any, ...]]:
    if isinstance(data, Mapping):
        yield from ((key, *row) for key, inner in data.items() for row in _rows(inner))
    elif isinstance(data, list):
        yield from map(tuple, data)
    else:
        yield (data,)


def svg(name: str, picture: Picture, width: float) -> str:
    """A picture `width` inches wide, under its title; ids begin with its name, so that a page can hold many."""
    stream = io.StringIO()
    figure = picture.draw(width, picture.data, **picture.look)
    figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    box = re.search(r'viewBox="0 0 ([0-9.]*) ([0-9.]*)"', text)
    assert box is not None
    text = text[text.index(">") + 1 : text.rindex("</svg>")]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r'<g id="[^"]*">', "<g>", text)  # groups are never referred to
    own = f"picture-{name}"
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{own}-", text)
    text = text.replace("xlink:href", "href")
    text = text.replace(f"font-family: '{FACE}'; ", "")  # the whole picture's, or the page's own
    text = re.sub(r' transform="rotate\(-?0 [^)]*\)"', "", text)
    text = re.sub(r"\s*\n\s*", "\n", text)
    words = textwrap.wrap(picture.title, round(11 * width))
    down = PAD + 13 * len(words)
    across, height = float(box[1]) + 2 * PAD, float(box[2]) + down + PAD
    heading = "\n".join(f'<text x="{PAD}" y="{15 + 13 * row}">{escape(line)}</text>' for row, line in enumerate(words))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{across:g}pt" height="{height:g}pt" '
        f'viewBox="0 0 {across:g} {height:g}" font-family="{FACE}, Verdana, Arial, sans-serif" '
        f'role="img" aria-labelledby="{own}-title {own}-desc">\n'
        f'<title id="{own}-title">{escape(picture.title)}</title>'
        f'<desc id="{own}-desc">{escape(picture.description)}</desc>\n'
        f'<rect width="100%" height="100%" fill="{PAPER}"/>\n'
        f'<g font-size="10" font-weight="bold" fill="{INK}">\n{heading}\n</g>\n'
        f'<g id="{own}" transform="translate({PAD} {down})" data-box="0 0 {box[1]} {box[2]}">{text}</g>\n</svg>\n'
    )


def narrow(width: float) -> bool:
    """Whether a picture is so narrow that names stand above what they name, and charts one below the other."""
    return width < WIDE


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


def _margin(labels: Iterable[str], width: float, least: float = 0.1) -> float:
    """Share of a picture's width that the longest of `labels` takes, at the pictures' one size of type."""
    longest = max((len(clipped(label)) for label in labels), default=0)
    return max(least, (12 + 4.5 * longest) / (72 * width))


def _name_rows(axes: Axes, labels: Sequence[str], above: bool) -> None:
    """Names of rows 0, 1, …: left of the axes, or above each row where there is no room at the left."""
    axes.set_ylim(len(labels) - 0.5, -0.9 if above else -0.5)
    axes.set_yticks(range(len(labels)), [] if above else [clipped(label) for label in labels])
    axes.tick_params(axis="y", length=0)
    for row, label in enumerate(labels if above else ()):
        axes.text(0, row - 0.36, clipped(label, 44), transform=axes.get_yaxis_transform(), va="bottom", size=8)


def _grid(
    figure: Figure, count: int, columns: int, left: float, below: float, above: float, gap: float, head: float = 0
) -> list[Axes]:
    """`count` axes in rows of `columns`. Inches: margins left of all, below and above each, between two, above all."""
    width, height = figure.get_size_inches()
    across, down = (width - left) / columns, (height - head) / math.ceil(count / columns)
    return [
        figure.add_axes(
            (
                (left + (index % columns) * across) / width,
                (height - head - (index // columns + 1) * down + below) / height,
                (across - gap) / width,
                (down - below - above) / height,
            )
        )
        for index in range(count)
    ]


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


def _plotted(
    axes: Any, series: Mapping[str, Sequence[tuple[float, float]]], logarithmic: bool, marker: str | None
) -> list[tuple[str, float, float, str]]:
    """Draw every series; the label, end and colour of each."""
    ends = []
    for index, (label, given) in enumerate(series.items()):
        points = [(x, y) for x, y in given if math.isfinite(y) and (y > 0 or not logarithmic)]
        if not points:
            continue
        colour = SERIES[index % len(SERIES)]
        axes.plot(
            *zip(*points, strict=True),
            color=colour,
            linestyle=DASHES[(index // len(SERIES) + index) % len(DASHES)],
            marker=marker,
            markersize=3.2,
            label=clipped(label, 26),
        )
        ends.append((label, *points[-1], colour))
    return ends


def lines(
    width: float,
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
) -> Figure:
    """Line chart, one line a series, named at its end or below the chart; guides are named horizontal lines."""
    below = 0.55 + 0.16 * math.ceil(len(series) / 2) if narrow(width) else 0.49
    figure = Figure(figsize=(width, 3.0 + below))
    right = 0.03 if narrow(width) else 0.01 + _margin(series, width)
    left = 0.105 * WIDE / width if y_scale == "log" else 0.07 * WIDE / width
    axes = figure.add_axes((left, below / (3.0 + below), 1 - left - right, 2.7 / (3.0 + below)))
    axes.set_xscale(x_scale)
    axes.set_yscale(y_scale)
    ends = _plotted(axes, series, y_scale == "log", "o" if marks else None)
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
    _ticks(axes, x_ticks[:: 2 if narrow(width) else 1], y_ticks, y_scale == "log")
    axes.set_xlabel(x_label)
    axes.set_title(y_label)
    axes.set_xlim(axes.get_xlim())
    axes.set_ylim(axes.get_ylim())
    if narrow(width):
        _legend(
            figure,
            dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True)),
            loc="lower left",
            at=(0, 0),
            columns=2,
        )
    else:
        figure.canvas.draw()
        _label_ends(axes, ends)
    return figure


def _ticks(axes: Axes, x: Sequence[tuple[float, str]], y: Sequence[tuple[float, str]], powers: bool) -> None:
    """Ticks (place, text) of both axes; without any, powers of ten up a logarithmic axis."""
    nothing = matplotlib.ticker.NullLocator
    if x:
        axes.set_xticks([place for place, _ in x], [text for _, text in x])
        axes.xaxis.set_minor_locator(nothing())
    if y:
        axes.set_yticks([place for place, _ in y], [text for _, text in y])
        axes.yaxis.set_minor_locator(nothing())
    elif powers:
        axes.yaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: _power(value)))
        axes.yaxis.set_minor_locator(nothing())


def _legend(figure: Figure, handles: Mapping[str, Any], *, loc: str, at: tuple[float, float], columns: int) -> None:
    figure.legend(
        handles.values(),
        handles.keys(),
        loc=loc,
        bbox_to_anchor=at,
        ncols=columns,
        handlelength=1.6,
        handleheight=0.9,
        columnspacing=1.1,
        borderaxespad=0.2,
        handletextpad=0.5,
    )


def _power(value: float) -> str:
    exponent = round(math.log10(value)) if value > 0 else 0
    return f"10{str(exponent).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def stacked_shares(width: float, shares: Mapping[str, Mapping[str, int]]) -> Figure:
    """Horizontal bars of equal length, one for each outer key, cut into its parts; totals at the right."""
    parts = list(dict.fromkeys(part for row in shares.values() for part in row))
    small = narrow(width)
    legend = 0.56 if small else 0.42
    height = legend + (0.4 if small else 0.27) * len(shares) + 0.2
    figure = Figure(figsize=(width, height))
    left_edge, totals = (0.0, 0.0) if small else (_margin(shares, width), 0.16)
    axes = figure.add_axes((left_edge, 0.02, 1 - left_edge - totals, 1 - legend / height - 0.02))
    axes.grid(False)
    for side in axes.spines.values():
        side.set_visible(False)
    labels, left = list(shares), [0.0] * len(shares)
    for index, part in enumerate(parts):
        widths = [shares[label].get(part, 0) / max(1, sum(shares[label].values())) for label in labels]
        axes.barh(range(len(labels)), widths, left=left, height=0.55 if small else 0.68, color=SERIES[index],
                  edgecolor=PAPER, linewidth=0.8, label=part)  # fmt: skip
        for row, share in enumerate(widths):
            if share >= (0.1 if small else 0.055):
                axes.text(left[row] + share / 2, row, f"{100 * share:.0f} %", ha="center", va="center", color=PAPER)
        left = [start + share for start, share in zip(left, widths, strict=True)]
    axes.set_xticks([])
    axes.set_xlim(0, 1)
    _name_rows(axes, labels, small)
    for row, label in enumerate(labels):
        x, y = (1.0, row - 0.36) if small else (1 + totals / (1 - left_edge - totals), row)
        total = short(sum(shares[label].values()), 4)
        axes.text(x, y, total, va="bottom" if small else "center", ha="right", color=INK)
    handles = dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True))
    _legend(figure, handles, loc="upper left", at=(0.0, 1.0), columns=3 if small else len(parts))
    return figure


def rotations(width: float, views: Mapping[str, Sequence[tuple[str, float, float]]]) -> Figure:
    """Two vectors in the plane in each view, {heading: [(name, x, y), (name, x, y)]}, and the angle between them."""
    lengths = [math.hypot(x, y) for _, x, y in next(iter(views.values()))]
    reach = 1.15 * max(lengths)
    figure = Figure(figsize=(width, 0.4 * width if not narrow(width) else 0.52 * width))
    for axes, (heading, vectors) in zip(
        _grid(figure, len(views), len(views), 0, 0.05, 0.5, 0.05), views.items(), strict=True
    ):
        axes.set_aspect("equal")
        axes.set_axis_off()
        axes.set_xlim(-reach, reach)
        axes.set_ylim(-reach, reach)
        for radius in lengths:
            axes.add_patch(matplotlib.patches.Circle((0, 0), radius, fill=False, edgecolor=RULE, linewidth=0.7))
        axes.axhline(0, color=RULE, linewidth=0.6)
        axes.axvline(0, color=RULE, linewidth=0.6)
        ends = []
        for (label, x, y), colour in zip(vectors, SERIES, strict=False):
            arrow = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.6, "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", xy=(x, y), xytext=(0, 0), arrowprops=arrow)
            axes.text(x * 1.13, y * 1.13, label, color=colour, ha="center", va="center", style="italic", size=10)
            ends.append(math.degrees(math.atan2(y, x)))
        span = (ends[0] - ends[1] + 180) % 360 - 180
        first = ends[1] if span >= 0 else ends[0]
        arc: dict[str, Any] = {"theta1": first, "theta2": first + abs(span), "color": SOFT, "linewidth": 1}
        axes.add_patch(matplotlib.patches.Arc((0, 0), 0.8 * reach, 0.8 * reach, **arc))
        axes.set_title(f"{heading}\n{abs(span):.1f}° between them", loc="center", size=7 if narrow(width) else 8.5)
    return figure


def panels(
    width: float, charts: Mapping[str, Sequence[tuple[str, float]]], *, goals: Mapping[str, float] = {}
) -> Figure:
    """Small line charts over the same steps, {heading: [(step, value)]}; some with a value that they must reach."""
    each = 2 if narrow(width) else len(charts)
    figure = Figure(figsize=(width, 2.1 * math.ceil(len(charts) / each)))
    grid = _grid(figure, len(charts), each, 0.08, 0.35, 0.42, 0.15)
    for place, (axes, (heading, points)) in enumerate(zip(grid, charts.items(), strict=True)):
        values, goal = [value for _, value in points], goals.get(heading)
        axes.plot(range(len(values)), values, color=SERIES[place], marker="o", markersize=4)
        if goal is not None:
            axes.axhline(goal, color=SOFT, linewidth=0.8, linestyle=(0, (2, 2)))
        shown = [*values, *([goal] if goal is not None else [])]
        pad = 0.25 * ((max(shown) - min(shown)) or 1)
        axes.set_ylim(min(shown) - 1.2 * pad, max(shown) + 1.3 * pad)
        axes.set_xlim(-0.35, len(values) - 0.65)
        axes.set_xticks(range(len(values)), [step for step, _ in points])
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
    return figure


FLOOR = 1e-6
"""Smallest share of the limit that a strip chart tells apart; what lies below is drawn there."""
GRAIN = 40
"""Dots a decade that a strip chart tells apart; those in one place are drawn once."""


def dots(width: float, rows: Sequence[tuple[str, float, str]], *, x_label: str, limit: float) -> Figure:
    """Strip chart on a logarithmic axis: (row label, value, group) with a line at `limit` that no dot may pass."""
    labels = list(dict.fromkeys(label for label, _, _ in rows))
    groups = list(dict.fromkeys(group for _, _, group in rows))
    height = 0.85 + 0.25 * len(labels)
    figure = Figure(figsize=(width, height))
    left = _margin(labels, width)
    axes = figure.add_axes((left, 0.5 / height, 0.97 - left, 1 - 0.78 / height))
    axes.set_xscale("log")
    for index, group in enumerate(groups):
        placed = dict.fromkeys(
            (labels.index(label), round(GRAIN * math.log10(max(value, limit * FLOOR))))
            for label, value, member in rows
            if member == group
        )
        shift = 0.22 * (index - (len(groups) - 1) / 2)
        axes.scatter([10 ** (x / GRAIN) for _, x in placed], [y + shift for y, _ in placed],
                     s=11, color=SERIES[index], alpha=0.55, linewidth=0, label=group)  # fmt: skip
    axes.axvline(limit, color=SOFT, linewidth=1, linestyle=(0, (2, 2)))
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: _power(value)))
    axes.set_xlabel(x_label)
    if len(groups) > 1:
        handles = dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True))
        _legend(figure, handles, loc="upper left", at=(left, 1.0), columns=len(groups))
    return figure


def bars(width: float, groups: Mapping[str, Sequence[tuple[str, float]]], *, x_label: str) -> Figure:
    """Bar charts, one for each heading, over the same categories."""
    each = 1 if narrow(width) else len(groups)
    figure = Figure(figsize=(width, 2.3 * math.ceil(len(groups) / each)))
    grid = _grid(figure, len(groups), each, 0.42, 0.4, 0.35, 0.45 if each > 1 else 0.05)
    for place, (axes, (heading, rows)) in enumerate(zip(grid, groups.items(), strict=True)):
        axes.bar(range(len(rows)), [value for _, value in rows], color=SERIES[place], width=0.7)
        axes.axhline(0, color=SOFT, linewidth=0.6)
        axes.grid(axis="x", visible=False)
        axes.set_xticks(range(len(rows)), [label for label, _ in rows])
        axes.set_xlabel(x_label)
        axes.set_title(heading)
    return figure


def diverging(width: float, rows: Sequence[tuple[str, float]], *, x_label: str) -> Figure:
    """Horizontal bars from zero to either side, each with its value in per cent."""
    small = narrow(width)
    height = 0.6 + (0.38 if small else 0.24) * len(rows)
    figure = Figure(figsize=(width, height))
    left_edge = 0.0 if small else _margin((label for label, _ in rows), width)
    axes = figure.add_axes((left_edge, 0.45 / height, 0.94 - left_edge, 1 - 0.5 / height))
    values = [value for _, value in rows]
    colours = [SERIES[1] if value > 0 else SERIES[0] for value in values]
    axes.barh(range(len(rows)), values, height=0.5 if small else 0.62, color=colours)
    axes.axvline(0, color=SOFT, linewidth=0.8)
    axes.grid(axis="y", visible=False)
    low, high = min(0.0, *values), max(0.0, *values)
    room = (0.2 if small else 0.1) * ((high - low) or 1)
    axes.set_xlim(low - (2 * room if low < 0 else 0), high + room)
    axes.spines.left.set_visible(False)
    _name_rows(axes, [label for label, _ in rows], small)
    for place, value in enumerate(values):
        axes.annotate(
            percent(value / 100), (value, place), xytext=(4 if value >= 0 else -4, 0), textcoords="offset points",
            ha="left" if value >= 0 else "right", va="center", size=7.5,
        )  # fmt: skip
    axes.set_xlabel(x_label)
    return figure


def small_multiples(
    width: float,
    charts: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]],
    *,
    x_label: str,
    y_label: str,
    x_ticks: Sequence[tuple[float, str]],
    y_ticks: Sequence[tuple[float, str]] = (),
) -> Figure:
    """Line charts, {heading: {series: points}}, on common logarithmic axes; the series named once."""
    names = list(dict.fromkeys(label for series in charts.values() for label in series))
    each = 1 if narrow(width) else len(charts)
    head = 0.42
    figure = Figure(figsize=(width, head + 2.25 * math.ceil(len(charts) / each)))
    handles: dict[str, Any] = {}
    grid = _grid(figure, len(charts), each, 0.62, 0.42, 0.3, 0.2, head)
    for axes, (heading, series) in zip(grid, charts.items(), strict=True):
        axes.set_xscale("log")
        axes.set_yscale("log")
        for label, points in series.items():
            index = names.index(label)
            look = {"color": SERIES[index % len(SERIES)], "linestyle": DASHES[index % len(DASHES)]}
            (handles[label],) = axes.plot(*zip(*points, strict=True), marker="o", markersize=3.2, **look)
        _ticks(axes, x_ticks, y_ticks, True)
        axes.tick_params(axis="y", labelleft=each == 1 or axes is grid[0])
        axes.margins(x=0.05 * each)  # neighbours' first and last ticks keep apart
        axes.set_xlabel(x_label)
        axes.set_title(heading)
    low, high = (
        pick(end) for pick, end in zip((min, max), zip(*(axes.get_ylim() for axes in grid), strict=True), strict=True)
    )
    for axes in grid:
        axes.set_ylim(low, high)
    figure.text(0.005, 0.985, y_label, va="top", size=9)
    _legend(figure, handles, loc="upper left", at=(0, 1 - 0.19 / figure.get_size_inches()[1]), columns=len(handles))
    return figure


def intervals(width: float, groups: Mapping[str, Sequence[tuple[str, float, float, float]]], *, x_label: str) -> Figure:
    """Values with their intervals, {group: [(label, value, low, high)]}; filled where the interval leaves 0 out."""
    rows = [(group, *row) for group, own in groups.items() for row in own]
    places = [place + 1.1 * list(groups).index(group) for place, (group, *_) in enumerate(rows)]
    height = 0.5 + 0.24 * (places[-1] + 2)
    figure = Figure(figsize=(width, height))
    left = _margin((label for _, label, *_ in rows), width)
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
    return figure


def counted_and_measured(
    width: float, groups: Mapping[str, Sequence[tuple[str, float, float]]], *, x_label: str
) -> Figure:
    """Charts, {heading: [(label, by the count, measured)]}: a ring for the count, a dot for the clock."""
    labels = list(dict.fromkeys(label for rows in groups.values() for label, _, _ in rows))
    largest = max(value for rows in groups.values() for _, *values in rows for value in values)
    small, head = narrow(width), 0.25
    each = 1 if small else len(groups)
    figure = Figure(
        figsize=(width, head + math.ceil(len(groups) / each) * (0.85 + (0.38 if small else 0.27) * len(labels)))
    )
    left = 0.05 if small else width * _margin(labels, width)
    ring: dict[str, Any] = {
        "marker": "o",
        "markersize": 7,
        "color": SOFT,
        "markerfacecolor": "none",
        "linestyle": "none",
    }
    dot: dict[str, Any] = {"marker": "o", "markersize": 4, "color": SERIES[0], "linestyle": "none"}
    grid = _grid(figure, len(groups), each, left, 0.45, 0.32, 0.15, head)
    for axes, (heading, rows) in zip(grid, groups.items(), strict=True):
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
        _name_rows(axes, labels, small)
        axes.tick_params(axis="y", labelleft=axes is grid[0])
        axes.spines.left.set_visible(False)
        axes.set_xlabel(x_label)
        axes.set_title(heading)
    handles = dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True))
    _legend(figure, handles, loc="upper left", at=(0 if small else left / width, 1.0), columns=2)
    return figure
