"""The small models of `families`: counted as the config's are, but on the CPU, and held against other implementations.

One process does both, for most of its time is the import of transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformer_ledger.executed.run import Row, apart, counted
from transformer_ledger.families import CACHE_DTYPES, FAMILIES, RECIPES, WORKLOADS, layouts


def compute(compared: Mapping[str, int], activations: Mapping[str, Any]) -> dict[str, list[Row]]:
    """Rows of the tables `families` and `experiment/decoder`.

    `compared` has the settings of `same_function`, `activations` those of the copies whose activations are saved.
    """

    def work() -> dict[str, list[Row]]:
        from transformer_ledger.executed import same_function

        made = []
        for name, family in FAMILIES.items():
            config, spec = dict(family.config), family.read(name)
            windowed = any(a.reach for _, a in spec.attentions())
            loads = (
                WORKLOADS if windowed else {"long": WORKLOADS["long"]}
            )  # a sequence within a window, and one past it
            spread = {own: given for own, given in layouts().items() if name in given["models"]}
            made += counted(spec, config, loads, RECIPES, CACHE_DTYPES, activations, "cpu", spread)
        return {"families": made, "experiment/decoder": same_function.rows(**compared)}

    return apart("families", work)
