"""Mutated files: each ends in a config or a model, or in one message that names what is wrong and where.

`python tests/faults/fuzz.py 10000` tries as many, half config.yaml and half config.json, and counts what became of
them; a model that is read must have as many parameters as transformers builds from the same file. A case is its seed:
`python tests/faults/fuzz.py 1 4711` shows one.
"""

import collections
import contextlib
import copy
import io
import json
import random
import re
import resource
import signal
import sys
import tempfile
from pathlib import Path
from unittest import mock

import yaml

from transformer_ledger import config, huggingface, jobs, size

ROOT = Path(__file__).parents[2]
SECONDS, BYTES = 5, 2**30  # of processor and of memory, for one case
WEIRD = (None, True, False, -1, 0, 1, 2.5, 1e-300, 1e300, 10**30, float("nan"), float("inf"), "", "x", "010", "=1+1")
WEIRD += ("\n", "on", "?x", "9" * 5000, "\x00", "é" * 100, [], [[]], [None], [0] * 1000, {}, {"a": {}}, {"": 1})
SNIPPETS = (
    "\t",
    "\x00",
    "\ufeff",
    ": ",
    "- ",
    "{",
    "]",
    '"',
    "'",
    "#",
    "&a ",
    "*a",
    "<<: ",
    "? ",
    "!!python/name:os.system ",
)
SNIPPETS += ("---\n", "%YAML 1.1\n", "|\n", ">", "~", "0x", "1_0", "\r", "\u2028", "no: ", "__use_yte__: true\n")
# A message says where: in which line of which file and at which key, or at which key of a config.json.
OF_YAML = re.compile(r"\S+:\d+: (\S.*: \S|not YAML: |empty|no mapping|more than)|\S+: (not YAML|not a text file)", re.S)


def places(value, path=()):
    """The path of everything in `value`."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def at(value, path):
    for key in path:
        value = value[key]
    return value


def changed(draw, whole):
    """`whole` with one thing in it gone, replaced, renamed, doubled, scaled, exchanged or new."""
    whole = copy.deepcopy(whole)
    path = draw.choice(list(places(whole)))
    inner, key = at(whole, path[:-1]), path[-1]
    how = draw.choice(["gone", "weird", "weird", "renamed", "scaled", "scaled", "exchanged", "wrapped", "new"])
    if how == "gone":
        del inner[key]
    elif how == "renamed" and isinstance(inner, dict):
        inner[key[: draw.randrange(len(key))] + draw.choice("aZ_é .")] = inner.pop(key)
    elif how == "scaled" and type(inner[key]) in (int, float):
        inner[key] *= draw.choice([-1, 2, 3, 7, 10**6, 10**18, 0.5])
    elif how == "exchanged":
        inner[key] = copy.deepcopy(at(whole, draw.choice(list(places(whole)))))
    elif how == "wrapped":
        inner[key] = draw.choice([[inner[key]], {"a": inner[key]}, str(inner[key])])
    elif how == "new" and isinstance(inner, dict):
        inner[draw.choice(["x", "window", "num_experts", "quantization", "layers", "é"])] = draw.choice(WEIRD)
    else:
        inner[key] = draw.choice(WEIRD)
    return whole


def torn(draw, text):
    """`text` with a piece cut out, put in, doubled or moved, or with its end missing."""
    here, there = sorted(draw.randrange(len(text) + 1) for _ in range(2))
    short = min(there, here + draw.randrange(1, 80))
    lines = text.splitlines(keepends=True)
    line = draw.randrange(len(lines))
    return draw.choice(
        [
            lambda: text[:here] + text[short:],
            lambda: text[:here] + draw.choice(SNIPPETS) + text[here:],
            lambda: text[:short] + text[here:],
            lambda: text[:here],
            lambda: "".join(lines[:line] + lines[line : line + 1] * 2 + lines[line + 1 :]),
            lambda: "".join([*lines[:line], " " + lines[line], *lines[line + 1 :]]),
            lambda: "".join(draw.sample(lines, len(lines))),
        ]
    )()


def few_layers(raw):
    """The same model with two layers, for transformers to build it in no time."""
    return {**raw, **{key: 2 for key in ("num_hidden_layers", "n_layer") if key in raw}}


MODELS = {
    path.stem: few_layers(json.loads(path.read_text())) for path in sorted((ROOT / "resources/models").glob("*.json"))
}
CONFIG = (ROOT / "config.yaml").read_text()
LOADED = yaml.load(CONFIG, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


@contextlib.contextmanager
def limited():
    """Ends what takes more than SECONDS of processor time, or BYTES more memory than there are in use."""

    def late(number, frame):
        raise TimeoutError(f"more than {SECONDS} s of processor time")

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    used = int(re.search(r"VmData:\s+(\d+)", Path("/proc/self/status").read_text())[1]) * 1024
    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    resource.setrlimit(resource.RLIMIT_DATA, (used + BYTES, hard))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def of_yaml(draw, path, compare):
    """What becomes of one config.yaml: a config, or messages; each says in which line and at which key."""
    if draw.random() < 0.5:
        path.write_text(torn(draw, CONFIG), newline="")
    else:
        path.write_text(
            yaml.dump(changed(draw, LOADED), Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False)
        )
    try:
        config.arguments([], [path])  # as the profile does, before anything loads it
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
        jobs.canonical(config.load(loaded, [path]))
    except config.ConfigError as error:
        for line in str(error).split("\n"):
            assert OF_YAML.match(line.removeprefix(f"{path.parent}/")), line
            assert len(line) < 3000, line
        return "message"
    return "config"


def of_json(draw, path, compare):
    """What becomes of one config.json: a model whose parameters transformers counts alike, or one message with its key."""
    raw = changed(draw, MODELS[draw.choice(list(MODELS))])
    text = json.dumps(raw, indent=1)
    path.write_text(torn(draw, text) if draw.random() < 0.2 else text)
    said, screen = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(screen):
        code = size.main([str(path), "--json"])
    if code:
        message = said.getvalue().removeprefix(f"{path}: ")
        assert message.count("\n") == 1, message
        assert len(message) < 3000, message
        assert re.match(r"not JSON: |not a mapping|not a text file|[\w.\[\]]+: \S", message), message
        return "message"
    found = json.loads(screen.getvalue())
    if compare:
        from transformer_ledger.executed import transformers_model

        try:
            built = transformers_model.build(huggingface.parsed(path.read_text()))
        except Exception:  # a job says "transformers does not build this config.json" and why
            return "model, not built by transformers"
        assert sum(tensor.numel() for tensor in built.parameters()) == found["parameters"]["total"]
        return "model, counted alike by transformers"
    return "model"


def run(seeds, folder, compare=False):
    """How often what came out, and {seed: what went wrong}. An odd seed is a config.yaml, an even one a config.json."""
    counts, wrong, recipes = collections.Counter(), {}, size.recipes()
    for seed in seeds:
        kind, name = (of_yaml, "config.yaml") if seed % 2 else (of_json, "config.json")
        try:
            with limited(), mock.patch.object(size, "recipes", return_value=recipes):  # read once, not for every case
                counts[f"{name}: {kind(random.Random(seed), Path(folder, name), compare)}"] += 1
        except Exception as error:
            wrong[seed] = f"{name}: {type(error).__name__}: {error}"
    return counts, wrong


if __name__ == "__main__":
    number, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    with tempfile.TemporaryDirectory() as made:
        outcomes, failed = run(range(first, first + number), made, compare=True)
        if number == 1:
            print("".join(path.read_text() for path in Path(made).iterdir()))
    print(*(f"{times:,} {outcome}" for outcome, times in sorted(outcomes.items())), sep="\n")
    print(*(f"seed {seed}: {reason}" for seed, reason in failed.items()), sep="\n")
    sys.exit(bool(failed))
