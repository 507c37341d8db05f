"""Experiment E1: q and k turned in the plane, and the errors of all cases as shares of their bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from transformer_ledger.figure import drawing, margins

Rows = Sequence[Mapping[str, Any]]


def rotations(printed: Mapping[str, Any]) -> drawing.Picture:
    """The text's vectors, rotated to their positions, to shifted ones, and by one angle."""
    q, k, omega, m, n, shift, angle = (
        printed[key] for key in ("q", "k", "frequency", "m", "n", "shift", "equal_angle")
    )
    views = {
        f"positions {m} and {n}": (m * omega, n * omega),
        f"both shifted by {shift}": ((m + shift) * omega, (n + shift) * omega),
        f"both at angle {angle}": (angle, angle),
    }

    def turned(vector: Sequence[float], turn: float) -> tuple[float, float]:
        length, heading = math.hypot(*vector), math.atan2(vector[1], vector[0]) + turn
        return length * math.cos(heading), length * math.sin(heading)

    return drawing.Picture(
        drawing.rotations,
        "q and k turned in the plane",
        f"The vectors q = {tuple(q)} and k = {tuple(k)}: turned to positions {m} and {n}; both moved by {shift}, where "
        "the angle between them is the same; and both turned by the same angle, where it is as without rotation.",
        ("view", "vector", "x", "y"),
        {
            heading: [("q", *turned(q, turn_q)), ("k", *turned(k, turn_k))]
            for heading, (turn_q, turn_k) in views.items()
        },
    )


def compute(printed: Mapping[str, Any], *, experiment: Mapping[str, Rows]) -> dict[str, str]:
    """The files of the pictures, {path: text}; `printed` are the settings of the text's own case."""
    rows = experiment["rope_dot_product"]
    return drawing.files({"rope": rotations(printed), "rope-margin": margins.margins(rows, "pairing")})
