"""The pictures' colours: those of the page's style sheet on white, which the page replaces by its own variables."""

from __future__ import annotations

INK, SOFT, RULE, PAPER = "#1d1b18", "#635e55", "#ddd8cb", "#ffffff"
SERIES = ("#2c5a8b", "#b94f14", "#33754a", "#7d4f94", "#7f680c", "#2f7886", "#9c3249", "#62625f")
VARIABLES = {INK: "--ink", SOFT: "--soft", RULE: "--rule", PAPER: "--paper"} | {
    colour: f"--series-{index}" for index, colour in enumerate(SERIES, 1)
}
