"""Numbers as people read them: grouped, with as many digits as they carry, and the exact value never lost."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

from markupsafe import Markup, escape

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_MINUS = str.maketrans("-", "−")
DAY = 86400  # seconds
EXACT_BELOW = 10**10  # an integer of at most ten digits is shown as it is


def grouped(value: int) -> str:
    """12345678 → 12,345,678, with a real minus sign."""
    return f"{value:,}".translate(_MINUS)


def scientific(value: float | int | Fraction, digits: int = 4) -> str:
    """6300000…0 → 6.300 × 10²⁴, `digits` significant digits."""
    mantissa, _, exponent = f"{float(value):.{digits - 1}e}".partition("e")
    return f"{mantissa.translate(_MINUS)} × 10{str(int(exponent)).translate(_SUPERSCRIPT)}"


def short(value: Any, digits: int = 5) -> str:
    """A number in few characters: small integers grouped, others to `digits` significant digits."""
    if value is None:
        return "—"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return grouped(value) if abs(value) < EXACT_BELOW else scientific(value, digits)
    value = float(value)
    if not math.isfinite(value):
        return {math.inf: "∞", -math.inf: "−∞"}.get(value, "undefined (NaN)")
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e7:
        text = f"{value:,.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"
        return (text.rstrip("0").rstrip(".") if "." in text else text).translate(_MINUS)
    return scientific(value, min(digits, 3))


def exact(value: Any) -> str:
    """The value itself: every digit of an integer, as many of a float as give it back."""
    if value is None:
        return "—"
    if isinstance(value, int) and not isinstance(value, bool):
        return grouped(value)
    mantissa, power, exponent = str(value).partition("e")
    return f"{mantissa} × 10{str(int(exponent)).translate(_SUPERSCRIPT)}".translate(_MINUS) if power else str(value)


def two(brief: str, full: str, css: str = "n") -> Markup:
    """What is read, and the exact form that `Exact figures` shows in its place."""
    return Markup(
        '<span class="{2}" title="{1}"><span class="brief">{0}</span><span class="full">{1}</span></span>'
    ).format(brief, full, css)


def number(value: Any, digits: int = 5) -> Markup:
    """A number for reading and its exact value, of which the page shows one (`Exact figures`)."""
    if value is None:
        return Markup('<span class="none">—</span>')
    brief, full = short(value, digits), exact(value)
    if brief == full:
        return Markup('<span class="n">{}</span>').format(brief)
    return two(brief, full)


def large(value: Any, billions: str = "G") -> Markup:
    """A large count in few characters, 8.03 G (of parameters 8.03 B); the exact one beside it."""
    if value is None or not 10**7 <= abs(value) < 10**18:
        return number(value)
    power, unit = next(pair for pair in ((15, "P"), (12, "T"), (9, billions), (6, "M")) if abs(value) >= 10 ** pair[0])
    return two(f"{short(value / 10**power, 4)} {unit}", exact(value))


def size(value: int | None, decimal: bool = False) -> Markup:
    """Bytes as GiB, MiB or KiB (powers of 1,024), or as GB, MB or kB; the bytes themselves as the exact value."""
    if value is None:
        return number(None)
    base, digits, units = (1000, 5, ("TB", "GB", "MB", "kB")) if decimal else (1024, 4, ("TiB", "GiB", "MiB", "KiB"))
    for power, unit in zip((4, 3, 2, 1), units, strict=True):
        if abs(value) >= base**power:
            return two(f"{short(value / base**power, digits)} {unit}", f"{grouped(value)} bytes", "n size")
    return Markup('<span class="n size">{} bytes</span>').format(grouped(value))


def duration(value: float | None, digits: int = 3) -> Markup:
    """Seconds as days, s, ms, µs or ns, the seconds themselves as the exact value."""
    if value is None:
        return number(None)
    if abs(value) >= DAY:
        return two(f"{short(value / DAY, digits)} days", f"{exact(value)} s")
    units = ((0, "s"), (-3, "ms"), (-6, "µs"))
    power, unit = next((pair for pair in units if abs(value) >= 10.0 ** pair[0]), (-9, "ns"))
    return two(f"{short(value / 10.0**power, digits)} {unit}", f"{exact(value)} s")


def plain(value: Markup) -> str:
    """What is read of a number with two forms, without its tags: the short one."""
    return Markup(re.sub('<span class="full">.*', "", str(value))).striptags()


def percent(value: float | Fraction, digits: int = 3) -> str:
    """A ratio as a percentage with its sign."""
    return f"{float(value) * 100:+.{digits}g} %".translate(_MINUS)


def anchor(*parts: str) -> str:
    """A stable, URL-safe id out of names."""
    joined = "-".join(parts).lower()
    return "".join(
        character if character.isascii() and (character.isalnum() or character in ".-") else "-" for character in joined
    )


_INDEXED = re.compile(r"(?<![A-Za-z0-9_])(x?)([A-Za-zωθ])_(kv|ff|[A-Za-z0-9])(?![A-Za-z0-9_])")
_POWER = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)e([+-]?\d+)(?!\w)")
_NEGATIVE = re.compile(r"(?<![\w)\]-])-(?=\d)")


_PAPER = re.compile(r"arXiv:(\d{4}\.\d{4,5})")


def linked(text: str) -> Markup:
    """Escaped text in which every paper's arXiv number leads to the paper."""
    return Markup(_PAPER.sub(r'<a href="https://arxiv.org/abs/\1" rel="noopener">\g<0></a>', str(escape(text))))


def equation(text: str) -> Markup:
    """An equation in plain text; a line break where the text has one."""
    return Markup("<br>").join(prose(line) for line in text.splitlines())


def prose(text: str | None) -> Markup:
    """As `linked`, and d_h and its kin, as in xW_g, stand with a subscript, and 6.3e+24 as a power of ten."""
    curled = re.sub(r"(?<=[A-Za-z])'(?=[a-z])", "’", text or "")
    powers = _POWER.sub(lambda found: f"{found[1]}\u00a0×\u00a010{str(int(found[2])).translate(_SUPERSCRIPT)}", curled)
    return Markup(_INDEXED.sub(r"\1<i>\2</i><sub>\3</sub>", str(linked(_NEGATIVE.sub("−", powers)))))
