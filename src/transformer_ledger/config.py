"""The checked config: what Snakemake merged, held against the schema, with every problem named by file, line and key.

The schema, `workflow/schemas/config.schema.yaml`, says which keys there are, their types, ranges and defaults. Here is
what it cannot say (names that refer to other names, keys that must fit each other) and how a problem is worded.
"""

from __future__ import annotations

import copy
import difflib
import itertools
import json
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator, ValidationError, validators

from transformer_ledger import huggingface, limits, signature
from transformer_ledger.ledger.layout import Layout, held
from transformer_ledger.ledger.parameters import totals
from transformer_ledger.model import ModelError, ModelSpec, from_architecture

SCHEMA = Path(__file__).resolve().parents[2] / "workflow" / "schemas" / "config.schema.yaml"
VERIFICATIONS = Path(__file__).parent / "verification"
COMMAND_LINE = "--config"
MODULE = "the module's config"
CODE = "__use_yte__"
TRAINED = 10**9  # parameters of the checkpoint that is trained on this machine: 16 bytes each, and days
Key = tuple[str | int, ...]  # path of a value: keys of mappings, positions in lists
Schema = Mapping[str, Any]
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")  # shown as it is
_NUMBER = re.compile(
    r"[-+]?(0|[1-9][0-9]{0,99})(\.[0-9]{0,99})?([eE][-+]?[0-9]{1,3})?|[-+]?\.[0-9]{1,99}([eE][-+]?[0-9]{1,3})?"
)
_OLD_INTEGER = re.compile(r"[-+]?(0[0-9_]+|[0-9_]+(:[0-9_]+)+)")  # octal and base 60 in YAML 1.1
_DIGITS = 100  # of an integer; Python refuses to print far longer ones
_VALUES = 100_000  # of a file: aliases of aliases are soon more than any memory holds
_TAG = "tag:yaml.org,2002:"
_HOLDERS = ("map", "seq", "set", "omap", "pairs")
_NULLS = ("", "~", "null", "Null", "NULL")
_BOOLEANS = {"true": True, "false": False}


class ConfigError(ValueError):
    """A config that cannot be run; the message is one line a problem, in the order of files and lines."""


@contextmanager
def exit_on_fault() -> Iterator[None]:
    """End the process with the message of a config that cannot be run."""
    try:
        yield
    except ConfigError as error:
        sys.exit(str(error))


@dataclass(frozen=True)
class Place:
    """Where a value is written: file, line, and the scalar's own text where it stands there without quotes."""

    file: str
    line: int
    plain: str | None = None


class _Problems:
    """What is wrong, at most one line for each place in the config."""

    def __init__(self, sources: _Sources):
        self.sources = sources
        self.found: dict[Key, tuple[tuple[int, int], str]] = {}

    def add(self, key: Key, message: str) -> None:
        order, place = self.sources.cite(key)
        line = f"{place}: {dotted(key)}: {message}" if key else f"{place}: {message}"
        self.found.setdefault(key, (order, limits.shown(line, 2000)))

    def concerns(self, key: Key) -> bool:
        """Whether something at or below `key`, or a mapping or list that holds it, is wrong already."""
        return any(known[: len(key)] == key or key[: len(known)] == known for known in self.found)

    def stop(self) -> None:
        """Raise them all, if there are any."""
        if self.found:
            raise ConfigError("\n".join(line for _, line in sorted(self.found.values())))


class _Sources:
    """The files that a config was merged from, later ones winning, and last of all the command line's values."""

    def __init__(self, files: Sequence[str | Path], arguments: Mapping[str, Any] | None, origin: str = COMMAND_LINE):
        self.files = [read(path) for path in files]
        self.arguments = arguments or {}
        self.origin = origin

    def _on_command_line(self, key: Key) -> bool:
        value: Any = self.arguments
        for part in key:
            if isinstance(part, int):
                return True  # lists are not merged: an entry is where its list is
            if not isinstance(value, Mapping) or part not in value:
                return False
            value = value[part]
        return bool(key)

    def only_on_command_line(self, key: Key) -> bool:
        """Whether the command line sets `key` and no file does."""
        return self._on_command_line(key) and not any(key in places for places in self.files)

    def names(self, key: Key) -> list[str]:
        """The keys that the files give the mapping at `key`."""
        below = [place[len(key)] for places in self.files for place in places if place[: len(key)] == key != place]
        return [str(name) for name in dict.fromkeys(below)]

    def find(self, key: Key) -> tuple[int, Place] | None:
        """Number of the source that has the last word on `key`, and the place; None where it is the command line."""
        if self._on_command_line(key):
            return None
        mapped = next((n for n, part in enumerate(key) if isinstance(part, int)), len(key))
        for number, places in reversed(list(enumerate(self.files))):
            if key[:mapped] in places:
                inside = next(key[:n] for n in range(len(key), -1, -1) if key[:n] in places)
                return number, places[inside]
        return None

    def cite(self, key: Key) -> tuple[tuple[int, int], str]:
        """Sort order and `file:line` of `key`, or of what holds it where it is not written anywhere."""
        last = len(self.files)
        if self._on_command_line(key):
            return (last, 0), self.origin
        for n in range(len(key), -1, -1):
            if found := self.find(key[:n]):
                number, place = found
                return (number, place.line), f"{place.file}:{place.line}"
        return (last, 0), self.origin

    def scalar(self, key: Key, text: str) -> bool:
        """Whether `text` stands there without quotes and may mean a number; the command line loses all quotes."""
        found = self.find(key)
        return found is None or found[1].plain == text


def dotted(key: Key) -> str:
    """A key as people write it: models.gpt2.architecture.layers, verification.norms.widths[2]."""
    text = ""
    for part in key:
        if not isinstance(part, str) or not _NAME.fullmatch(part):
            text += f"[{part!r}]"
        else:
            text += f".{part}" if text else part
    return text


def _shown_path(path: Path) -> str:
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def read(path: str | Path) -> dict[Key, Place]:
    """Where every value of a YAML or JSON file stands. The keys' order is the file's.

    Raises ConfigError where the file is missing, not YAML, not a mapping, holds a key twice, or writes a name or number
    in a way that YAML 1.1 takes for something else (`on:`, 010).
    """
    path = Path(path)
    name = _shown_path(path)
    try:
        text = limits.text(path)
    except OSError as error:
        raise ConfigError(f"{name}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{name}: not a text file in UTF-8") from None
    try:
        json.loads(text)
        text = text.replace("\t", " ")  # JSON may indent with tabs, YAML may not
    except (ValueError, RecursionError):
        pass
    problems: list[tuple[int, str]] = []
    places: dict[Key, Place] = {}
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        if not isinstance(root, yaml.MappingNode):
            raise ConfigError(f"{name}:1: {'empty' if root is None else 'no mapping'}; wanted are keys such as models:")
        places[()] = Place(name, 1)
        _walk(loader, root, (), name, places, problems, frozenset())
        if re.search(r"[\t?]", text):  # a tab behind a value, a? b: only the parser that Snakemake takes stops there
            yaml.compose(text, yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        raise ConfigError(_not_yaml(name, text, error)) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{name}: not YAML: {str(error).splitlines()[0]}") from None
    if (CODE,) in places:
        problems.append((places[CODE,].line, f"{CODE}: Snakemake would run Python from this file; a config is data"))
    if problems:
        raise ConfigError("\n".join(f"{name}:{line}: {message}" for line, message in sorted(problems)))
    return places


def _not_yaml(name: str, text: str, error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 1
    lines = text.splitlines()
    written = lines[line - 1] if line <= len(lines) else ""
    hint = "; indent with spaces, not tabs" if "\t" in written else ""
    reason = ", ".join(part for part in (error.context, error.problem) if part)
    return f"{name}:{line}: not YAML: {reason}{hint}"


def _scalar(loader: Any, node: yaml.ScalarNode) -> str:
    """What is wrong with a value as it is written; "" where nothing is."""
    whole = node.tag.endswith(":int")
    if whole and len(node.value) > _DIGITS:
        return f"an integer of more than {_DIGITS} digits"
    try:  # 2024-99-99, !!int x, !!float x, !!bool x, !mine x
        value = loader.construct_object(node)
    except (ValueError, LookupError, AttributeError, yaml.YAMLError):
        return f"YAML reads {node.value!r} as {node.tag.replace(_TAG, '!!')}, and it is not one; put text in quotes"
    if whole and _OLD_INTEGER.fullmatch(node.value):
        return f"{node.value} means {value} in YAML 1.1; write the number meant plainly"
    return ""


def _walk(
    loader: Any,
    node: yaml.Node,
    key: Key,
    name: str,
    places: dict[Key, Place],
    problems: list[tuple[int, str]],
    above: frozenset[int],
) -> None:
    """Note the places of everything below `node`, and what no schema could find any more once the file is loaded."""
    line = node.start_mark.line + 1
    if id(node) in above:
        problems.append((line, f"{dotted(key)}: an alias of itself"))
        return
    above = above | {id(node)}
    if len(places) > _VALUES:
        raise ConfigError(f"{name}:{line}: {dotted(key)}: more than {_VALUES} values up to here; what repeats aliases?")
    if isinstance(node, yaml.ScalarNode):
        if wrong := _scalar(loader, node):
            problems.append((line, f"{dotted(key)}: {wrong}"))
        return
    if node.tag.removeprefix(_TAG) not in _HOLDERS:
        problems.append((line, f"{dotted(key)}: the tag {node.tag.replace(_TAG, '!!')} is not read; leave it out"))
        return
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            below = (*key, number)
            places[below] = Place(name, item.start_mark.line + 1, _plain(item))
            _walk(loader, item, below, name, places, problems, above)
        return
    first: dict[str, int] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if key_node.tag.endswith(":merge"):  # <<: *shared, whose keys yield to those written here
            for shared in value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]:
                merged: dict[Key, Place] = {}
                if not isinstance(shared, yaml.MappingNode):
                    problems.append(
                        (line, f"{dotted((*key, '<<'))}: merges no mapping; allowed: an alias of one, or a list")
                    )
                    break
                _walk(loader, shared, key, name, merged, problems, above)
                for below, place in merged.items():
                    places.setdefault(below, place)
            continue
        if not (isinstance(key_node, yaml.ScalarNode) and key_node.tag.endswith(":str")):
            what = key_node.value if isinstance(key_node, yaml.ScalarNode) else "?"
            problems.append((line, f"{dotted((*key, str(what)))}: the key is no text in YAML 1.1; put it in quotes"))
            continue
        part = str(key_node.value)
        below = (*key, part)
        if part in first:
            problems.append((line, f"{dotted(below)}: given twice, first in line {first[part]}"))
            continue
        first[part] = line
        places[below] = Place(name, line, _plain(value_node))
        _walk(loader, value_node, below, name, places, problems, above)


def _plain(node: yaml.Node) -> str | None:
    return str(node.value) if isinstance(node, yaml.ScalarNode) and not node.style else None


def _pattern(validator: Any, pattern: str, value: Any, part: Schema) -> Iterator[ValidationError]:
    """The keyword `pattern`: to a schema `$` is the end, to Python's re also the line break before it."""
    if isinstance(value, str) and not re.fullmatch(pattern, value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


_Validator = validators.extend(Draft202012Validator, {"pattern": _pattern})


@cache
def schema() -> dict[str, Any]:
    """The JSON Schema of the config. A verification that the file does not describe takes the parameters of its `compute`."""
    loaded: dict[str, Any] = yaml.load(SCHEMA.read_text(encoding="utf-8"), Loader=_Loader)
    known = loaded["properties"]["verification"]["properties"]
    for module in sorted(VERIFICATIONS.glob("[!_]*.py")):
        if module.stem not in known:
            known[module.stem] = signature.schema(module)
    return loaded


def resolved(part: Schema) -> Schema:
    """A part of the schema with its `$ref` followed; what stands beside the `$ref` goes before."""
    while "$ref" in part:
        target: Any = schema()
        for step in part["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        part = {**target, **{key: value for key, value in part.items() if key != "$ref"}}
    return part


def _types(part: Schema) -> list[str]:
    given = part.get("type", [])
    return [given] if isinstance(given, str) else list(given)


def _number(text: str) -> Fraction | None:
    return Fraction(text) if _NUMBER.fullmatch(text) else None


def _child(part: Schema, name: str | int) -> Schema:
    """The schema of one entry; empty where it knows of none."""
    if isinstance(name, int):
        fixed = part.get("prefixItems", [])
        return resolved(fixed[name] if name < len(fixed) else part.get("items") or {})
    closed = part.get("additionalProperties", False)
    return resolved(part.get("properties", {}).get(name) or (closed if isinstance(closed, Mapping) else {}))


def _spread(value: Any) -> Any:
    """The list that a range {from, to, step} or {from, to, times} stands for; anything else, and too long a one, as it is."""
    if not isinstance(value, Mapping) or set(value) not in ({"from", "to", "step"}, {"from", "to", "times"}):
        return value
    numbers = [_number(str(value[name])) for name in ("from", "to", "step" if "step" in value else "times")]
    if any(number is None or number.denominator != 1 or number < 1 for number in numbers):
        return value
    first, last, by = (int(number) for number in numbers if number is not None)
    if "step" in value:
        return value if (last - first) // by >= _VALUES else list(range(first, last + 1, by))
    found = [first] if by > 1 and first <= last else []
    while found and found[-1] * by <= last:
        found.append(found[-1] * by)
    return found or value


def _normal(value: Any, part: Schema, key: Key, problems: _Problems) -> Any:
    """`value` as the schema wants it: null entries gone, defaults filled in, numbers of the wanted kind.

    A number is a float where the schema says number and an int where it says integer (2.0 is 2); text that is a number
    (1e-3, 15e12 in YAML 1.1; every nested number of --config) becomes one where it is written without quotes.
    """
    types = _types(part)
    if part.get("x-range"):
        value = _spread(value)
    if isinstance(value, Mapping) and "object" in types:
        kept = {}
        for name, item in ((str(name), item) for name, item in value.items()):
            below = (*key, name)
            if isinstance(item, str) and item in _NULLS and problems.sources.find(below) is None:
                item = None  # --config 'models={gpt2: null}' arrives as the text null
            if item is not None:
                kept[name] = _normal(item, _child(part, name), below, problems)
            elif name not in part.get("properties", {}) and not part.get("additionalProperties", False):
                kept[name] = None  # left for the schema to refuse
            elif problems.sources.only_on_command_line(below):
                others = problems.sources.names(key)
                problems.add(below, f"nothing of this name to leave out{_named(name, others)}")
        for name in part.get("properties", {}):
            child = _child(part, name)
            if name not in kept and "default" in child:
                kept[name] = _normal(copy.deepcopy(child["default"]), child, (*key, name), problems)
        return kept
    if isinstance(value, Sequence) and not isinstance(value, str) and "array" in types:
        return [_normal(item, _child(part, n), (*key, n), problems) for n, item in enumerate(value)]
    if isinstance(value, str) and "string" not in types and problems.sources.scalar(key, value):
        if "boolean" in types and value.lower() in _BOOLEANS:
            return _BOOLEANS[value.lower()]
        number = _number(value) if {"integer", "number"} & set(types) else None
        if number is not None:
            value = number.numerator if number.denominator == 1 else float(number)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        problems.add(key, f"{value} is not a finite number; allowed: {allowed(part)}")
        return value
    if "integer" in types and isinstance(value, float) and value.is_integer():
        return int(value)
    if "number" in types and abs(value) < 1e308:
        return float(value)
    return value


_NOUNS = {
    "integer": "an integer",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
}


def _range(part: Schema) -> str:
    low, high = part.get("minimum"), part.get("maximum")
    above, below = part.get("exclusiveMinimum"), part.get("exclusiveMaximum")
    if low is not None and high is not None:
        return f" from {_literal(low)} to {_literal(high)}"
    ends = [
        f"{word} {_literal(end)}"
        for word, end in (("at least", low), ("above", above), ("at most", high), ("below", below))
        if end is not None
    ]
    return f" {' and '.join(ends)}" if ends else ""


def _literal(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    return str(int(value)) if isinstance(value, float) and value.is_integer() and abs(value) < 1e6 else str(value)


def allowed(part: Schema) -> str:
    """What a part of the schema lets through, in words."""
    part = resolved(part)
    if "const" in part:
        return _literal(part["const"])
    if "enum" in part:
        return ", ".join(_literal(value) for value in part["enum"])
    words = []
    for kind in _types(part):
        if kind == "null":
            words.append("null")
        elif kind == "array":
            most, least = part.get("maxItems"), part.get("minItems", 0)
            number = f"{least}" if most == least else f"{least} or more" if most is None else f"{least} to {most}"
            inner = part.get("items") or (part.get("prefixItems") or [None])[0]
            words.append(f"a list of {number}{f' × {allowed(inner)}' if inner else ''}")
        elif kind == "object":
            known = list(part.get("properties", {}))
            words.append(f"a mapping with {', '.join(known)}" if known else "a mapping")
        elif kind == "string":
            words.append(part.get("x-allowed", "text"))
        else:
            noun = _NOUNS[kind]
            if 2 in (part.get("multipleOf"), part.get("not", {}).get("multipleOf")):
                noun = "an even integer" if "multipleOf" in part else "an odd integer"
            elif "multipleOf" in part:
                noun = f"a multiple of {part['multipleOf']}"
            words.append(noun + _range(part))
    return " or ".join(words)


def _nearest(name: Any, known: Iterable[str]) -> str | None:
    """The known name most like `name`, or the first that begins with it, or None."""
    folded = {item.lower(): item for item in reversed(list(known))}
    text = str(name).lower()
    found = difflib.get_close_matches(text, folded, n=1, cutoff=0.6)
    found += [item for item in reversed(folded) if len(text) > 2 and item.startswith(text)]
    return folded[found[0]] if found else None


def _named(name: Any, known: Iterable[str]) -> str:
    """Either the nearest right name, or all of them."""
    known = list(known)
    near = _nearest(name, known)
    return f" (did you mean {near!r}?)" if near else f"; allowed: {', '.join(known) or 'none'}"


def _shown(value: Any) -> str:
    """A value as a message quotes it, cut where it is long."""
    text = _literal(value) if isinstance(value, (bool, type(None))) else repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _unknown(name: str, part: Schema) -> str:
    """Wording for a key that the schema does not know, which may belong one level further in."""
    known = part.get("properties", {})
    near = _nearest(name, known)
    if near is None:
        inner = {key: f"{outer}.{key}" for outer in known for key in _child(part, outer).get("properties", {})}
        found = _nearest(name, inner)
        near = inner[found] if found else None
    return f"unknown key (did you mean {near!r}?)" if near else f"unknown key; allowed: {', '.join(known)}"


def _schema_problems(config: Mapping[str, Any], problems: _Problems, whole: Schema) -> None:
    """Add what the schema `whole` finds in the normalised config."""
    # A misspelt key comes before the key that is missing for it.
    ranks = {"additionalProperties": 0, "required": 2, "oneOf": 2}
    errors = _Validator(whole).iter_errors(config)
    for error in sorted(errors, key=lambda error: ranks.get(str(error.validator), 1)):
        key: Key = tuple(error.absolute_path)
        part = resolved(error.schema)
        value = error.instance
        if error.validator == "additionalProperties":
            for name in value:
                if name not in part.get("properties", {}):
                    problems.add((*key, name), _unknown(name, part))
        elif "propertyNames" in error.schema_path:
            problems.add((*key, str(value)), f"not a name for this; allowed: {part['x-allowed']}")
        elif error.validator == "minProperties":
            problems.add(key, "empty; allowed: at least one entry")
        elif error.validator == "required":
            missing = [name for name in error.validator_value if name not in value]
            for name in missing:
                misspelt = [other for other in value if (*key, other) in problems.found]
                if not any(_nearest(other, part["properties"]) == name for other in misspelt):
                    child = _child(part, name)
                    problems.add((*key, name), f"missing; wanted: {allowed(child)} ({_first(child)})")
        elif error.validator == "oneOf":
            if problems.concerns(key):
                continue
            choices = [name for choice in error.validator_value for name in choice["required"]]
            given = [name for name in choices if name in value]
            which = f"both {' and '.join(given)} are given" if given else "neither is given"
            problems.add(key, f"{which}; allowed: exactly one of {', '.join(choices)} (null leaves one out)")
        elif error.validator == "type":
            noun = " or ".join(_NOUNS[kind] for kind in _types(part) if kind != "null")
            problems.add(key, f"{_shown(value)} is not {noun}; allowed: {allowed(part)}")
        elif error.validator in ("enum", "const"):
            known = [str(item) for item in part.get("enum", [])]
            near = _nearest(value, known) if isinstance(value, str) else None
            hint = f" (did you mean {near!r}?)" if near else ""
            problems.add(key, f"{_shown(value)} is not known{hint}; allowed: {allowed(part)}")
        elif error.validator == "uniqueItems":
            problems.add(key, f"{_shown(value)} holds an entry twice; allowed: {allowed(part)}, all different")
        elif error.validator in ("minItems", "maxItems"):
            problems.add(key, f"{_shown(value)} holds {len(value)}; allowed: {allowed(part)}")
        else:
            what = "is not right" if isinstance(value, str) else "is out of range"
            problems.add(key, f"{_shown(value)} {what}; allowed: {allowed(part)}")


def _first(part: Schema) -> str:
    return str(part.get("description", "")).strip().split("\n")[0].split(". ")[0].rstrip(".")


def _collections() -> Iterator[str]:
    """The sections whose entries may be left out by name."""
    for name in schema()["properties"]:
        if _child(schema(), name).get("x-collection"):
            yield name


def _left_out(config: Mapping[str, Any], name: str) -> set[str]:
    """Entries of a named collection that are set to null."""
    entries = config.get(name)
    given = entries.items() if isinstance(entries, Mapping) else ()
    return {str(key) for key, value in given if value is None or value in _NULLS}


@dataclass(frozen=True)
class _Names:
    """What a reference may name, and what it named once: those entries are set to null."""

    known: Mapping[str, Any]
    gone: set[str]


def _follow(value: Any, part: Schema, key: Key, names: Mapping[str, _Names], problems: _Problems) -> Any:
    """`value` without the names of entries that are set to null; None where it cannot do without them."""
    target = part.get("x-refers-to")
    if target and isinstance(value, str):
        if value in names[target].known:
            return value
        if value in names[target].gone:
            return None
        noun = target.removesuffix("s").replace("_", " ")
        problems.add(key, f"{value!r} is not a {noun} of this config{_named(value, names[target].known)}")
    elif isinstance(value, Mapping):
        kept = {name: _follow(item, _child(part, name), (*key, name), names, problems) for name, item in value.items()}
        if any(kept.get(name) is None and value.get(name) is not None for name in part.get("required", ())):
            return None
        collected = part.get("x-collection")
        return {name: item for name, item in kept.items() if not (collected and item is None)}
    elif isinstance(value, list):
        followed = [_follow(item, _child(part, n), (*key, n), names, problems) for n, item in enumerate(value)]
        left = [item for item in followed if item is not None]
        return None if value and len(left) < part.get("minItems", 0) else left
    return value


def _references(config: dict[str, Any], removed: Mapping[str, set[str]], problems: _Problems) -> None:
    """Follow the names of models and runs; what cannot do without one that is set to null is left out with it."""
    names = {name: _Names(config[name], removed[name]) for name in ("models", "workloads", "training_runs", "recipes")}
    for section in [name for name in schema()["properties"] if name != "models"]:
        before = config[section]
        config[section] = _follow(before, _child(schema(), section), (section,), names, problems)
        if section in names:
            names[section] = _Names(config[section], removed[section] | (set(before) - set(config[section])))


def _alike(models: Mapping[str, Any], problems: _Problems) -> None:
    """Names that would share a file where the file system does not tell capitals from small letters, and equal labels."""
    seen: dict[str, str] = {}
    labels: dict[str, str] = {}
    for name, entry in models.items():
        other = seen.setdefault(name.lower(), name)
        if other != name:
            problems.add(("models", name), f"differs from {other!r} in capitals alone; they may share a file")
        if not problems.concerns(("models", name)):
            label = entry["label"] or name
            other = labels.setdefault(label, name)
            if other != name:
                problems.add(("models", name, "label"), f"{label!r} is what {other!r} is called too; give each its own")


def _partition(blocks: Sequence[Sequence[int]], scores: Sequence[Any]) -> bool:
    ends = [0, *(end for _, end in blocks)]
    return all(a == first < end for a, (first, end) in zip(ends, blocks, strict=False)) and ends[-1] == len(scores)


# How a value (or each item of a list) must fit another key's value: the test, and the wording of what is allowed.
_ITEM_RELATIONS = {
    "x-divides": (lambda a, b: b % a == 0, "a divisor of"),
    "x-multiple-of": (lambda a, b: a % b == 0, "a multiple of"),
    "x-at-most": (lambda a, b: a <= b, "at most"),
    "x-below": (lambda a, b: a < b, "below"),
    "x-among": (lambda a, b: a in b, "one of"),
    "x-differs-from": (lambda a, b: a != b, "anything but"),
}
_LIST_RELATIONS = {
    "x-as-many-as": (lambda a, b: len(a) == len(b), "as many as in"),
    "x-partitions": (_partition, "blocks that follow one another from 0 to the number of"),
}
_STEPS = {
    "x-increasing": (lambda a, b: b > a, "each above the one before"),
    "x-doubling": (lambda a, b: b == 2 * a, "each twice the one before"),
    "x-multiplying": (lambda a, b: a < b and b % a == 0, "each a multiple of the one before"),
}


def _others(value: Any, path: Sequence[str], flat: bool) -> list[Any]:
    """The values at a dotted path below `value`, through lists on the way, and through one at its end where `flat`."""
    if isinstance(value, list) and (path or flat):
        return [found for item in value for found in _others(item, path, flat)]
    if not path:
        return [value]
    return _others(value[path[0]], path[1:], flat) if isinstance(value, Mapping) and path[0] in value else []


def _relations(value: Any, part: Schema, key: Key, problems: _Problems) -> None:
    """Keys that must fit each other, as the schema's x- keywords say, where they are right on their own."""
    if isinstance(value, list):
        for number, item in enumerate(value):
            _relations(item, _child(part, number), (*key, number), problems)
    if not isinstance(value, Mapping):
        return
    if part.get("x-architecture") and not problems.concerns(key):
        try:
            from_architecture("", dict(value))
        except ModelError as error:
            problems.add((*key, *error.key.split(".")), str(error))
    for name, item in value.items():
        below, child = (*key, name), _child(part, name)
        _relations(item, child, below, problems)
        if problems.concerns(below):
            continue
        for relation, (fits, words) in _STEPS.items():
            if child.get(relation) and not all(fits(a, b) for a, b in itertools.pairwise(item)):
                problems.add(below, f"{_shown(item)} does not rise so; allowed: {words}")
        for relation, (fits, words) in {**_ITEM_RELATIONS, **_LIST_RELATIONS}.items():
            paths = child.get(relation, [])  # of each item, or one for all
            single = relation in _ITEM_RELATIONS and isinstance(item, list)
            for number, a in enumerate([] if item is None else item if single else [item]):
                path = paths if isinstance(paths, str) else paths[number] if paths else ""
                if not path or problems.concerns((*key, path.split(".")[0])):
                    continue
                for b in _others(value, path.split("."), flat=relation not in ("x-among", *_LIST_RELATIONS)):
                    if not fits(a, b):
                        place = (*below, number) if single else below
                        problems.add(place, f"{_shown(a)} does not fit {path} {_shown(b)}; allowed: {words} {path}")


def _model(name: str, entry: Mapping[str, Any], problems: _Problems) -> dict[str, Any] | None:
    """A model's entry as the jobs want it, or None (and a problem) where it describes no decoder."""
    key: Key = ("models", name)
    made: dict[str, Any] = {"label": entry["label"] or name, "hf_config": None, "notes": []}
    if entry.get("architecture"):
        return {**made, "spec": from_architecture(name, entry["architecture"]).to_json()}
    read = _published(name, entry["hf_config"], (*key, "hf_config"), problems)
    return {**made, **read} if read else None


def _published(name: str, path: str, key: Key, problems: _Problems) -> dict[str, Any] | None:
    """What a config.json says of the model `name`, or None (and a problem at `key`) where it describes no decoder."""
    try:
        raw = _json(path)
        spec, notes = huggingface.read(name, raw)
        _within(spec)
        if spec.outputs is not None:
            raise ModelError(
                "architectures", f"{raw['architectures'][0]} has no language head, which every ledger counts"
            )
    except ModelError as error:
        where = f"{path}: {error.key}: " if error.key else f"{path}: "
        problems.add(key, f"{where}{error}")
        return None
    return {"hf_config": raw, "spec": spec.to_json(), "notes": list(notes)}


def _own(path: str, problems: _Problems) -> dict[str, Any]:
    """The user's own model, {name: entry}, named after its file, or after the folder of a file named config.json."""
    file = Path(path)
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", file.absolute().parent.name if file.stem == "config" else file.stem)
    read = _published(name or "own", path, ("own",), problems)
    return {name or "own": {"label": name or "own", **read}} if read else {}


def _json(path: str) -> dict[str, Any]:
    """The mapping in a JSON file. Raises ModelError where it is missing or something else."""
    try:
        return huggingface.parsed(limits.text(path))
    except FileNotFoundError:
        known = sorted(str(file) for file in Path(path).parent.glob("*.json"))
        raise ModelError("", f"no such file{_named(path, known) if known else ''}") from None
    except OSError as error:
        raise ModelError("", (error.strerror or str(error)).lower()) from None
    except UnicodeDecodeError:
        raise ModelError("", "not a text file; wanted is a model's config.json") from None


def _within(spec: ModelSpec) -> None:
    """Hold a spec against the ranges of the schema's architecture keys, so that no job meets absurd sizes."""
    ranges = resolved({"$ref": "#/$defs/architecture"})["properties"]
    for name, value in (
        ("layers", spec.depth),
        ("d_model", spec.d_model),
        ("vocabulary", spec.vocabulary),
        ("context", spec.context),
    ):
        part = resolved(ranges[name])
        if not part["minimum"] <= value <= part["maximum"]:
            raise ModelError(name, f"{value} is out of range; allowed: {allowed(part)}")


def _contexts(config: Mapping[str, Any], problems: _Problems) -> None:
    """A training on sequences longer than the model's context is none of that model."""
    for name, run in config["training_runs"].items():
        key = ("training_runs", name, "context")
        if problems.concerns(key[:2]) or problems.concerns(("models", run["model"])) or not run.get("context"):
            continue
        most = config["models"][run["model"]]["spec"]["context"]
        if run["context"] > most:
            problems.add(key, f"{run['context']} is longer than {run['model']}'s context; allowed: at most {most}")


def _layouts(config: Mapping[str, Any], problems: _Problems) -> None:
    """Each model of a layout must have enough to spread, and a context as long as the workload."""
    for name, given in config["layouts"].items():
        key: Key = ("layouts", name)
        if problems.concerns(key) or problems.concerns(("workloads", given["workload"])):
            continue
        load, recipe = config["workloads"][given["workload"]], config["recipes"][given["recipe"]]
        degrees = {field.name: given[field.name] for field in fields(Layout)}
        for number, model in enumerate(given["models"]):
            if problems.concerns(("models", model)) or problems.concerns(("recipes", given["recipe"])):
                continue
            spec = ModelSpec.from_json(config["models"][model]["spec"])
            if recipe["lora"]:
                problems.add((*key, "recipe"), f"{given['recipe']} trains adapters; allowed: recipes without lora")
                break
            if load["context"] > spec.context:
                problems.add((*key, "workload"), f"{load['context']} positions are more than {model}'s {spec.context}")
                continue
            try:
                for _ in held(spec, Layout(**degrees), load["batch"], load["context"], recipe, given["cache_dtype"]):
                    pass
            except ModelError as error:
                problems.add((*key, "models", number), f"{model}: {error}")


STUDIED = "plain pre-norm layers, all positions seen, even head width"


def unstudied(spec: ModelSpec) -> str:
    """What a model has that a study cannot do; empty where it can do all."""
    own, attentions = [layer for _, layer in spec.layers], [a for _, a in spec.attentions()]
    found = {
        "layers without attention": len(attentions) < len(spec.kinds()),
        "layers without a feed-forward": any(layer.feedforward.kind == "none" for layer in own),
        "latent attention": any(a.latent for a in attentions),
        "attention sinks": any(a.sinks for a in attentions),
        "a window": any(a.window is not None for a in attentions),
        "gated attention": any(a.gated for a in attentions),
        "norms of queries and keys": any(a.query_key_norm != "none" for a in attentions),
        "an odd head width": any(a.head_dim % 2 for a in attentions),
        "experts": any(layer.feedforward.experts for layer in own),
        "parallel layers": any(layer.parallel or layer.norms != 2 for layer in own),
        "norms behind its layers": any(layer.post_norm for layer in own) or not spec.final_norm,
        "a norm behind the embedding": spec.embedding_norm,
        "an embedding of another width": spec.embedding_width not in (0, spec.d_model),
        "position rows beyond its context": spec.position_rows > spec.context,
        "a bias of its head": spec.head_bias,
    }
    return ", ".join(name for name, there in found.items() if there)


def _completed(config: Mapping[str, Any], problems: _Problems) -> None:
    """Architectures that a job completes must be decoders with what it adds."""
    rest = {"layers": 1, "vocabulary": 2, "context": 2, "positions": "rope", "norm": "rmsnorm", "feedforward": "gelu"}

    def hold(key: Key, keys: Mapping[str, Any]) -> None:
        try:
            from_architecture("", {**rest, **keys})
        except ModelError as error:
            problems.add(key, f"{error.key} {error}")

    for kind, name in (("verification", n) for n in ("head_count", "permutation", "causal_prefix")):
        part, key = config[kind].get(name), (kind, name)
        if part is None or problems.concerns(key):
            continue
        if name == "head_count":
            for number, heads in enumerate(part["heads"]):
                hold((*key, "heads", number), {**part["architecture"], "heads": heads})
            continue
        hold((*key, "architecture", "heads"), part["architecture"])
    extension, key = config["study"].get("extension"), ("study", "extension")
    if extension and not problems.concerns(key):
        turned = {"rope", "modern"} & set(extension["extensions"])
        hold((*key, "sizes", "heads"), {**extension["sizes"], "positions": "rope" if turned else "none"})
    prefix, key = config["verification"].get("causal_prefix"), ("verification", "causal_prefix")
    if prefix and not problems.concerns(key):
        text, length, share = len(prefix["text"]), prefix["training"]["length"], prefix["training"]["held_out"]
        cut = round(text * (1 - share))
        if cut <= length or text - cut <= 2 * length:
            words = (
                f"a share that leaves more than {length} characters to train on, and more than {2 * length} held out"
            )
            problems.add((*key, "training", "held_out"), f"{share} leaves {cut} and {text - cut}; allowed: {words}")


def _studies(config: Mapping[str, Any], problems: _Problems) -> None:
    """What is trained must fit its model, and what is done to the checkpoint must fit that."""

    def hold(key: Key, value: int, fits: bool, allowed: str) -> None:
        if not fits and not problems.concerns(key):
            problems.add(key, f"{value} does not fit; allowed: {allowed}")

    study = {name: part for name, part in config["study"].items() if not problems.concerns(("study", name))}
    for name in {"checkpoint", "extension"} & set(study):
        model, source, key = study[name]["models"][0], study[name]["source"], ("study", name)
        if problems.concerns(("models", model)):
            continue
        spec = config["models"][model]["spec"]
        if lacks := unstudied(ModelSpec.from_json(spec)):
            problems.add((*key, "models", 0), f"{model} has {lacks}, which no study can do; allowed: {STUDIED}")
            continue
        sizes = study[name].get("sizes", spec)
        tokens = source["symbols"] + source["keys"] + source["values"] + source["keys"] * source["values"]
        words = f"symbols + keys + values + keys · values at most the vocabulary, {sizes['vocabulary']}"
        hold((*key, "source"), tokens, tokens <= sizes["vocabulary"], words)
        length, context = study[name]["programme"]["length"], sizes["context"]
        hold((*key, "programme", "length"), length, length <= context, f"at most {context}, the model's context")
        if name == "extension":
            continue
        count = totals(ModelSpec.from_json(spec))[0]
        hold((*key, "models", 0), count, count <= TRAINED, f"{TRAINED} parameters to be trained here, {model} has more")
        heads, held_out = spec["layers"][0][1]["mixer"]["kv_heads"], study[name]["held_out_data"]["sequences"]
        for kind, job in (("study", "classification"), ("verification", "checkpoint")):
            use = config[kind].get(job)
            if use is None or problems.concerns((kind, job)):
                continue
            given = {"kv_heads": use["kv_heads"], "equal": use.get("equal", heads)}
            for part, value in given.items():
                for number in value if isinstance(value, list) else [value]:
                    hold((kind, job, part), number, heads % number == 0, f"the divisors of {model}'s {heads}")
            for part, most in (("tokens", length), ("sequences", held_out)):
                value = use["bounded"][part]
                hold((kind, job, "bounded", part), value, value <= most, f"at most {most}, as in study.checkpoint")


def _sweeps(config: Mapping[str, Any], problems: _Problems) -> None:
    """A sweep must have something to run over, a front two columns, and a question one column at least."""
    for name, sweep in config["sweeps"].items():
        key: Key = ("sweeps", name)
        if problems.concerns(key):
            continue
        if not sweep["models"] and not sweep["architecture"]:
            problems.add(key, "runs over nothing; give models, architecture or both")
        front = sweep["front"] or {"least": [], "most": [], "at_most": {}}
        if sweep["front"] and len(front["least"] + front["most"]) != 2:
            problems.add(
                (*key, "front"), f"{len(front['least'] + front['most'])} columns in least and most; allowed: 2"
            )
        for question, asked in sweep["questions"].items():
            if not asked["least"] and not asked["most"]:
                problems.add((*key, "questions", question), "asks for nothing; give least, most or both")
        stated = {"state_bytes", "state_bytes_per_device", *([] if sweep["devices"] else ["devices"])}
        every = [front, *sweep["questions"].values()]
        asked_for = {part for asked in every for part in (*asked["least"], *asked["most"], *asked["at_most"])}
        asked_for |= set((sweep["map"] or {}).values())
        if not sweep["recipes"] and (lacking := sorted(stated & asked_for)):
            problems.add(key, f"{lacking[0]} is asked for, and there is no state without recipes; give recipes")


def load(
    config: Mapping[str, Any],
    files: Sequence[str | Path],
    arguments: Mapping[str, Any] | None = None,
    origin: str = COMMAND_LINE,
) -> dict[str, Any]:
    """The checked and normalised config.

    `config` is what Snakemake merged; `files` are the files it was merged from, in that order, later ones winning;
    `arguments` the values of `--config`, which win over them all (without it, what no file sets is taken for theirs);
    `origin` what messages call those.
    A model comes back as {"spec": ModelSpec as JSON, "hf_config": its config.json or None, "label", "notes"}.
    Raises ConfigError with every problem.
    """
    problems = _Problems(_Sources(files, arguments, origin))
    removed = {name: _left_out(config, name) for name in _collections()}
    normal = _normal(config, schema(), (), problems)
    _schema_problems(normal, problems, schema())
    entries = [normal.get(name) for name in (*_collections(), "report")]
    if all(isinstance(entry, Mapping) for entry in entries):
        _references(normal, removed, problems)
        _relations(normal, schema(), (), problems)
        _alike(normal["models"], problems)
        for name, entry in normal["models"].items():
            if not problems.concerns(("models", name)) and (made := _model(name, entry, problems)):
                normal["models"][name] = made
        if normal["own"] is not None and not problems.concerns(("own",)):
            normal["own"] = _own(normal["own"], problems)
        _contexts(normal, problems)
        _layouts(normal, problems)
        _completed(normal, problems)
        _studies(normal, problems)
        _sweeps(normal, problems)
    problems.stop()
    return dict(normal)


def laid_over(path: Path, over: Mapping[str, Any]) -> tuple[dict[str, Any], list[Path], dict[str, Any], str]:
    """The config file `path` with another workflow's `over` laid on it, as `load` wants it; files in it are found from there."""

    def laid(base: Any, top: Any) -> Any:
        if not isinstance(base, Mapping) or not isinstance(top, Mapping):
            return top
        return {**base, **{key: laid(base[key], value) if key in base else value for key, value in top.items()}}

    read(path)
    base = yaml.load(limits.text(path), _Loader)
    for model in base["models"].values():
        if "hf_config" in model:
            model["hf_config"] = str(path.parent / model["hf_config"])
    return laid(base, over), [path], dict(over), MODULE


def section(path: Path, name: str) -> dict[str, Any]:
    """One section of a config file, checked and normalised by itself; empty where it is not there.

    Raises ConfigError with every problem.
    """
    problems = _Problems(_Sources([path], None))
    loaded = yaml.load(limits.text(path), _Loader).get(name)
    part = {**schema(), "properties": {name: schema()["properties"][name]}, "required": []}
    if loaded is None:
        return {}
    normal = _normal({name: loaded}, part, (), problems)
    _schema_problems(normal, problems, part)
    if not problems.found:
        _relations(normal, part, (), problems)
    problems.stop()
    return dict(normal[name])


def arguments(entries: Iterable[str], files: Iterable[str | Path]) -> None:
    """Hold what --config and --configfile name against what a config is, before Snakemake reads it.

    Raises ConfigError with every problem.
    """
    found = []
    for entry in entries:
        key, equals, _ = entry.partition("=")
        if not equals or key not in schema()["properties"]:
            shown = entry if len(entry) <= 60 else entry[:57] + "…"
            named = _named(key, schema()["properties"])
            found.append(f"{COMMAND_LINE} {shown!r}: wanted is KEY=VALUE with a key of the config{named}")
    for path in files:
        try:
            read(path)
        except ConfigError as error:
            found.append(str(error))
    if found:
        raise ConfigError("\n".join(found))


def sources(workflow: Any) -> tuple[list[Path], dict[str, Any]]:
    """The files and the `--config` values of a Snakemake workflow, as `load` wants them.

    Snakemake lists the files of --configfile first, though they win over the workflow's own.
    """
    overlays = list(workflow.overwrite_configfiles)
    own = [] if workflow.config_settings.replace_workflow_config else list(workflow.configfiles[len(overlays) :])
    return [Path(path) for path in (*own, *overlays)], dict(workflow.config_settings.config)
