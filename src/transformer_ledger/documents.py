"""What the README files and the package repeat of the code: `python -m transformer_ledger.documents` writes it anew."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

from transformer_ledger import size, tables
from transformer_ledger.claims.table import CLAIMS

ROOT = Path(__file__).resolve().parents[2]
COUNTED = (
    "This project checks {all} of their statements",
    "{confirmed} statements hold, {conditional} hold under a condition that the text does not state, {refuted} are wrong, and "
    "{not_reproducible} print digits that depend on numbers which the text does not publish",
)
"""The sentences of README.md that count the claims by the verdict that is registered for them."""
MARK = "## Data dictionary\n\n"


def readme(text: str) -> str:
    """README.md with the counts of the registry. ValueError if a sentence of `COUNTED` is not in it once."""
    counts = Counter(claim.registered.replace(" ", "_") for claim in CLAIMS) | {"all": len(CLAIMS)}
    for sentence in COUNTED:
        parts = [r"\s+".join(map(re.escape, part.split(" "))) for part in re.split(r"\{\w+\}", sentence)]
        found = list(re.finditer(r"\d+".join(parts), text))
        if len(found) != 1:
            raise ValueError(f"README.md must say once: {sentence}")
        numbers = iter(re.findall(r"\{(\w+)\}", sentence))
        new = re.sub(r"\d+", lambda _: str(counts[next(numbers)]), found[0].group())  # noqa: B023
        text = text[: found[0].start()] + new + text[found[0].end() :]
    return text


def dictionary(text: str) -> str:
    """results/README.md with the data dictionary of the tables' schemas."""
    return text[: text.index(MARK) + len(MARK)] + tables.dictionary()


def main() -> None:
    """Write README.md, results/README.md and the recipes that the package ships."""
    for path, made in ((ROOT / "README.md", readme), (ROOT / "results/README.md", dictionary)):
        path.write_text(made(path.read_text(encoding="utf-8")), encoding="utf-8")
    size.RECIPES.write_text(json.dumps(size.recipes(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
