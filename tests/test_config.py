"""The config: what the shipped one normalises to, and that whatever is wrong in one is named in one clear line."""

import copy
import inspect
import json
import re
from importlib import import_module
from pathlib import Path

import jsonschema
import pytest
import yaml
from conftest import copy_project, snakemake
from snakemake.cli import parse_config
from snakemake.common.configfile import load_configfile
from snakemake.utils import update_config

from transformer_ledger import config, jobs
from transformer_ledger.config import ConfigError
from transformer_ledger.ledger.storage import BITS
from transformer_ledger.ledger.training_state import OPTIMIZERS

ROOT = Path(__file__).parents[1]
SHIPPED = yaml.safe_load((ROOT / "config.yaml").read_text())
# A decoder in one line each, so that a test changes one key: models.b.architecture.layers stands in line 4.
ARCHITECTURE = {
    "layers": 2,
    "d_model": 64,
    "heads": 4,
    "d_ff": 96,
    "vocabulary": 50,
    "context": 32,
    "positions": "rope",
    "norm": "rmsnorm",
    "feedforward": "gated",
}


def architecture(**changes) -> str:
    """An overlay that adds the model b."""
    keys = {**ARCHITECTURE, **changes}
    return "models:\n  b:\n    architecture:\n" + "".join(f"      {key}: {value}\n" for key, value in keys.items())


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Load config.yaml as Snakemake merges it: with an overlay, values of --config, or another text in its place."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "resources").symlink_to(ROOT / "resources")

    def loaded(overlay="", arguments=(), text=None, name="over.yaml"):
        files = [Path("config.yaml")]
        files[0].write_text((ROOT / "config.yaml").read_text() if text is None else text)
        if overlay:
            files.append(Path(name))
            files[1].write_text(overlay)
        merged: dict = {}
        for path in files:
            update_config(merged, load_configfile(path))
        given = parse_config(arguments)
        update_config(merged, given)
        return config.load(merged, files, given)

    return loaded


@pytest.fixture
def problems(load):
    """The lines of the message that a config gives."""

    def lines(*args, **kwargs):
        with pytest.raises(ConfigError) as caught:
            load(*args, **kwargs)
        return str(caught.value).split("\n")

    return lines


# The schema as documentation


def parts(part, path=()):
    """Every subschema that describes a value, with its path; references followed."""
    part = config.resolved(part)
    yield path, part
    for name, below in part.get("properties", {}).items():
        yield from parts(below, (*path, name))
    for key in ("additionalProperties", "items"):
        if isinstance(part.get(key), dict):
            yield from parts(part[key], (*path, "*"))
    for number, below in enumerate(part.get("prefixItems", [])):
        yield from parts(below, (*path, str(number)))


EVERY = {".".join(path): part for path, part in parts(yaml.safe_load(config.SCHEMA.read_text(encoding="utf-8")))}
UNITS = ("batch", "context", "tokens", "devices", "layers", "d_model", "heads", "d_ff", "vocabulary", "head_dim")
LOWER, UPPER = ("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")
RANGED = {
    "integer": [{"minimum", "maximum"}],
    "number": [*({low, high} for low in LOWER for high in UPPER), {"const"}],
    "string": [{"enum"}, {"pattern", "x-allowed"}, {"maxLength"}, {"x-refers-to"}],
    "array": [{"minItems", "items"}],
    "boolean": [set()],
}


def test_schema_is_a_2020_12_schema_without_loose_ends():
    jsonschema.Draft202012Validator.check_schema(config.schema())
    used = set(re.findall(r'"#/\$defs/(\w+)"', config.SCHEMA.read_text()))
    assert used == set(config.schema()["$defs"])


def test_every_key_is_closed_described_typed_and_ranged():
    for path, part in EVERY.items():
        assert str(part.get("description", "")).strip().endswith("."), path
        (kind,) = [name for name in config._types(part) if name != "null"]
        if kind == "object":
            inner = part["additionalProperties"]
            assert (inner is False and "properties" in part) or "propertyNames" in part, path
            assert set(part.get("required", [])) <= set(part.get("properties", {})), path
        else:
            assert any(keys <= set(part) for keys in RANGED[kind]), path


def test_every_key_of_a_mapping_is_required_or_has_a_default():
    for path, part in EVERY.items():
        for name in part.get("properties", {}):
            child = config._child(part, name)
            known = name in part.get("required", []) or "default" in child
            assert known or any(part.get(key) for key in ("oneOf", "x-collection", "x-any-keys")), f"{path}.{name}"


def test_defaults_are_right_themselves():
    for path, part in EVERY.items():
        if "default" in part:
            whole = {**part, "$defs": config.schema()["$defs"]}
            assert jsonschema.Draft202012Validator(whole).is_valid(part["default"]), path


def test_quantities_name_their_unit():
    for path, part in EVERY.items():
        if path.split(".")[-1] in UNITS and "integer" in config._types(part):
            assert re.search(r"\[[a-z/ ]+\]", part["description"]), path


@pytest.mark.parametrize(
    ("kind", "helpers"),
    [
        ("verification", set()),
        ("experiment", set()),
        ("timing", {"machine"}),
        ("study", {"source", "training"}),
    ],
)
def test_settings_are_the_parameters_of_the_module(kind, helpers):
    described = config.schema()["properties"][kind]["properties"]
    modules = {path.stem for path in (ROOT / "src/transformer_ledger" / kind).glob("*.py")} - {"__init__"} - helpers
    assert set(described) == modules
    assert set(SHIPPED.get(kind, {})) <= modules
    # Tables and files that a job reads come beside its settings.
    read = {"settings", "execution", "verification", "ledger", "experiment", "claims", "timing", "study", "checkpoint"}
    # Written once in the config, elsewhere: the text's row of scores in E2, and the workloads of the executions.
    joined = {"online_softmax": {"printed"}, "training_compute": {"workloads"}}
    for name, part in described.items():
        parameters = inspect.signature(import_module(f"transformer_ledger.{kind}.{name}").compute).parameters
        assert set(part["properties"]) == set(parameters) - read - joined.get(name, set()), f"{kind}.{name}"


def test_names_that_the_code_knows_are_those_of_the_schema():
    recipe = config.schema()["properties"]["recipes"]["additionalProperties"]["properties"]
    assert set(recipe["optimizer"]["enum"]) == set(OPTIMIZERS)
    dtypes = config.schema()["properties"]["cache_dtypes"]["items"]["pattern"]
    assert all(re.fullmatch(dtypes, name) for name in BITS)
    assert re.fullmatch(dtypes, "int4-g64")
    assert not any(re.fullmatch(dtypes, name) for name in ("bf16-g64", "int4-g0", "int4-g", "int3"))


# Loading


def test_shipped_config_loads(load):
    loaded = load()
    assert {"teaching", "modern", "section-7", "gpt2", "llama-3-8b", "llama-3-70b", "mixtral-8x7b"} <= set(
        loaded["models"]
    )
    for name, model in loaded["models"].items():
        assert set(model) == {"spec", "hf_config", "label", "notes"}
        assert model["spec"]["name"] == name
    assert loaded["models"]["teaching"]["hf_config"] is None
    assert loaded["models"]["gpt2"]["hf_config"] == json.loads((ROOT / "resources/models/gpt2.json").read_text())
    assert loaded["models"]["teaching"]["label"] == "teaching"
    assert loaded["models"]["gpt2"]["label"] == "GPT-2"
    json.loads(jobs.canonical(loaded))
    assert jobs.Plan(loaded).files()


def test_minimal_config_loads_and_stands_on_its_own(load):
    overlay = (ROOT / "config.minimal.yaml").read_text()
    loaded = load(overlay)
    assert set(loaded["models"]) == {"teaching", "modern", "section-7", "gpt2"}
    shipped = load()
    # Nothing falls away with a model: every verification runs in the tests too.
    assert all(set(loaded[kind]) == set(shipped[kind]) for kind in ("verification", "experiment", "timing"))
    # Without the entries that it sets to null, nothing in it names a model that is not there.
    merged = copy.deepcopy(yaml.safe_load((ROOT / "config.yaml").read_text()))
    update_config(merged, yaml.safe_load(overlay))
    for section in ("models", "workloads", "training_runs", "recipes", "layouts"):
        merged[section] = {name: entry for name, entry in merged[section].items() if entry is not None}
    Path("merged.yaml").write_text(yaml.safe_dump(merged))
    assert config.load(merged, ["merged.yaml"]) == loaded


def test_loading_twice_and_in_another_order_gives_the_same_specs(load):
    def reverse(value):
        return {key: reverse(value[key]) for key in reversed(value)} if isinstance(value, dict) else value

    backwards = yaml.safe_dump(reverse(yaml.safe_load((ROOT / "config.yaml").read_text())), sort_keys=False)
    assert jobs.canonical(load()) == jobs.canonical(load(text=backwards))


def test_defaults_are_filled_in(load):
    model = load(architecture())["models"]["b"]
    assert model["label"] == "b"
    assert model["spec"]["rope_base"] == 10000.0
    loaded = load(
        "training_runs: {x: {model: gpt2, tokens: 5}}\nrecipes: {x: {weights: bf16, gradients: bf16, optimizer: sgd}}"
    )
    assert loaded["training_runs"]["x"] == {
        "model": "gpt2",
        "tokens": 5,
        "context": None,
        "devices": None,
        "flops_per_second_per_device": None,
        "published_device_hours": None,
        "source": None,
    }
    assert loaded["recipes"]["x"]["moments"] == "fp32"
    assert loaded["recipes"]["x"]["master_weights"] is None
    only = load(text=architecture() + "workloads: {w: {batch: 1, context: 8}}\n")
    assert only["cache_dtypes"] == ["bf16"]
    assert only["verification"] == only["recipes"] == {}
    assert only["report"]["title"] == "Transformer Ledger"


@pytest.mark.parametrize(("written", "value"), [("3", 3), ("3.0", 3), ("3e0", 3), ("+3", 3), ("1_0", 10), ("0x10", 16)])
def test_integers(load, written, value):
    layers = load(architecture(layers=written))["models"]["b"]["spec"]["layers"]
    assert [count for count, _ in layers] == [value]
    assert all(type(count) is int for count, _ in layers)


@pytest.mark.parametrize(
    ("written", "value"), [("2", 2.0), ("2.0", 2.0), ("2e0", 2.0), ("15e12", 1.5e13), ("1_5e0", None)]
)
def test_numbers_are_floats(load, problems, written, value):
    run = f"training_runs: {{x: {{model: gpt2, tokens: 1, flops_per_second_per_device: {written}}}}}"
    if value is None:
        assert "is not a number" in problems(run)[0]
    else:
        rate = load(run)["training_runs"]["x"]["flops_per_second_per_device"]
        assert (type(rate), rate) == (float, value)


def test_yaml_booleans(load, problems):
    assert load(architecture(tied_head="on"))["models"]["b"]["spec"]["tied_head"] is True
    assert problems(architecture(positions="no")) == [
        "over.yaml:10: models.b.architecture.positions: false is not text; allowed: learned, rope, none"
    ]


def test_null_leaves_an_entry_out(load):
    loaded = load(
        "models: {modern: null}\nworkloads: {b1-t4096: null}\nrecipes: {sgd-fp32: null}\nverification: {norms: null}"
    )
    assert "modern" not in loaded["models"]
    assert "b1-t4096" not in loaded["workloads"]
    assert "sgd-fp32" not in loaded["recipes"]
    assert "norms" not in loaded["verification"]


def test_what_names_a_model_that_is_left_out_goes_with_it(load):
    loaded = load("models: {llama-2-7b: null, llama-3.1-405b: null, llama-3-8b: null}")
    assert "llama-2-7b" not in loaded["verification"]["parameter_rule"]["models"]
    assert "llama-3.1-405b" not in loaded["training_runs"]
    assert loaded["verification"]["training_compute"]["runs"] == ["llama-3-70b", "llama-3.1-70b"]
    assert loaded["report"]["whatif"]["model"] is None
    without = load("models: {teaching: null, llama-3-70b: null}")["verification"]
    assert {"training_state", "training_compute"}.isdisjoint(without)  # they cannot do without
    assert "parameter_rule" in without


def test_values_of_the_command_line(load):
    loaded = load(
        arguments=["models={gpt2: null, modern: {architecture: {layers: 33, norm_epsilon: 1e-3, tied_head: true}}}"]
    )
    assert "gpt2" not in loaded["models"]
    spec = loaded["models"]["modern"]["spec"]
    assert [count for count, _ in spec["layers"]] == [33]
    assert (spec["norm_epsilon"], spec["tied_head"]) == (1e-3, True)
    assert load(arguments=["cache_dtypes=[fp8]"])["cache_dtypes"] == ["fp8"]
    assert load(arguments=["timing=null"])["timing"] == {}
    assert (
        load(arguments=["verification={head_count: null, norms: , training_state: ~}"])["verification"]
        .keys()
        .isdisjoint({"head_count", "norms", "training_state"})
    )
    assert load(arguments=["report={title: 2024}"])["report"]["title"] == "2024"


def test_overlay_wins_and_the_command_line_wins_over_it(load, problems):
    overlay = "models:\n\n  modern: {architecture: {layers: x}}"
    assert problems(overlay) == [
        "over.yaml:3: models.modern.architecture.layers: 'x' is not an integer; allowed: an integer from 1 to 2048"
    ]
    assert load(overlay, ["models={modern: {architecture: {layers: 5}}}"])
    assert problems(overlay, ["models={modern: {architecture: {layers: y}}}"]) == [
        "--config: models.modern.architecture.layers: 'y' is not an integer; allowed: an integer from 1 to 2048"
    ]


def test_a_model_may_change_from_architecture_to_file(load):
    model = load("models: {teaching: {architecture: null, hf_config: resources/models/gpt2.json}}")["models"][
        "teaching"
    ]
    assert model["spec"]["d_model"] == 768


def test_a_label_is_any_text(load):
    assert load(architecture() + "    label: <script>alert(1)</script>")["models"]["b"]["label"].startswith("<script>")


def test_json_config(load, problems):
    assert load(json.dumps({"report": {"title": "x"}}, indent="\t"), name="over.json")["report"]["title"] == "x"
    text = '{\n\t"report": {\n\t\t"titel": "x"\n\t}\n}'
    assert problems(text, name="over.json") == ["over.json:3: report.titel: unknown key (did you mean 'title'?)"]


def test_merge_keys(load):
    text = "models:\n  a: &a {architecture: &k {%s}}\n  c: {<<: *a, label: hi}\n"
    keys = ", ".join(f"{key}: {value}" for key, value in ARCHITECTURE.items())
    assert load(text % keys)["models"]["c"]["label"] == "hi"


# Problems: each in one line that names file, line, key, value and what is right

LAYERS = "models.b.architecture"
INTEGER = "is not an integer; allowed: an integer from 1 to 2048"
WRONG_ARCHITECTURES = {
    "misspelt key": ({"layerz": 3}, 13, ".layerz: unknown key (did you mean 'layers'?)"),
    "text": ({"layers": "three"}, 4, f".layers: 'three' {INTEGER}"),
    "quoted number": ({"layers": "'3'"}, 4, f".layers: '3' {INTEGER}"),
    "not whole": ({"layers": 3.5}, 4, f".layers: 3.5 {INTEGER}"),
    "boolean": ({"layers": "yes"}, 4, f".layers: true {INTEGER}"),
    "list": ({"layers": "[1]"}, 4, f".layers: [1] {INTEGER}"),
    "mapping": ({"layers": "{a: 1}"}, 4, f".layers: {{'a': 1}} {INTEGER}"),
    "date": ({"layers": "2024-01-02"}, 4, f".layers: datetime.date(2024, 1, 2) {INTEGER}"),
    "octal": ({"layers": "010"}, 4, ".layers: 010 means 8 in YAML 1.1; write the number meant plainly"),
    "base 60": ({"layers": "1:30"}, 4, ".layers: 1:30 means 90 in YAML 1.1; write the number meant plainly"),
    "leading zero": ({"layers": "08"}, 4, f".layers: '08' {INTEGER}"),
    "negative": ({"layers": -3}, 4, ".layers: -3 is out of range; allowed: an integer from 1 to 2048"),
    "huge": ({"layers": 10**9}, 4, ".layers: 1000000000 is out of range; allowed: an integer from 1 to 2048"),
    "nan": ({"layers": ".nan"}, 4, ".layers: nan is not a finite number; allowed: an integer from 1 to 2048"),
    "infinite": (
        {"norm_epsilon": "-.inf"},
        13,
        ".norm_epsilon: -inf is not a finite number; allowed: a number from 0 to 1",
    ),
    "null": ({"layers": "null"}, 4, ".layers: missing; wanted: an integer from 1 to 2048 (Layers [layer])"),
    "zero heads": ({"heads": 0}, 6, ".heads: 0 is out of range; allowed: an integer from 1 to 65536"),
    "not dividing": ({"heads": 5}, 6, ".heads: 5 does not divide d_model 64; give head_dim or a divisor of d_model"),
    "not grouping": ({"kv_heads": 3}, 13, ".kv_heads: 3 does not divide heads 4; allowed: the divisors of 4"),
    "misspelt name": (
        {"positions": "rop"},
        10,
        ".positions: 'rop' is not known (did you mean 'rope'?); allowed: learned, rope, none",
    ),
    "unknown name": ({"norm": "batchnorm"}, 11, ".norm: 'batchnorm' is not known; allowed: layernorm, rmsnorm"),
    "number for boolean": ({"tied_head": 1}, 13, ".tied_head: 1 is not true or false; allowed: true or false"),
    "odd rotation": (
        {"head_dim": 33},
        13,
        ".head_dim: 33 is odd; rotary positions pair the components, so it must be even",
    ),
    "top-k": (
        {"experts": "{count: 4, per_token: 8}"},
        13,
        ".experts.per_token: 8 is above experts.count 4; at most that many",
    ),
    "key in a key": ({"biases": "{qery: true}"}, 13, ".biases.qery: unknown key (did you mean 'query'?)"),
}


@pytest.mark.parametrize("case", WRONG_ARCHITECTURES)
def test_wrong_architecture(problems, case):
    keys, line, message = WRONG_ARCHITECTURES[case]
    assert problems(architecture(**keys)) == [f"over.yaml:{line}: {LAYERS}{message}"]


def test_a_misspelt_key_is_not_also_missing(problems):
    text = architecture().replace("layers", "layerz")
    assert problems(text) == [f"over.yaml:4: {LAYERS}.layerz: unknown key (did you mean 'layers'?)"]


NAME = "up to 100 letters, digits, dots, underscores and hyphens, first a letter or digit (a label may be any text)"
DTYPE = "fp64, fp32, bf16, fp16, fp8, int8, int4, int2, or an integer type with a group size as int4-g64"
ONE = "exactly one of architecture, hf_config (null leaves one out)"
WRONG_OVERLAYS = [
    # at every level, a key that is not known
    ("modelz: {}", "modelz", "unknown key (did you mean 'models'?)"),
    ("models: {b: {layerz: 3}}", "models.b.layerz", "unknown key (did you mean 'architecture.layers'?)"),
    ("workloads: {w: {batch: 1, contxt: 3}}", "workloads.w.contxt", "unknown key (did you mean 'context'?)"),
    (
        "training_runs: {llama-3-8b: {token: 3}}",
        "training_runs.llama-3-8b.token",
        "unknown key (did you mean 'tokens'?)",
    ),
    ("recipes: {sgd-fp32: {zero: 3}}", "recipes.sgd-fp32.zero", "unknown key (did you mean 'zero_stage'?)"),
    ("verification: {head_cout: {}}", "verification.head_cout", "unknown key (did you mean 'head_count'?)"),
    ("verification: {head_count: {sed: 1}}", "verification.head_count.sed", "unknown key (did you mean 'seed'?)"),
    ("experiment: {rope_dot: {}}", "experiment.rope_dot", "unknown key (did you mean 'rope_dot_product'?)"),
    (
        "experiment: {blocked_softmax: {drawn: {x: 1}}}",
        "experiment.blocked_softmax.drawn.x",
        "unknown key; allowed: seed, scores, keys, value_dim, block_sizes, orders, masks",
    ),
    ("timing: {norm: {}}", "timing.norm", "unknown key (did you mean 'norms'?)"),
    ("report: {whatif: {modell: x}}", "report.whatif.modell", "unknown key (did you mean 'model'?)"),
    # a value of the wrong kind
    ("models: [1]", "models", "[1] is not a mapping; allowed: a mapping"),
    ("models: {b: 5}", "models.b", "5 is not a mapping; allowed: a mapping with architecture, hf_config, label"),
    (
        "workloads: {w: {batch: 1, context: 1.5}}",
        "workloads.w.context",
        "1.5 is not an integer; allowed: an integer from 1 to 100000000",
    ),
    ("report: {title: 5}", "report.title", "5 is not text; allowed: text on one line, at most 100 characters"),
    ("cache_dtypes: bf16", "cache_dtypes", f"'bf16' is not a list; allowed: a list of 1 or more × {DTYPE}"),
    ("cache_dtypes: [int5]", "cache_dtypes[0]", f"'int5' is not right; allowed: {DTYPE}"),
    ("cache_dtypes: []", "cache_dtypes", f"[] holds 0; allowed: a list of 1 or more × {DTYPE}"),
    (
        "cache_dtypes: [fp8, fp8]",
        "cache_dtypes",
        f"['fp8', 'fp8'] holds an entry twice; allowed: a list of 1 or more × {DTYPE}, all different",
    ),
    # names of models
    ("models: {'a/b': {hf_config: x}}", "models['a/b']", f"not a name for this; allowed: {NAME}"),
    ("models: {'.a': {hf_config: x}}", "models['.a']", f"not a name for this; allowed: {NAME}"),
    ("models: {'a b': {hf_config: x}}", "models['a b']", f"not a name for this; allowed: {NAME}"),
    ("models: {'': {hf_config: x}}", "models['']", f"not a name for this; allowed: {NAME}"),
    (
        "models: {GPT2: {hf_config: resources/models/gpt2.json}}",
        "models.GPT2",
        "differs from 'gpt2' in capitals alone; they may share a file",
    ),
    # one of two
    ("models: {b: {}}", "models.b", f"neither is given; allowed: {ONE}"),
    (
        "models: {teaching: {hf_config: x}}",
        "models.teaching",
        f"both architecture and hf_config are given; allowed: {ONE}",
    ),
    # names of other entries
    (
        "training_runs: {x: {model: llama-3-8, tokens: 1}}",
        "training_runs.x.model",
        "'llama-3-8' is not a model of this config (did you mean 'llama-3-8b'?)",
    ),
    (
        "training_runs: {x: {model: gpt2, tokens: 1, context: 5000}}",
        "training_runs.x.context",
        "5000 is longer than gpt2's context; allowed: at most 1024",
    ),
    (
        "verification: {training_state: {models: [teachin]}}",
        "verification.training_state.models[0]",
        "'teachin' is not a model of this config (did you mean 'teaching'?)",
    ),
    (
        "verification: {training_compute: {text_run: llama-3-7b}}",
        "verification.training_compute.text_run",
        "'llama-3-7b' is not a training run of this config (did you mean 'llama-3-70b'?)",
    ),
    (
        "report: {whatif: {model: xyz}}",
        "report.whatif.model",
        f"'xyz' is not a model of this config; allowed: {', '.join(SHIPPED['models'])}",
    ),
    # keys that must fit each other
    (
        "verification: {head_count: {heads: [1, 5]}}",
        "verification.head_count.heads[1]",
        "5 does not fit architecture.d_model 24; allowed: a divisor of architecture.d_model",
    ),
    (
        "verification: {head_count: {other_seed: 0}}",
        "verification.head_count.other_seed",
        "0 does not fit seed 0; allowed: anything but seed",
    ),
    (
        "verification: {embedding_lookup: {infinite_row: 29}}",
        "verification.embedding_lookup.infinite_row",
        "29 does not fit vocabulary 29; allowed: below vocabulary",
    ),
    (
        "verification: {output_projection: {shown_heads: 5}}",
        "verification.output_projection.shown_heads",
        "5 does not fit heads [1, 2, 3, 4, 6, 8, 12, 24]; allowed: one of heads",
    ),
    (
        "verification: {training_state: {length: 64}}",
        "verification.training_state.length",
        "64 does not fit shape.context 32; allowed: at most shape.context",
    ),
    (
        "verification: {teaching_parameters: {lengths: [2, 4, 6]}}",
        "verification.teaching_parameters.lengths",
        "[2, 4, 6] does not rise so; allowed: each twice the one before",
    ),
    (
        "experiment: {blocked_softmax: {printed: {blocks: [[0, 1], [2, 4]]}}}",
        "experiment.blocked_softmax.printed.blocks",
        "[[0, 1], [2, 4]] does not fit scores [1000.0, 1001.0, 999.0, 1002.0]; "
        "allowed: blocks that follow one another from 0 to the number of scores",
    ),
    (
        "verification: {training_compute: {dense: {kv_heads: 3}}}",
        "verification.training_compute.dense.kv_heads",
        "3 does not divide heads 4; allowed: the divisors of 4",
    ),
    (
        "verification: {rope_rotation: {odd_head_dims: [2]}}",
        "verification.rope_rotation.odd_head_dims[0]",
        "2 is out of range; allowed: an odd integer from 1 to 4095",
    ),
    # what is trained must fit its model, and what is done to the checkpoint must fit that
    (
        "study: {attention: {cases: [{length: 9, causal: true, kv_heads: 3}], heads: 4}}",
        "study.attention.heads",
        "4 does not fit cases.kv_heads 3; allowed: a multiple of cases.kv_heads",
    ),
    (
        "study: {extension: {kv_heads: 3}}",
        "study.extension.kv_heads",
        "3 does not fit sizes.heads 4; allowed: a divisor of sizes.heads",
    ),
    (
        "study: {extension: {source: {keys: 30}}}",
        "study.extension.source",
        "190 does not fit; allowed: symbols + keys + values + keys · values at most the vocabulary, 28",
    ),
    (
        "study: {checkpoint: {programme: {length: 4096}}}",
        "study.checkpoint.programme.length",
        "4096 does not fit; allowed: at most 256, the model's context",
    ),
    (
        "study: {checkpoint: {models: [llama-3-70b]}}",
        "study.checkpoint.models[0]",
        "70553706496 does not fit; allowed: 1000000000 parameters to be trained here, llama-3-70b has more",
    ),
    (
        "verification: {checkpoint: {kv_heads: [4, 3]}}",
        "verification.checkpoint.kv_heads",
        "3 does not fit; allowed: the divisors of teaching's 8",
    ),
    (
        "study: {classification: {bounded: {tokens: 64}}}",
        "study.classification.bounded.tokens",
        "64 does not fit; allowed: at most 32, as in study.checkpoint",
    ),
    # values at the edge of what a number or a name is
    (
        "verification: {norms: {epsilon: 1e999}}",
        "verification.norms.epsilon",
        f"1{'0' * 56}… is out of range; allowed: a number above 0 and at most 1",
    ),
    ('models: {"ab\\n": {hf_config: x}}', "models['ab\\n']", f"not a name for this; allowed: {NAME}"),
    # files
    (
        "models: {b: {hf_config: resources/models/gpt3.json}}",
        "models.b.hf_config",
        "resources/models/gpt3.json: no such file (did you mean 'resources/models/gpt2.json'?)",
    ),
    ("models: {b: {hf_config: resources}}", "models.b.hf_config", "resources: is a directory"),
]


@pytest.mark.parametrize(("overlay", "key", "message"), WRONG_OVERLAYS, ids=[case[0] for case in WRONG_OVERLAYS])
def test_wrong_overlay(problems, overlay, key, message):
    assert problems(overlay) == [f"over.yaml:1: {key}: {message}"]


WRONG_ARGUMENTS = [
    ("foo=1", "foo", f"unknown key; allowed: {', '.join(config.schema()['properties'])}"),
    ("models=5", "models", "5 is not a mapping; allowed: a mapping"),
    ("models={b: {layers: 33}}", "models.b.layers", "unknown key (did you mean 'architecture.layers'?)"),
    ("report={titel:x}", "report['titel:x']", "unknown key (did you mean 'title'?)"),
    ("models={gpt2:null}", "models['gpt2:null']", "nothing of this name to leave out (did you mean 'gpt2'?)"),
    ("models={gtp2: null}", "models.gtp2", "nothing of this name to leave out (did you mean 'gpt2'?)"),
    ("verification={norm: null}", "verification.norm", "unknown key (did you mean 'norms'?)"),
    (
        "workloads={b1-t512: {batch: 0}}",
        "workloads.b1-t512.batch",
        "0 is out of range; allowed: an integer from 1 to 1000000",
    ),
    (
        "workloads={b1-t512: {batch: two}}",
        "workloads.b1-t512.batch",
        "'two' is not an integer; allowed: an integer from 1 to 1000000",
    ),
    (
        "verification={norms: {epsilon: nan}}",
        "verification.norms.epsilon",
        "'nan' is not a number; allowed: a number above 0 and at most 1",
    ),
]


@pytest.mark.parametrize(("argument", "key", "message"), WRONG_ARGUMENTS, ids=[case[0] for case in WRONG_ARGUMENTS])
def test_wrong_argument(problems, argument, key, message):
    assert problems(arguments=[argument]) == [f"--config: {key}: {message}"]


def test_no_models(problems):
    assert problems(arguments=["models="])[0].startswith("--config: models: missing; wanted: a mapping (The decoders, ")


def test_removing_every_model(problems):
    every = yaml.safe_dump({"models": dict.fromkeys(SHIPPED["models"])})
    assert problems(every)[0] == "over.yaml:1: models: empty; allowed: at least one entry"


def test_all_problems_at_once_in_the_order_of_the_files(problems):
    text = (
        (ROOT / "config.yaml").read_text().replace("layers: 4", "layers: four", 1).replace("heads: 8", "heads: 7.5", 1)
    )
    lines = text.split("\n")
    first = next(number for number, line in enumerate(lines, 1) if "layers: four" in line)
    second = next(number for number, line in enumerate(lines, 1) if "heads: 7.5" in line)
    found = problems("workloads: {w: {batch: 0, context: 1}}\nreport: {titel: x}", ["cache_dtypes=[x]"], text=text)
    places = [line.split(": ")[0] for line in found]
    assert places == [f"config.yaml:{first}", f"config.yaml:{second}", "over.yaml:1", "over.yaml:2", "--config"]


UNREADABLE = {
    "models:\n\tb: 1\n": "bad.yaml:2: not YAML: while scanning for the next token, "
    "found character that cannot start any token; indent with spaces, not tabs",
    "models: [1\n": "bad.yaml:2: not YAML: while parsing a flow sequence, did not find expected ',' or ']'",
    "- 1\n": "bad.yaml:1: no mapping; wanted are keys such as models:",
    "3\n": "bad.yaml:1: no mapping; wanted are keys such as models:",
    "": "bad.yaml:1: empty; wanted are keys such as models:",
    "# nothing\n": "bad.yaml:1: empty; wanted are keys such as models:",
    "report: {}\nreport: {}\n": "bad.yaml:2: report: given twice, first in line 1",
    "models:\n  b: {}\n  c: {}\n  b: {}\n": "bad.yaml:4: models.b: given twice, first in line 2",
    "models:\n  on: {}\n": "bad.yaml:2: models.on: the key is no text in YAML 1.1; put it in quotes",
    "models:\n  1: {}\n": "bad.yaml:2: models.1: the key is no text in YAML 1.1; put it in quotes",
    "models: &a {x: *a}\n": "bad.yaml:1: models.x: an alias of itself",
    "a: 1\n---\nb: 2\n": "bad.yaml:2: not YAML: expected a single document in the stream, but found another document",
    "x: *foo\n": "bad.yaml:1: not YAML: found undefined alias",
    "<<: [1]\n": "bad.yaml:1: ['<<']: merges no mapping; allowed: an alias of one, or a list",
    "x: !!python/tuple [1]\n": "bad.yaml:1: x: the tag !!python/tuple is not read; leave it out",
    "x: !mine 1\n": "bad.yaml:1: x: YAML reads '1' as !mine, and it is not one; put text in quotes",
    "x: 2024-99-99\n": "bad.yaml:1: x: YAML reads '2024-99-99' as !!timestamp, and it is not one; put text in quotes",
    "x: !!int ''\n": "bad.yaml:1: x: YAML reads '' as !!int, and it is not one; put text in quotes",
    f"x: 0x{'f' * 5000}\n": "bad.yaml:1: x: an integer of more than 100 digits",
}


@pytest.mark.parametrize("text", UNREADABLE, ids=range(len(UNREADABLE)))
def test_unreadable_file(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    Path("bad.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        config.read("bad.yaml")
    assert str(caught.value) == UNREADABLE[text]


def test_aliases_of_aliases_end_with_a_message(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = ["a0: &a0 [1, 1]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12))]
    Path("bad.yaml").write_text("\n".join(lines))
    with pytest.raises(ConfigError, match="more than 100000 values"):
        config.read("bad.yaml")


def test_missing_and_binary_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("bad.yaml").write_bytes(b"\xff\xfe\x00")
    for name, message in {
        "no.yaml": "no.yaml: No such file or directory",
        ".": ".: Is a directory",
        "bad.yaml": "bad.yaml: not a text file in UTF-8",
    }.items():
        with pytest.raises(ConfigError, match=re.escape(message)):
            config.read(name)


CONFIG_JSON = {
    '{"model_type": "lama"}': "model_type: unknown model_type 'lama'; known: ",
    '{"model_type": "llama", "hidden_size": -3}': "hidden_size: -3; allowed: 1 to ",
    '{"model_type": "llama", ': "not JSON: ",
    "": "not JSON: ",
    "[1]": "not a mapping; wanted is a model's config.json",
    '{"a": NaN}': "not JSON: NaN is not a finite number",
    '{"a": 1e999}': "not JSON: 1e999 is not a finite number",
    '{"a": %s}' % ("9" * 5000): "not JSON: 99999999999999999999… is an integer of 5000 digits",
    '{"model_type": "llama", "hidden_size": 8, "hidden_size": 16}': "hidden_size: given twice",
    '{"model_type": "llama", "rms_norm_eps": 1e308, "rope_theta": "x"}': "rope_theta: 'x' is not a number",
    '{"model_type": "llama", "rope_scaling": "x"}': "rope_scaling: 'x' is not a mapping",
    '{"model_type": "llama", "hidden_act": ["silu"]}': "hidden_act: ['silu'] is no name",
    '{"model_type": "phi3", "partial_rotary_factor": null}': "partial_rotary_factor: None is not a number above 0 and",
    '{"model_type": "gpt_neox", "rope_parameters": {"rotary_pct": 2}}': "rotary_pct: 2 is not a number above 0 and at most",
    '{"model_type": "deepseek_v3", "topk_group": null}': "topk_group: None; allowed: an integer from 1 to 8",
    '{"model_type": "deepseek_v3", "n_group": 2.5}': "n_group: 2.5; allowed: an integer from 1 to 256",
    "[" * 100000: "not JSON: ",
}


@pytest.mark.parametrize("text", CONFIG_JSON, ids=range(len(CONFIG_JSON)))
def test_wrong_config_json(problems, tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    (line,) = problems("models: {b: {hf_config: x.json}}")
    assert line.startswith(f"over.yaml:1: models.b.hf_config: x.json: {CONFIG_JSON[text]}")


# In Snakemake


def test_snakemake_shows_the_message_and_no_traceback(tmp_path):
    folder = copy_project(tmp_path)
    (folder / "o.yaml").write_text("models:\n  modern: {architecture: {layerz: 3}}\n")
    for arguments, messages in {
        ("--configfile", "o.yaml"): [
            "o.yaml:2: models.modern.architecture.layerz: unknown key (did you mean 'layers'?)"
        ],
        ("--configfile", "o.yaml", "--config", "report={titel: x}"): [
            "o.yaml:2: models.modern.architecture.layerz: unknown key",
            "--config: report.titel: unknown key (did you mean 'title'?)",
        ],
    }.items():
        done = snakemake(folder, "--dry-run", *arguments)
        text = done.stdout + done.stderr
        assert done.returncode != 0
        assert all(text.count(message) == 1 for message in messages), text
        assert "Traceback" not in text
    (folder / "config.yaml").write_bytes(b"report:\n\ttitle: x\n")
    done = snakemake(folder, "--dry-run")
    assert done.returncode != 0
    assert "config.yaml:2: not YAML: " in done.stdout + done.stderr


WEIRD = (
    None,
    True,
    -1,
    0,
    2.5,
    10**30,
    float("nan"),
    float("inf"),
    "",
    "x",
    "010",
    "\n",
    [],
    [[]],
    [None],
    {},
    {"a": {}},
)


def test_whatever_is_broken_gives_a_message_or_a_config():
    """Each value of the config replaced by something else: a clear message or a config, never another exception."""

    def places(value, path=()):
        if path:
            yield path
        for key, item in (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        ):
            yield from places(item, (*path, key))

    messages = []
    every = list(places(SHIPPED))[::11]
    for number, path in enumerate(every):
        broken = copy.deepcopy(SHIPPED)
        inner = broken
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = WEIRD[number % len(WEIRD)]
        try:
            jobs.canonical(config.load(broken, [ROOT / "config.yaml"]))
        except ConfigError as error:
            messages += str(error).split("\n")
    assert len(messages) > len(every) / 2
    assert all(re.match(r"\S+:\d+: \S.*?: \S", line) for line in messages)
