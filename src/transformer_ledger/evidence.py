"""Evidence for a claim: what it rests on, as rows of a verification table. What a row can do is decided here alone.

Every row sets an observed value against a region that was fixed before: at most a bound, exactly a number, between two
ends. Both sides name the route by which they came; a comparison of one route with itself settles nothing. A control is
one function called twice, as it is and with one named change: it passes only where the first value keeps the claim and
the second one breaks it, so it fails when the change is switched off. A printed figure is a record with the settings
that it was printed for.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from transformer_ledger import routes

Number = int | float | Fraction

EXACT, FLOATING, CONTROL = "exact", "floating", "control"
REPETITION, THEOREM = "repetition", "theorem"
LEGS = (EXACT, FLOATING, CONTROL, REPETITION, THEOREM)
ASIDE = (REPETITION, THEOREM)
"""Legs that are shown and count for nothing: no fault could turn them."""
SCOPES = ("stated", "conditioned", "corrected", "printed")
PAST = 100
"""A change must carry the result this many times past the bound that the unchanged code keeps."""
MAGNITUDE = 10
"""Two figures are of the same magnitude where neither is more than this many times the other."""
OUTCOMES = REPRODUCED, _, _ = ("reproduced", "same magnitude", "not reproduced")
"""How well a printed figure is reproduced, the best first."""

# How a parameter of a case is put into words; the others by their name.
WORDS = {
    "model": "{}",
    "name": "{}",
    "term": "{}",
    "component": "{}",
    "heads": "H = {}",
    "than": "against H = {}",
    "kv_heads": "h_kv = {}",
    "head": "head {}",
    "head_dim": "d_h = {}",
    "d_k": "d_k = {}",
    "d_model": "d = {}",
    "scores": "scores {}",
    "orders": "{} orders",
    "initialisations": "{} initialisations",
    "windows": "{} windows",
    "word": "«{}»",
    "d_ff": "f = {}",
    "base": "base {}",
    "dtype": "{}",
    "pairing": "{}",
    "norm": "{}",
    "implementation": "{}",
    "tokens": "{} tokens",
    "keys": "{} keys",
    "batch": "B = {}",
    "devices": "{} devices",
    "device_hours": "{} device-hours",
    "operations": "{}·N·D",
    "length": "T = {}",
    "layers": "{} layers",
    "epsilon": "ε = {}",
    "position": "at position {}",
    "up_to": "at positions up to {}",
    "from_1_to": "from position 1 to {}",
    "shift": "shifted by {}",
    "vector": "the {} vector",
    "factor": "times {}",
    "components": "{} components",
    "feedforward": "{} feed-forward",
    "gated_d_ff": "gated f = {}",
    "rows": "{} rows",
}


def plain(value: Any) -> Number:
    """A Python, NumPy, torch or SymPy number as int, Fraction or float."""
    if isinstance(value, (int, float, Fraction)):
        return int(value) if isinstance(value, bool) else value
    if getattr(value, "is_Rational", False):
        return Fraction(int(value.p), int(value.q))
    return plain(value.item()) if hasattr(value, "item") else float(value)


@dataclass(frozen=True)
class Region:
    """The numbers that a relation allows. `low` and `high` are its ends, equal for one number."""

    relation: str  # <=, >=, ==, !=, in, outside
    low: Number
    high: Number

    def __contains__(self, value: Number) -> bool:
        """Exact for integers and fractions; a NaN is in no region."""
        if isinstance(value, float) and math.isnan(value):
            return False
        if self.relation in ("!=", "outside"):
            return value < self.low or value > self.high
        return (self.relation == "<=" or value >= self.low) and (self.relation == ">=" or value <= self.high)

    def broken(self, past: Number = PAST) -> Region:
        """Where a changed result must lie: outside, by `past` times the bound where there is one."""
        if self.relation == "==":
            return Region("!=", self.low, self.high)
        if self.relation == "in":
            middle, reach = (self.low + self.high) / Fraction(2), (self.high - self.low) / Fraction(2)
            return Region("outside", middle - past * reach, middle + past * reach)
        if self.low <= 0:
            raise ValueError("a bound of 0 or less has no multiple: say what breaks it")
        return at_least(past * self.low) if self.relation == "<=" else at_most(self.low / Fraction(past))

    def meets(self, other: Region) -> bool:
        """Whether a number lies in both regions."""
        ends = [self.low, self.high, other.low, other.high]
        below, above = min(ends) - 1, max(ends) + 1
        middles = [(a + b) / Fraction(2) for a in ends for b in ends]
        return any(value in self and value in other for value in (below, above, *ends, *middles))


def at_most(bound: Any) -> Region:
    """Values up to `bound`."""
    return Region("<=", plain(bound), plain(bound))


def at_least(threshold: Any) -> Region:
    """Values from `threshold` on."""
    return Region(">=", plain(threshold), plain(threshold))


def exactly(value: Any) -> Region:
    """One number."""
    return Region("==", plain(value), plain(value))


def other_than(value: Any) -> Region:
    """Any number but one."""
    return Region("!=", plain(value), plain(value))


def between(low: Any, high: Any) -> Region:
    """From `low` to `high`, both included."""
    return Region("in", plain(low), plain(high))


def outside(low: Any, high: Any) -> Region:
    """Below `low` or above `high`."""
    return Region("outside", plain(low), plain(high))


@dataclass(frozen=True)
class Printed:
    """A figure as a text prints it.

    `settings` are the job's settings that it was printed for, by dotted key: with others it says nothing. Integers are
    meant exactly unless `rounded`; other figures stand for what rounds to their digits; with `most` for all up to it.
    `unpublished` names the inputs that the text does not publish; nobody can reproduce such digits. `scale` multiplies:
    65.48 G has 10⁹.
    """

    text: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    unpublished: str = ""
    rounded: bool = False
    scale: int = 1
    most: bool = False

    @property
    def value(self) -> Fraction:
        """The printed number."""
        return Fraction(self.text.replace(",", "")) * self.scale

    @property
    def region(self) -> Region:
        """What rounds to the printed digits, or is no more."""
        if self.most:
            return at_most(self.value)
        mantissa, _, exponent = self.text.replace(",", "").lower().partition("e")
        if not (self.rounded or exponent or "." in mantissa):
            return exactly(self.value)
        half = Fraction(10) ** (int(exponent or 0) - len(mantissa.partition(".")[2])) / 2 * self.scale
        return between(self.value - half, self.value + half)

    def applies(self, settings: Mapping[str, Any]) -> bool:
        """Whether the job has the settings that the figure was printed for."""
        return all(_at(settings, key) == wanted for key, wanted in self.settings.items())

    def outcome(self, measured: Number) -> str:
        """One of OUTCOMES, one rule for every printed figure."""
        if measured in self.region:
            return REPRODUCED
        return OUTCOMES[1] if 1 / MAGNITUDE <= abs(self.ratio(measured) or 0) <= MAGNITUDE else OUTCOMES[2]

    def ratio(self, measured: Number) -> float | None:
        """Measured divided by printed; None where either is 0."""
        return float(measured) / float(self.value) if measured and self.value else None


def _at(settings: Any, key: str) -> Any:
    for part in key.split("."):
        settings = settings.get(part) if isinstance(settings, Mapping) else None
    return settings


_unchanged: ContextVar[bool] = ContextVar("_unchanged", default=False)


@contextlib.contextmanager
def switched_off() -> Iterator[None]:
    """Within it every control runs without its change, and so must fail."""
    token = _unchanged.set(True)
    try:
        yield
    finally:
        _unchanged.reset(token)


def nearest(observed: Any, bound: Any) -> tuple[Number, Number]:
    """Of arrays of observed values and bounds, the pair nearest to its bound, or furthest past it."""
    import numpy as np

    observed, bound = np.broadcast_arrays(np.asarray(observed, np.float64), np.asarray(bound, np.float64))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(observed == 0, 0.0, observed / bound)
    index = np.unravel_index(np.argmax(np.where(np.isnan(ratio), np.inf, ratio)), ratio.shape)
    return float(observed[index]), float(bound[index])


def differing(a: Any, b: Any) -> int:
    """Entries of two equally shaped floating arrays whose bits differ (sign of zero, NaN payload)."""
    import numpy as np

    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    if a.shape != b.shape or a.dtype != b.dtype:
        raise ValueError(f"{a.dtype}{a.shape} against {b.dtype}{b.shape}")
    kind = np.dtype(f"u{a.dtype.itemsize}")
    return int(np.count_nonzero(a.view(kind) != b.view(kind)))


def _float(value: Number) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _exact(value: Number) -> str | None:
    return None if isinstance(value, float) else str(value)


def _word(name: str, value: Any) -> str:
    if isinstance(value, (list, tuple)):
        value = ", ".join(map(str, value))
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        value = f"{value:,}" if isinstance(value, int) else f"{value:g}"
    return WORDS.get(name, name.replace("_", " ") + " {}").format(value)


def _ends(region: Region, prefix: str = "") -> dict[str, Any]:
    """The columns of a region: what the value is compared with, and both ends of an interval."""
    one = region.low == region.high
    middle = region.low if one else (region.low + region.high) / Fraction(2)
    return {
        f"{prefix}relation": region.relation,
        f"{prefix}expected": _float(middle),
        f"{prefix}expected_exact": _exact(region.low) if one else None,
        f"{prefix}lower": None if one else _float(region.low),
        f"{prefix}upper": None if one else _float(region.high),
    }


class Evidence:
    """Rows of one claim, or of several with one list: `Evidence("A6.1", settings)`, then a method for each row.

    `settings` are the job's, for the printed figures. What a call has in common with its neighbours stands once: `of`
    gives the same evidence with more in place. Options of every row: `by` and `against` (routes), `source` (where the
    bound or expected value comes from), `unit`, `scope`, `tried` (words before the parameters), `key` (the name by which
    reasons and pictures find the row), `headline` (shown as the claim's value). All other keywords are parameters of
    the case.
    """

    OPTIONS = ("by", "against", "source", "unit", "scope", "tried", "key", "headline", "leg")

    def __init__(self, claim: str, settings: Mapping[str, Any] | None = None, **defaults: Any):
        self.claim = claim
        self.settings = settings or {}
        self.defaults = defaults
        self.rows: list[dict[str, Any]] = []

    def of(self, claim: str | None = None, **more: Any) -> Evidence:
        """The same evidence, rows going into the same list, with more options or parameters in place."""
        other = Evidence(claim or self.claim, self.settings, **self.defaults | more)
        other.rows = self.rows
        return other

    # What is observed, against what was fixed before.

    def equal(self, quantity: str, observed: Any, expected: Any, **more: Any) -> None:
        """Two exact numbers that must be equal: nothing is rounded."""
        self._row(quantity, observed, exactly(expected), **{"leg": EXACT} | more)

    def same(self, quantity: str, observed: Sequence[Any], expected: Sequence[Any], **more: Any) -> None:
        """Two equally long sequences without rounding: the number of entries that differ must be 0."""
        differ = sum(bool(a != b) for a, b in zip(observed, expected, strict=True))
        self._row(quantity, differ, exactly(0), **{"leg": EXACT} | more)

    def bitwise(self, quantity: str, observed: Any, expected: Any, **more: Any) -> None:
        """Two floating arrays: the number of entries whose bits differ must be 0."""
        self._row(quantity, differing(observed, expected), exactly(0), **{"leg": FLOATING} | more, relation="bitwise")

    def agree(self, quantity: str, observed: Any, expected: Any, bound: Any, **more: Any) -> None:
        """Two floating arrays, apart by no more than `bound`; the entry nearest to its bound is kept."""
        import numpy as np

        apart = np.abs(np.asarray(observed, np.float64) - np.asarray(expected, np.float64))
        self.within(quantity, apart, bound, **more)

    def within(self, quantity: str, observed: Any, bound: Any, **more: Any) -> None:
        """A value, or the entry of an array nearest to its bound, that must be at most the bound."""
        value, most = nearest(observed, bound)
        self._row(quantity, value, at_most(most), **{"leg": FLOATING, "against": routes.BOUND} | self.defaults | more)

    def beyond(self, quantity: str, observed: Any, threshold: Any, **more: Any) -> None:
        """A value that must reach `threshold`: something that the claim says moves."""
        self._row(
            quantity, observed, at_least(threshold), **{"leg": FLOATING, "against": routes.BOUND} | self.defaults | more
        )

    def inside(self, quantity: str, observed: Any, low: Any, high: Any, **more: Any) -> None:
        """A value that must lie between two ends."""
        self._row(quantity, observed, between(low, high), **{"leg": FLOATING} | more)

    def prints(self, quantity: str, observed: Any, printed: Printed, **more: Any) -> None:
        """A figure of the text against ours. Its digits count against the claim only where their inputs are published."""
        scope = "printed" if printed.unpublished else "stated"
        leg = FLOATING if isinstance(plain(observed), float) else EXACT
        self._row(quantity, observed, printed.region, printed=printed,
                  **{"leg": leg, "scope": scope, "against": routes.TEXT} | more)  # fmt: skip

    def repetition(self, quantity: str, observed: Any, expected: Any, **more: Any) -> None:
        """The same thing done twice. Shown; counts for nothing."""
        self._row(quantity, observed, exactly(expected), **more | {"leg": REPETITION})

    def theorem(self, quantity: str, observed: Any, low: Any, high: Any, **more: Any) -> None:
        """A value that cannot lie elsewhere, whatever the code does to the claim. Shown; counts for nothing."""
        self._row(quantity, observed, between(low, high), **more | {"leg": THEOREM})

    # What must break it.

    def control(
        self,
        change: str,
        quantity: str,
        of: Callable[..., Any],
        changed: Mapping[str, Any],
        keeps: Region,
        breaks: Region | None = None,
        **more: Any,
    ) -> None:
        """`of()` must lie in `keeps`, and `of(**changed)`, the same code with one named change, in `breaks`.

        `changed` holds one argument; `change` names the change in words. Without `breaks` it is `keeps.broken()`.
        Raises ValueError where a number could lie in both regions, as then the change might do nothing.
        """
        if len(changed) != 1:
            raise ValueError(f"{self.claim}: a control changes one thing, not {sorted(changed)}")
        breaks = keeps.broken() if breaks is None else breaks
        if keeps.meets(breaks):
            raise ValueError(f"{self.claim}: {change}: a result could keep the claim and break it")
        before = plain(of())
        after = plain(of(**({} if _unchanged.get() else changed)))
        self._row(quantity, after, breaks, **more | {"leg": CONTROL}, change=change, before=(before, keeps))

    def _row(
        self,
        quantity: str,
        observed: Any,
        region: Region,
        *,
        printed: Printed | None = None,
        change: str | None = None,
        before: tuple[Number, Region] | None = None,
        relation: str | None = None,
        **more: Any,
    ) -> None:
        given = self.defaults | more
        options = {name: given.pop(name, None) for name in self.OPTIONS}
        leg, scope = options["leg"], options["scope"] or "stated"
        if leg not in LEGS or scope not in SCOPES or not options["by"]:
            raise ValueError(f"{self.claim}, {quantity}: leg {leg!r}, scope {scope!r}, route {options['by']!r}")
        if options["key"] and any((row["claim"], row["key"]) == (self.claim, options["key"]) for row in self.rows):
            raise ValueError(f"{self.claim}: two rows have the key {options['key']!r}")
        value = plain(observed)
        # Words are made here and nowhere else; everything else reads `parameters`.
        words = [options["tried"], change, *(_word(name, part) for name, part in given.items())]
        row = {
            "claim": self.claim,
            "case": ", ".join(filter(None, words)),
            "leg": leg,
            "scope": scope,
            "route": options["by"],
            "other_route": options["against"],
            "backend": routes.BACKENDS.get(options["by"], ""),
            "quantity": quantity,
            "measured": _float(value),
            "measured_exact": _exact(value),
            **_ends(region),
            "bound_source": options["source"] or "",
            "unit": options["unit"] or "",
            "holds": value in region and (before is None or before[0] in before[1]),
            "applicable": printed is None or printed.applies(self.settings),
            "headline": bool(options["headline"]),
            "key": options["key"],
            "parameters": json.dumps(given, sort_keys=True, ensure_ascii=False),
            "change": change,
            "printed": printed.text if printed else None,
            "reproduced": printed.outcome(value) if printed else None,
            "to_printed": printed.ratio(value) if printed else None,
            "unpublished": (printed.unpublished or None) if printed else None,
        }
        if relation:
            row["relation"] = relation
        if before is not None:
            kept, keeps = before
            row |= {"unchanged": _float(kept), "unchanged_exact": _exact(kept), **_ends(keeps, "unchanged_")}
        self.rows.append(row)
