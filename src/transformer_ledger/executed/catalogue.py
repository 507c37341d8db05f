"""The page docs/families.md: every family that can be sized, and what is checked of each. `make families` writes it.

The second table is tried, not listed: each other causal language model of the installed transformers, with its class's own
sizes and few layers, is built on the meta device and counted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping

from transformer_ledger import headers
from transformer_ledger.families import FAMILIES
from transformer_ledger.huggingface import KNOWN
from transformer_ledger.ledger import parameters
from transformer_ledger.model import ModelError
from transformer_ledger.report import configurations
from transformer_ledger.rotary import OTHER_NAMES
from transformer_ledger.shrunken import PUBLIC
from transformer_ledger.tables import TableError

HEAD = """# Families that `size` knows

`make families` writes this page.

## Exact

A closed form gives parameters, operations, cache and training state. In each run, our decoder and transformers both execute a small
model of each of these families. Each figure is compared with what at least one of them holds or runs, or with a
second derivation. The columns say what else is checked or possible:

- **function**: our decoder computes the same logits as transformers. *Experts silent*: compared with the experts' output set to
  zero in both models.
- **activations**: the bytes that transformers saves for the backward pass are predicted too.
- **checkpoint**: `size` compares the tensors of a checkpoint folder by name; for families
  without this mark it compares only their total size.
- **calculator**: the calculator on the page reads a pasted `config.json` of this family.

| model_type | small models | parameters of one | function | activations | checkpoint | calculator |
|---|---:|---:|---|---|---|---|
"""
COUNTED = """
## Counted, no closed form

`size` builds the model of any other family with transformers, without weights, and counts it. We tried every causal language model of
transformers {version}, with the default sizes of its class and few layers. For {good} more families this works:

{names}

For {bad} more families it fails, with these messages:

{failed}
"""
LAYERS, MORE_LAYERS, CONTEXT = 2, 8, 8


def exact() -> str:
    """The first table, a row a family."""
    pages, lines = configurations.families(), []
    for kind in KNOWN:
        own = {name: family for name, family in FAMILIES.items() if family.config["model_type"] == kind}
        name, family = next(iter(own.items()))
        same = any(not one.other_function for one in own.values())
        function = "" if not same else "experts silent" if family.silent else "yes"
        marks = [kind in PUBLIC, kind in headers.NAMES, kind in pages]
        cells = [kind, str(len(own)), f"{parameters.totals(family.read(name))[0]:,}", function]
        lines.append(f"| {' | '.join([*cells, *('yes' if mark else '' for mark in marks)])} |")
    aliases = ", ".join(f"`{name}` as `{kind}`" for name, kind in sorted(OTHER_NAMES.items()))
    return HEAD + "\n".join(lines) + f"\n\nRead under another family's name: {aliases}.\n"


def _tried(kind: str, count: int) -> str:
    """Why transformers' model of a family, with so many layers, is not counted; "" where it is."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    from transformer_ledger.executed import counted

    try:
        names = [
            name for name in ("num_hidden_layers", "n_layer", "num_layers") if hasattr(CONFIG_MAPPING[kind](), name)
        ]
        counted.compute(kind, {"model_type": kind, **dict.fromkeys(names[:1], count)}, 1, CONTEXT, False)
    except (ModelError, TableError) as error:
        return str(error)
    except Exception as error:  # the class's own default configuration
        return f"{type(error).__name__}: {error}"
    return ""


def others(kinds: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(family, what became of it), for each of `kinds`; "" where it was counted."""
    for kind in kinds:
        why = _tried(kind, LAYERS)
        if "get_seq_length" in why:  # of a hybrid, no layer so far has keys and values
            why = _tried(kind, MORE_LAYERS)
        yield kind, why
        print(kind, file=sys.stderr)  # it takes minutes


def page(found: Mapping[str, str]) -> str:
    """The whole page, with what became of each family that has no closed form."""
    import transformers

    good, bad = [k for k, why in found.items() if not why], {k: why for k, why in found.items() if why}
    failed = "\n".join(f"- `{kind}`: {' '.join(why.split())[:140]}" for kind, why in bad.items())
    names = ", ".join(f"`{kind}`" for kind in good)
    return exact() + COUNTED.format(
        version=transformers.__version__, good=len(good), names=names, bad=len(bad), failed=failed
    )


if __name__ == "__main__":
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    sys.stdout.write(page(dict(others(sorted(set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) - set(KNOWN))))))
