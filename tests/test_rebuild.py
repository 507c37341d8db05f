"""Exact rebuilds: each edit of the config, a source or the page's parts, and the jobs that a dry run then lists."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
import yaml
from conftest import SMALL, snakemake

LEDGERS = ["parameters", "training_state", "kv_cache", "matmul", "activations", "agreement", "fit", "conventions"]
LEDGERS += ["layout", "training_compute"]  # all of them read the executions
MADE = ["families", "published"]  # ledgers of models that are no setting
SWEEP = {"sweep/decoders/0000", "answers/decoders"}
TAIL = {"provenance", "summary", "ro-crate-metadata"}
PAGE = {"report"} | TAIL
CLAIMS = {"claims"} | PAGE


def ledgers(*names):
    return {f"ledger/{name}" for name in names}


@pytest.fixture(scope="module")
def project(finished, tmp_path_factory) -> Path:
    """The finished run again, its overlay merged into config.yaml, so that an edit is an edit of one file."""
    folder = tmp_path_factory.mktemp("rebuild") / "project"
    shutil.copytree(finished, folder)
    config = merged(*(yaml.safe_load((folder / name).read_text()) for name in ("config.yaml", "config.minimal.yaml")))
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    assert dry(folder) == set()
    return folder


def merged(base, over):
    """What Snakemake makes of a config file and an overlay; an entry set to null goes."""
    out = dict(base)
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(out.get(key), dict):
            out[key] = merged(out[key], value)
        elif value is None and isinstance(out.get(key), dict):
            out.pop(key)
        else:
            out[key] = value
    return out


def dry(folder: Path) -> set[str]:
    """The jobs that a dry run lists, by output."""
    done = snakemake(folder, "--dry-run", "--printshellcmds", "--workflow-profile", "none")
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    found = set(re.findall(r"--output results/(\S+?)\.\w+ ", text))
    assert found or "Nothing to be done" in text, text
    return found


def edit_config(change):
    """An edit of config.yaml by a function of the loaded config."""

    def edit(folder: Path):
        path = folder / "config.yaml"
        config = yaml.safe_load(path.read_text())
        change(config)
        path.write_text(yaml.safe_dump(config, sort_keys=False))

    return edit


def put(*keys, value):
    def change(config):
        for key in keys[:-1]:
            config = config[key]
        assert repr(config[keys[-1]]) != repr(value), "the edit must change something"
        config[keys[-1]] = value

    return edit_config(change)


def put_new(key, name, value):
    return edit_config(lambda config: config[key].update({name: value}))


def drop(key, name):
    return edit_config(lambda config: config[key].pop(name))


def replace(path: Path, old: str, new: str):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def rewrite_json(path: Path):
    path.write_text(json.dumps(reverse(json.loads(path.read_text()))))


def swap(*keys, one, other):
    def change(config):
        for key in keys:
            config = config[key]
        config[one], config[other] = config[other], config[one]

    return edit_config(change)


def reverse(value):
    return {key: reverse(value[key]) for key in reversed(value)} if isinstance(value, dict) else value


def reversed_config(folder: Path):
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(reverse(yaml.safe_load(path.read_text())), sort_keys=False))


def append(name: str, text: str):
    """Text added to the end of a file."""

    def edit(folder: Path):
        path = folder / name
        assert path.exists(), name
        path.write_text(path.read_text() + text)

    return edit


def code(module: str):
    """One statement more in a module."""
    return append(f"src/transformer_ledger/{module}.py", "\n_EDITED = True\n")


def model(name: str, *verifications: str):
    """What hangs on one model: its execution, what reads models, and the verifications that name it."""
    return {f"execution/{name}", *ledgers(*LEDGERS), "formulas", *(f"verification/{one}" for one in verifications)}


EXECUTIONS = {f"execution/{name}" for name in ("teaching", "modern", "section-7", "gpt2")}
# Verifications that name a model read its execution table, so they follow when executions are made anew.
READ_EXECUTIONS = {"verification/parameter_rule", "verification/training_compute", "verification/training_state"}
TRAINED = {"study/loss", "study/classification", "verification/checkpoint", "verification/classification"}
NUMERICS = (
    {  # verifications that import the NumPy decoder
        f"verification/{name}"
        for name in ("head_count", "output_projection", "permutation", "causal_prefix", "rope_values", "grouped_query")
    }
    | {f"verification/{name}" for name in ("score_scale", "rope_relative", "parameter_rule")}
    | {"verification/gated_feedforward", "verification/attention_schedules", "study/extension"}
)

# table: the first picture that its rows are drawn in
PICTURES = {
    "verification/output_projection": "figure/heads",
    "verification/score_scale": "figure/saturation",
    "verification/rope_precision": "figure/rotation-error",
    "ledger/parameters": "figure/parameters",
    "experiment/rope_dot_product": "figure/rope",
    "experiment/blocked_softmax": "figure/softmax",
    "study/loss": "figure/loss",
    "study/extension": "figure/extension-curve",
    "study/attention": "figure/attention-error",
    "timing/attention": "timing/figure/attention-time",
    "timing/matmul_scaling": "timing/figure/scaling",
}

# name: (edit, the jobs that must run, beside the pictures of what they make).
# The sets are written from what the jobs mean, not from the fingerprint.
EDITS = {
    # models and what is run on them
    "a model's depth": (
        put("models", "modern", "architecture", "layers", value=5),
        model("modern", "training_compute") | CLAIMS,
    ),
    "a model that a verification names": (
        put("models", "section-7", "architecture", "d_ff", value=176),
        model("section-7", "parameter_rule") | CLAIMS,
    ),
    "a model of a verification only": (
        put("models", "teaching", "architecture", "heads", value=4),
        model("teaching", "training_state") | TRAINED | {"study/extension"} | CLAIMS,
    ),
    "two values of one model swapped": (
        swap("models", "modern", "architecture", one="heads", other="layers"),
        model("modern", "training_compute") | CLAIMS,
    ),
    "a model's label": (put("models", "section-7", "label", value="Section 7"), {"figure/parameters"} | PAGE),
    "a value inside a config.json": (
        lambda folder: replace(folder / "resources/models/gpt2.json", '"n_layer": 12', '"n_layer": 11'),
        model("gpt2", "parameter_rule") | CLAIMS,
    ),
    "the order of keys in a config.json": (lambda folder: rewrite_json(folder / "resources/models/gpt2.json"), set()),
    "a model more": (
        put_new("models", "small", value={"architecture": SMALL}),
        {"execution/small", *ledgers(*LEDGERS), "formulas"} | PAGE,
    ),
    "a model less": (
        put("models", "gpt2", value=None),
        ledgers(*LEDGERS) | {"verification/parameter_rule", "formulas"} | CLAIMS,
    ),
    "a workload": (
        put("workloads", "b2-t64", "batch", value=3),
        EXECUTIONS | ledgers(*LEDGERS) | READ_EXECUTIONS | CLAIMS,
    ),
    "a workload too long for every model but one": (
        put_new("workloads", "long", value={"batch": 1, "context": 1000}),
        model("gpt2", "parameter_rule") - {"formulas"} | {"verification/training_compute"} | CLAIMS,
    ),
    "a recipe": (
        put("recipes", "adamw-fp32", "optimizer", value="sgd"),
        EXECUTIONS | ledgers(*LEDGERS) | READ_EXECUTIONS | {"formulas"} | CLAIMS,
    ),
    "the cache's dtypes": (
        put("cache_dtypes", value=["fp16"]),
        EXECUTIONS | ledgers(*LEDGERS) | READ_EXECUTIONS | CLAIMS,
    ),
    "a training run": (
        put("training_runs", "modern", "devices", value=2),
        ledgers("training_compute") | {"verification/training_compute", "formulas"} | CLAIMS,
    ),
    # verifications, experiments, timings, the page
    "a verification's seed": (
        put("verification", "embedding_lookup", "seed", value=9),
        {"verification/embedding_lookup"} | CLAIMS,
    ),
    "a verification's list": (
        put("verification", "output_projection", "heads", value=[1, 2, 4]),
        {"verification/output_projection"} | CLAIMS,
    ),
    "the order of a list": (
        put("verification", "permutation", "words", value=["home", "gos", "mossega", "l'", "el"]),
        {"verification/permutation"} | CLAIMS,
    ),
    "a number inside a verification": (
        put("verification", "rope_relative", "base", value=20000.0),
        {"verification/rope_relative"} | CLAIMS,
    ),
    "a verification less": (drop("verification", "norms"), CLAIMS),
    "an experiment's number": (
        put("experiment", "rope_dot_product", "printed", "frequency", value=0.18),
        {"experiment/rope_dot_product", "verification/rope_rotation"} | CLAIMS,
    ),
    "two numbers of an experiment swapped": (
        swap("experiment", "rope_dot_product", "printed", one="m", other="n"),
        {"experiment/rope_dot_product", "verification/rope_rotation"} | CLAIMS,
    ),
    "the other experiment": (
        put("experiment", "blocked_softmax", "printed", "scores", value=[1000, 1001, 999, 1003]),
        {"experiment/blocked_softmax", "verification/online_softmax"} | CLAIMS,
    ),
    "a timing": (put("timing", "norms", "repeats", "spread", value=0.2), {"timing/norms"} | PAGE),
    "the checkpoint's training": (
        put("study", "checkpoint", "programme", "steps", value=361),
        TRAINED | CLAIMS,
    ),
    "a study that nothing reads": (put("study", "attention", "seed", value=1), {"study/attention"} | PAGE),
    "a device": (put("devices", "h100-80gb", "reserve", value=0.2), ledgers("fit") | PAGE),
    "a layout": (put("layouts", "four", "tensor", value=4), model("gpt2", "parameter_rule") - {"formulas"} | CLAIMS),
    "a sweep's sizes": (put("sweeps", "decoders", "batch", value=[1, 3]), SWEEP | PAGE),
    "what a sweep is asked": (
        put("sweeps", "decoders", "map", "value", value="cache_bytes"),
        SWEEP - {"sweep/decoders/0000"} | PAGE,
    ),
    "the page's setting": (put("report", "whatif", "model", value="modern"), {"formulas"} | PAGE),
    # nothing
    "the time limit": (put("execution", "time_limit", value=601), set()),
    "the order of all keys": (reversed_config, set()),
    "a comment in the config": (append("config.yaml", "\n# a remark\n"), set()),
    "2.0 for 2": (put("verification", "embedding_lookup", "seed", value=0.0), set()),
    "a comment in a module": (append("src/transformer_ledger/formulas/matmul.py", "\n# a remark\n"), set()),
    "a touched module": (lambda folder: (folder / "src/transformer_ledger/tables.py").touch(), set()),
    # sources
    "a formula of the cache": (
        code("formulas/kv_cache"),
        ledgers("kv_cache", "fit", "conventions", "agreement", "layout", *MADE)
        | {"verification/grouped_query", "study/extension", "formulas", "figure/parameters"}
        | SWEEP
        | CLAIMS,
    ),
    "a ledger": (code("ledger/training_compute"), ledgers("training_compute", *MADE) | PAGE),
    "the executed decoder's counting": (
        code("executed/count"),
        EXECUTIONS
        | {"families"}
        | ledgers(*LEDGERS, "families")
        | READ_EXECUTIONS
        | {f"verification/{name}" for name in ("matmul_scaling", "teaching_parameters")}
        | CLAIMS,
    ),
    "a verification": (code("verification/embedding_lookup"), {"verification/embedding_lookup"} | CLAIMS),
    "an experiment that a verification uses": (
        code("experiment/rope_dot_product"),
        {"experiment/rope_dot_product", "verification/rope_rotation"} | CLAIMS,
    ),
    "the reference decoder": (
        code("reference/decoder"),
        NUMERICS | TRAINED - {"study/loss"} | {"families"} | ledgers("families") | CLAIMS,
    ),
    "a claim's words": (code("claims/text_a"), CLAIMS),
    "the verdicts' rule": (code("claims/claim"), CLAIMS),
    "what draws the pictures": (code("figure/drawing"), set(PICTURES.values()) | PAGE),
    "one picture": (code("figure/score_scale"), {"figure/saturation"} | PAGE),
    "how the page takes pictures": (code("report/pictures"), PAGE),
    "the summary": (code("summary"), PAGE),
    "the provenance": (code("provenance"), TAIL),
    "the RO-Crate": (code("crate"), {"ro-crate-metadata"}),
    # the page's parts
    "the template": (append("src/transformer_ledger/report/page.html.j2", "<!-- -->\n"), PAGE),
    "the style sheet": (append("src/transformer_ledger/report/style.css", "\n"), PAGE),
    "the words": (append("src/transformer_ledger/report/words.yaml", "\n"), PAGE),
    "the script": (append("src/transformer_ledger/report/script/tables.js", "\n"), PAGE),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_reruns_what_depends_on_it_and_nothing_else(project, name):
    edit, expected = EDITS[name]
    expected = expected | {PICTURES[job] for job in expected & PICTURES.keys()}
    files = [project / "config.yaml", *(project / "resources").rglob("*.json"), *(project / "src").rglob("*.*")]
    before = {
        path: (path.read_bytes(), path.stat()) for path in files if path.is_file() and "__pycache__" not in path.parts
    }
    try:
        edit(project)
        found = dry(project)
        assert (found - expected, expected - found) == (set(), set()), "more jobs than expected, and fewer"
    finally:
        for path, (content, status) in before.items():
            if path.read_bytes() != content or path.stat().st_mtime_ns != status.st_mtime_ns:
                path.write_bytes(content)
                os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
