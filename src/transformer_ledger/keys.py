"""The keys of one `config.json`: each read is checked, each default that is taken is noted, and what was read is kept."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from transformer_ledger.model import Attention, ModelError

LARGEST = 2**31 - 1
DIGITS = 100  # of an integer; Python refuses to read far longer ones
MOST_LAYERS = 10_000

# Keys for which null is a value: no window, no projection of the query, as many as there are attention heads, as expand says.
NULL_SAYS = ("sliding_window", "attention_chunk_size", "q_lora_rank", "num_key_value_heads", "mamba_d_ssm")

# Names that some family gives to one size. A name of another family is not read by this one, so it must not stand alone.
SAME = (
    ("hidden_size", "n_embd", "n_embed", "d_model", "dim"),
    ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    ("num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads"),
    ("num_local_experts", "num_experts", "n_routed_experts"),
    ("num_experts_per_tok", "experts_per_token"),
)

OLDER = {"mamba": "linear_attention", "attention": "full_attention"}
"""Kinds of layers by the names that older files give them."""


class NoClosedForm(ModelError):
    """A file that may well be a decoder, but has no closed form here."""


@dataclass
class Keys:
    """The keys of one file. Every reader takes a name or its variants, and a default that it notes when it is used."""

    config: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    read: set[str] = field(default_factory=set)  # names asked for, whether or not the file has them

    def _find(self, names: str | Sequence[str]) -> tuple[str, Any]:
        names = (names,) if isinstance(names, str) else tuple(names)
        self.read.update(names)
        found = {name: self.config[name] for name in names if name in self.config}
        if len({repr(value) for value in found.values() if value is not None}) > 1:
            raise ModelError(next(iter(found)), f"{found}: variants of one key with different values")
        for name, value in found.items():
            if value is not None:
                return name, value
        return names[0], None

    def found(self, names: Sequence[str]) -> Any:
        """The value under one of some names, as the file has it."""
        return self._find(names)[1]

    def get(self, name: str, default: Any = None) -> Any:
        """The value under a name, as the file has it."""
        self.read.add(name)
        return self.config.get(name, default)

    def default(self, name: str, value: Any, why: str = "the family's default") -> Any:
        """Use `value` for a key that the file leaves out, and say so."""
        self.notes.append(f"{name}: not in the file, taken as {value!r} ({why})")
        return value

    def integer(self, names: str | Sequence[str], default: int | None, low: int = 1, high: int = LARGEST) -> int:
        """An integer in [low, high]; null counts as left out. Raises ModelError, also where there is no default."""
        name, value = self._find(names)
        if value is None:
            if default is None:
                raise ModelError(name, "missing; expected an integer")
            return int(self.default(name, default))
        if isinstance(value, bool) or not isinstance(value, int):
            raise ModelError(name, f"{value!r} is not an integer")
        if not low <= value <= high:
            raise ModelError(name, f"{value}; allowed: {low} to {high}")
        return value

    def optional(self, name: str, default: int | None, low: int = 1) -> int | None:
        """An integer from `low`, or None where the file says null; the default, noted, where the key is left out."""
        self.read.add(name)
        if name not in self.config:
            return int(self.default(name, default)) if default is not None else self.default(name, None)
        return None if self.config[name] is None else self.integer(name, None, low)

    def window(self, default: int | None) -> int | None:
        """Positions that a windowed layer sees; of one, transformers' dynamic cache lets go of nothing."""
        return self.optional("sliding_window", default, low=2)

    def derived(self, names: str | Sequence[str], value: int, why: str) -> int:
        """An integer that another key decides, noted, where the file leaves it out or says null."""
        name, found = self._find(names)
        return int(self.default(name, value, why)) if found is None else self.integer(names, None)

    def flag(self, name: str, default: bool) -> bool:
        """true or false."""
        value = self.get(name)
        if value is None:
            return bool(self.default(name, default))
        if not isinstance(value, bool):
            raise ModelError(name, f"{value!r} is neither true nor false")
        return value

    def number(self, names: str | Sequence[str], default: float, most: float = 1e15) -> float:
        """A positive number up to `most`."""
        name, value = self._find(names)
        if value is None:
            return float(self.default(name, default))
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= sys.float_info.max:
            raise ModelError(name, f"{value!r} is not a positive number")
        if value > most:
            raise ModelError(name, f"{value!r} is out of range; allowed: above 0 and at most {most:g}")
        return float(value)

    def share(self, name: str, default: float) -> float:
        """A number from 0 to below 1; a default above 0 is noted."""
        value = self.get(name)
        if value is None:
            return float(self.default(name, default)) if default else 0.0
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            raise ModelError(name, f"{value!r} is no share; allowed: a number from 0 to below 1")
        return float(value)

    def foreign(self) -> None:
        """Refuse a size under a name that only other families read: the family would take its default instead."""
        for names in SAME:
            own = [name for name in names if name in self.read]
            given = [name for name in names if self.config.get(name) is not None]
            if own and given and not self.read.intersection(given):
                raise ModelError(given[0], f"not a key of {self.config['model_type']}, which has {' or '.join(own)}")

    def opened(self, name: str) -> None:
        """Read the keys of a mapping as keys of the file, by names with a dot: name.key."""
        inner = self.get(name) or {}
        if not isinstance(inner, dict):
            raise ModelError(name, f"{inner!r} is not a mapping")
        self.config |= {f"{name}.{key}": value for key, value in inner.items()}

    def fixed(self, name: str, *allowed: Any) -> None:
        """Refuse any value but those that the ledgers know how to count; a key left out means the first."""
        value = self.get(name, allowed[0])
        if value not in allowed:
            raise NoClosedForm(name, f"{value!r} is not counted here; allowed: {', '.join(map(repr, allowed))}")

    def rope_base(self, default: float) -> float:
        """Base of the rotary frequencies: in `rope_parameters` in new files, at the top in old ones."""
        parameters = self.get("rope_parameters")
        if isinstance(parameters, dict):
            nested = parameters.get("full_attention", parameters)
            if isinstance(nested, dict) and "rope_theta" in nested:
                return Keys(nested, self.notes).number("rope_theta", default)
        return self.number(("rope_theta", "rotary_emb_base"), default)

    def key_value_heads(self, default: int | None, heads: int) -> int:
        """Key/value heads: as many as attention heads where the file says null, or the family has no other default."""
        if default is None or self.get("num_key_value_heads", 0) is None:
            return self.derived("num_key_value_heads", heads, "as many as attention heads")
        return self.integer("num_key_value_heads", default)

    def dividing(self, d: int, heads: int, wanted: bool) -> None:
        """Refuse heads that do not divide the width where the family wants it, whatever its head_dim is."""
        if wanted and d % heads:
            kind = self.config["model_type"]
            raise ModelError("num_attention_heads", f"{heads} does not divide the width {d}, as {kind} wants it to")

    def heads(self, d: int, heads: int, kv_heads: int, head_dim: int | None = None) -> Attention:
        """Heads that fill the width unless `head_dim` says otherwise."""
        if head_dim is None:
            if d % heads:
                raise ModelError("num_attention_heads", f"{heads} does not divide the width {d}; no head_dim")
            head_dim = d // heads
        if heads % kv_heads:
            raise ModelError("num_key_value_heads", f"{kv_heads} does not divide the {heads} attention heads")
        return Attention(heads, kv_heads, head_dim)

    def depth(self, default: int, *others: str) -> int:
        """Number of layers."""
        return self.integer(("num_hidden_layers", *others), default, 1, MOST_LAYERS)

    def layer_types(self, layers: int, other: str, has: Callable[[int], bool], why: str) -> list[bool]:
        """For each layer whether it is of the `other` type, not full_attention: `layer_types`, or the family's pattern,
        noted."""
        types = self.get("layer_types")
        if types is None:
            pattern = [has(i) for i in range(layers)]
            self.notes.append(f"layer_types: not in the file, {sum(pattern)} of {layers} layers {other} ({why})")
            return pattern
        if not isinstance(types, list) or len(types) != layers:
            raise ModelError("layer_types", f"{types!r} is not a list of {layers} names")
        return [kind == other for kind in self.named("layer_types", types, "full_attention", other)]

    def named(self, name: str, kinds: Sequence[Any], *allowed: str) -> list[str]:
        """Kinds of layers by their newer names. Raises ModelError where one is not `allowed`."""
        found = [OLDER.get(str(kind), str(kind)) for kind in kinds]
        if unknown := sorted(set(found) - set(allowed)):
            raise ModelError(name, f"{', '.join(unknown)}; allowed: {', '.join(allowed)}")
        return found

    def numbers(self, name: str, low: int, high: int) -> list[int] | None:
        """A list of integers in [low, high], or None where the key is left out or null."""
        given = self.get(name)
        if given is None:
            return None
        if not isinstance(given, list) or not all(isinstance(i, int) and not isinstance(i, bool) for i in given):
            raise ModelError(name, f"{given!r} is not a list of integers")
        if wrong := [i for i in given if not low <= i <= high]:
            raise ModelError(name, f"{wrong[0]} is out of range; allowed: {low} to {high}")
        return given
