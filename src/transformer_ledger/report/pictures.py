"""Pictures on the page: the drawings of results/figure/ in the page's own colours, each for a wide and a narrow page.

Each file is an SVG of `figure/drawing.py`. Its colours become the style sheet's variables, so that one picture serves
both themes and print; the style sheet shows the width that fits. Nothing is drawn here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from markupsafe import Markup

from transformer_ledger.figure.palette import VARIABLES

WIDTHS = {"": "wide", "-narrow": "narrow"}
_COLOUR = re.compile("|".join(VARIABLES))
_FILE = re.compile(
    r".*?(?P<title><title id.*?</desc>).*?"
    r'<g id="(?P<id>[^"]*)" transform="[^"]*" data-box="(?P<box>[^"]*)">(?P<drawing>.*)</g>\s*</svg>\s*',
    re.DOTALL,
)


def inline(text: str, css: str) -> Markup:
    """The text of an SVG file as a part of the page, without its ground and its heading; empty where nothing is drawn."""
    found = _FILE.fullmatch(text)
    if not found:
        return Markup()
    drawing = _COLOUR.sub(lambda colour: f"var({VARIABLES[colour[0]]})", found["drawing"])
    name = found["id"]
    head = (
        f'<svg class="picture {css}" id="{name}" viewBox="{found["box"]}" role="img" '
        f'aria-labelledby="{name}-title {name}-desc">'
    )
    return Markup(f"{head}{found['title']}{drawing}</svg>")


def inlined(figure: Mapping[str, str]) -> dict[str, Markup]:
    """The pictures by name, from the texts of their files by stem; those in which something is drawn."""
    names = [stem for stem in figure if f"{stem}-narrow" in figure]
    made = {name: Markup().join(inline(figure[name + ending], css) for ending, css in WIDTHS.items()) for name in names}
    return {name: picture for name, picture in made.items() if picture}
