"""The page's text: complete, escaped, the same every time, and whole whatever is missing."""

import csv
import dataclasses
import functools
import inspect
import json
import random
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
import report_tables
import sympy
import yaml

from transformer_ledger import fingerprint, huggingface, routes
from transformer_ledger.evidence import Evidence, Printed
from transformer_ledger.families import FAMILIES
from transformer_ledger.figure import drawing, palette, rope_precision, scales
from transformer_ledger.figure import ledgers as ledger_pictures
from transformer_ledger.formulas.training_compute import rule_parameters
from transformer_ledger.ledger import activations, fit, kv_cache, matmul, parameters, training_compute, training_state
from transformer_ledger.ledger.storage import BITS
from transformer_ledger.model import ModelSpec, from_architecture
from transformer_ledger.report import (
    algebra,
    calculator,
    claims,
    layout,
    ledgers,
    numbers,
    page,
    pictures,
    studies,
    whatif,
)
from transformer_ledger.symbolic import symbol

VOID = {"meta", "link", "input", "br", "img", "path", "use", "rect", "mspace"}
ROOT = Path(__file__).parents[1]
CONFIG = yaml.safe_load((ROOT / "config.yaml").read_text())
CACHES = [*BITS, *CONFIG["cache_dtypes"], "int8-g256", "int2-g96"]
KINDS = tuple(inspect.signature(page.compute).parameters)


@functools.cache
def shipped() -> dict[str, ModelSpec]:
    """Every model that comes with the project: the configuration's own and every published one."""
    own = {name: m["architecture"] for name, m in CONFIG["models"].items() if "architecture" in m}
    files = sorted((ROOT / "resources/models").glob("*.json"))
    published = {path.stem: huggingface.read(path.stem, json.loads(path.read_text()))[0] for path in files}
    return {name: from_architecture(name, keys) for name, keys in own.items()} | published


def recipes() -> dict[str, dict]:
    """The configuration's recipes as its schema completes them, without those of adapters, which the calculator leaves
    out, and two that divide what is quantised or factored."""
    made = {name: {"moments": "fp32", **recipe} for name, recipe in CONFIG["recipes"].items() if "lora" not in recipe}
    for name in ("adafactor-fp32", "adamw-8bit"):
        made[f"{name}, divided"] = {**made[name], "devices": 7, "zero_stage": 3}
    return made


class Page(HTMLParser):
    """Ids, links, addresses and nesting of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.addresses: list[str] = []
        self.papers: list[str] = []
        self.labelled: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if tag not in VOID:
            self.open.append(tag)
        self.ids += [given["id"]] if "id" in given else []
        if tag == "a" and given.get("href", "").startswith("#"):
            self.links.append(given["href"][1:].split("?")[0])  # after it, a setting of the calculator
        if tag == "a" and given.get("href", "").startswith("https:"):  # asks for nothing until someone follows it
            assert given["rel"] == "noopener"
            self.papers.append(given.pop("href"))
        self.addresses += [
            value for name, value in given.items() if name in ("src", "href", "action", "srcset", "xlink:href")
        ]
        self.labelled += (given.get("aria-labelledby") or "").split()

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        assert self.open.pop() == tag, f"</{tag}> closes nothing"


@pytest.fixture(scope="module")
def tables():
    return report_tables.tables()


@pytest.fixture(scope="module")
def html(tables):
    return page.compute(**tables)


def test_page_is_well_formed_and_every_link_lands(html):
    found = Page(html)
    assert found.open == []
    assert len(found.ids) == len(set(found.ids))
    assert set(found.links) <= set(found.ids)
    assert set(found.labelled) <= set(found.ids)
    assert {"findings", "ledgers", "experiments", "claims", "models", "formulas", "what-if", "provenance"} <= set(
        found.ids
    )
    assert all(f"claim-{row}" in found.ids for row in ("A1.1", "B5.3", "B10.2"))


def test_page_asks_for_nothing(html):
    assert all(address.startswith(("#", "data:")) for address in Page(html).addresses)
    assert not re.search(r"@import|url\((?!#)", html)


def test_extensions_begin_with_what_they_come_to():
    def row(variant, low, high, budget="scratch", share=1.0):
        ends = {"excess_change": (low + high) / 2, "excess_change_low": low, "excess_change_high": high}
        return {"variant": variant, "budget": budget, "share": share, **ends}

    rows = [row("base", 0, 0), row("rope", -2, -1), row("gqa", -1, 2), row("wide", 1, 2), row("mqa", 1, 2, share=0.5)]
    first, second = studies.extension_verdicts(rows)
    told = "rope is better than the base; wide is worse than the base; gqa does not differ clearly from the base."
    assert first.endswith(f"100 % of the compute: {told}")
    assert second.endswith("50 % of the compute: mqa is worse than the base.")
    assert studies.extension_verdicts(rows[:1]) == studies.extension_verdicts([]) == []


@pytest.mark.parametrize("sizes", [(3e5, 9e5), (4096, 4096), (5e6, 6e6), (1e5, 2e9)])
def test_an_axis_of_sizes_has_two_ticks(sizes):
    assert len(scales.byte_ticks(sizes)) >= 2


def test_every_paper_that_is_named_is_linked(html):
    papers = Page(html).papers
    assert "https://arxiv.org/abs/2205.14135" in papers
    assert all(re.fullmatch(r"https://arxiv\.org/abs/\d{4}\.\d{4,5}", paper) for paper in papers)
    body = html[: html.index('id="data"')]  # what follows is data and scripts
    assert len(papers) == len(re.findall(r"arXiv:\d", body))


def test_page_is_small_and_the_same_every_time(html, tables):
    assert len(html.encode()) < 3_000_000
    assert page.compute(**tables) == html


def test_what_comes_from_the_config_is_text(html):
    assert report_tables.HOSTILE not in html
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert(&#34;1&#34;)&lt;/script&gt;](x)&amp;" in html
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", html, re.S)
    assert len(scripts) == 3
    assert all("</" not in text and "<!--" not in text for text in scripts)


@pytest.mark.parametrize("stem", ["study", "timing", "activations", "fit", *report_tables.study(), "matmul_scaling"])
def test_page_is_whole_without_one_table(tables, stem):
    less = {
        kind: {name: rows for name, rows in tables[kind].items() if name != stem and kind != stem}
        for kind in ("study", "timing", "ledger")
    }
    found = Page(page.compute(**{**tables, **less}))
    assert found.open == []
    assert set(found.links) <= set(found.ids)


@pytest.mark.parametrize("kind", KINDS)
def test_page_is_whole_without_one_kind_of_input(tables, kind):
    found = Page(page.compute(**{name: value for name, value in tables.items() if name != kind}))
    assert found.open == []
    assert set(found.links) <= set(found.ids)


def test_page_is_whole_where_tables_have_no_rows(tables):
    kinds = ("claims", "verification", "ledger", "experiment", "study", "timing")
    empty = {kind: {stem: [] for stem in tables[kind]} for kind in kinds}
    found = Page(page.compute(**{**tables, **empty}))
    assert set(found.links) <= set(found.ids)


def test_page_without_anything_says_so():
    text = page.compute()
    assert "No claim was read" in text
    assert Page(text).open == []


def test_verdicts_are_counted(html):
    counted = {name: int(count) for name, count in re.findall(r'<dt>. ([a-z ]+)</dt><dd class="big">(\d+)</dd>', html)}
    assert {name: counted[name] for name in ("confirmed", "conditional", "refuted", "not reproducible")} == {
        "confirmed": 1,
        "conditional": 1,
        "refuted": 1,
        "not reproducible": 1,
    }
    assert "Two misprints:" in html


def test_a_difference_is_shown_first(tables):
    rows = [dict(row) for row in tables["ledger"]["parameters"]]
    rows[3]["executed"] += 7
    rows[3]["difference"] = -7
    text = page.compute(**{**tables, "ledger": {**tables["ledger"], "parameters": rows}})
    first = text[: text.index('id="what-if"')]
    assert re.search(r"<strong>1 of [\d,]+</strong> rows of the ledgers differ", first)
    assert "ledger parameters: 1 of" in first


def test_long_tables_are_cut_and_say_so(tables):
    text = page.compute(**{**tables, "report": {"rows_per_table": 5, "cases_per_claim": 10}})
    assert "The first 5 rows. All 34 are in <code>results/ledger/parameters.parquet</code>" in text
    data = claims.cases_data(tables["verification"], 10)
    assert (data["B4.4"]["rows"], data["B4.4"]["total"]) == (10, 34)


def test_cut_cases_keep_controls_failures_and_headlines(tables):
    rows = tables["verification"]["made_up"] * 30
    kept = claims.cases_data({"made_up": rows}, 75)["A1.1"]
    legs = next(column for column in kept["columns"] if column["name"] == "leg")
    assert [legs["texts"][code] for code in legs["codes"]].count("control") == 30
    assert kept["rows"] == 75


def test_llama_3_8b_misses_the_rule_by_13_per_cent(html):
    row = re.search(
        r'<tr><th scope="row"[^>]*>Llama 3 8B</th>.*?</tr>', html[html.index('id="summary-parameters"') :], re.S
    )[0]
    assert all(figure in row for figure in ("8,030,261,248", "6,967,787,520", "+13.2 %"))


def section(html: str, name: str, tag: str = "table") -> str:
    """The part of the page from the element `name` to the end of its table (or other element)."""
    start = html.index(f'id="{name}"')
    return html[start : html.index(f"</{tag}>", start)]


# ------------------------------------------------------------------------------------------------ studies, the clock


def test_a_difference_whose_interval_contains_0_is_called_no_clear_difference(html):
    def outcomes(name):
        table = section(html, name)
        column = re.findall(r'<th scope="col"[^>]*data-label="([^"]*)"', table).index("against the base")
        rows = re.findall(r"<tr><th scope.*?</tr>", table)
        return [(cells := re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row))[0] + ": " + cells[column] for row in rows]

    none = '<span class="none">—</span>'
    assert outcomes("summary-extension") == [
        f"base: {none}",
        "rope: no clear difference",
        "gqa: worse",
        "modern: better",
    ]
    sources = outcomes("summary-extension-sources")
    assert sources == ["rope: no clear difference"] * 2 + ["gqa: worse"] * 2 + ["modern: better"] * 2


def test_what_the_text_calls_otherwise_stands_out(html):
    table = section(html, "summary-classification")
    assert len(re.findall(r'class="off"[^>]*>schedule', table)) == 1
    assert [table.count(f'class="decided {kind}"') for kind in ("schedule", "function")] == [1, 2]


def test_equal_tensors_of_several_layers_are_one_line(html):
    assert re.search(r"<code>attention.key.weight</code> 64 × 64 → 32 × 64, 2 times", section(html, "summary-tensors"))


def test_doubling_the_length_is_measured_on_the_longest(html):
    assert "From 512 to 1,024 tokens" in html
    assert "needs 4 times the operations, 4 times the time (3.27 to 4.89 by the quartiles of the two times)" in html
    table = section(html, "summary-clock-attention")
    assert "T 1024" in table
    assert "T 512, fp32</th>" not in table
    assert ">compute</td>" in section(html, "summary-clock-matmul_scaling".replace("_", "-"))


def test_studies_say_what_blocked_attention_is_not(html):
    assert "So it is not linear in the length" in html


# ------------------------------------------------------------------------------------------------ summaries, examples


def test_bytes_for_one_parameter_are_those_of_every_model(tables):
    described = {name: model["spec"] for name, model in tables["models"].items()}
    rows = training_state.compute(described, recipes())
    summary = ledgers.state_summary(rows)
    least, most = summary["recipes"]["adafactor-fp32"]["second_moment"][1]
    own = [
        row["bytes_per_parameter"]
        for row in rows
        if (row["recipe"], row["item"]) == ("adafactor-fp32", "second_moment")
    ]
    assert (least, most) == (min(own), max(own))
    assert least < most
    assert summary["recipes"]["adamw-fp32"]["weights"] == ("fp32", (4.0, 4.0))
    assert summary["together"]["adamw-fp32"] == (16.0, 16.0)
    assert summary["together"]["adafactor-fp32"] == (8 + least, 8 + most)
    ledger = {**tables["ledger"], "training_state": rows}
    cells = section(page.compute(**{**tables, "ledger": ledger}), "summary-recipes")
    assert " to " in cells[cells.index("adafactor-fp32") : cells.index("adafactor-fp32, divided")]
    assert " to " not in cells[cells.index("adamw-fp32") : cells.index("adamw-bf16")]


def test_training_state_is_that_of_one_device(tables, html):
    """What a stage leaves whole lies on every device: all of them together hold more than one copy."""
    spec = tables["models"]["llama-3-8b"]["spec"]
    summary = ledgers.state_summary(training_state.compute({"llama-3-8b": spec}, recipes()))
    N, counters = 8_030_261_248, 4 * 291
    held = summary["models"]["llama-3-8b"]
    assert held["adamw-fp32"] == 16 * N + counters
    assert [held[f"zero-{stage}"] - counters for stage in (1, 2, 3)] == [
        4 * N + 12 * N // 8,
        2 * N + 14 * N // 8,
        2 * N,
    ]
    assert "on one device" in section(html, "summary-training-state")
    assert "each of 64" in section(html, "summary-training-state")


def test_cache_of_a_token_is_at_the_smallest_context(tables, html):
    """After the window nothing is added, so another workload would say 0."""
    loads = {"a": {"batch": 1, "context": 8192}, "b": {"batch": 2, "context": 64}}
    described = {"experts": tables["models"]["experts"]["spec"]}
    summary = ledgers.cache_summary(kv_cache.compute(described, loads, ["bf16"]))
    assert summary["context"] == 64
    (row,) = summary["models"]
    assert (row["bytes_per_token"], row["ratio"]) == (2 * 32 * 8 * 128 * 2, 0.25)
    assert "at 128 tokens" in section(html, "summary-kv-cache")


def examples(tables, model: str) -> dict[str, object]:
    """The number beside each formula that has one, for a model."""
    specs = calculator.specs(tables["models"])
    name, values = algebra.example_numbers(specs, tables["training_runs"], model)
    shown = algebra.shown(algebra.example_arguments(specs[name], values))
    return {f"{module['module']}.{entry['name']}": entry["value"] for module in shown for entry in module["entries"]}


def test_exact_training_flops_are_the_ledgers(tables):
    found = examples(tables, "llama-3-8b")
    spec = tables["models"]["llama-3-8b"]["spec"]
    run = {"model": "llama-3-8b", "architecture": spec, "tokens": 15 * 10**12, "context": 4096}
    (row,) = training_compute.compute({"": run})
    assert found["training_compute.exact_flops"] == row["flops_exact"] == 772_056_023_040_000_000_000_000
    # At the ledger's counts: every parameter but the looked-up embedding takes 6 a token, attention comes on top.
    assert row["flops_exact"] >= 6 * (row["parameters"] - 128256 * 4096) * row["tokens"]


def test_formulas_of_what_a_model_lacks_have_no_example(tables):
    found = examples(tables, "llama-3-8b")
    assert found["training_state.per_tensor"] == 4 * 291
    assert found["parameters.query"] == 4096 * 4096
    assert found["kv_cache.full"] == 2 * 4096 * 8 * 128 * 2
    assert found["activations.log_sum_exp"] == 4 * 32 * 4096
    lacking = {
        "training_state": ("quantised", "factored"),
        "parameters": (
            "sinks",
            "latent_output",
            "per_token_of_vocabulary",
            "per_query_component",
            "per_head_component",
        ),
        "matmul": ("shared_gate", "latent_output", "router", "scores_windowed"),
        "activations": ("shared_gate", "additive_mask", "expanded_values", "position_ids", "query_norm", "routes"),
        "architecture": (
            "attention_parameters",
            "plain_feedforward",
            "gated_feedforward_biases",
            "teaching_parameters",
        ),
    }
    assert not {f"{module}.{name}" for module, names in lacking.items() for name in names} & found.keys()
    teaching = examples(tables, "teaching")
    assert teaching["architecture.teaching_parameters"] == 889600
    assert teaching["architecture.plain_feedforward_biases"] == 512 + 128
    assert not {"architecture.gated_feedforward", "kv_cache.windowed", "activations.rms_norm"} & teaching.keys()
    experts = examples(tables, "experts")
    assert experts["parameters.router"] == 4096 * 8
    assert experts["matmul.scores_windowed"] > 0
    assert not {"parameters.feedforward", "matmul.feedforward", "architecture.gated_feedforward"} & experts.keys()


@pytest.mark.parametrize("name", shipped())
def test_every_model_can_be_the_example(name):
    spec = shipped()[name]
    _, values = algebra.example_numbers({name: spec}, {}, name)
    shown = algebra.shown(algebra.example_arguments(spec, values))
    assert {entry["name"] for module in shown for entry in module["entries"]} > {"head"}


# ------------------------------------------------------------------------------------------------ fit, activations


def test_fit_shows_the_first_types_on_every_device(tables):
    fit = ledgers.fit_summary(tables["ledger"]["fit"])
    assert list(fit["devices"]) == ["small-24gb", "large-192gb"]
    assert fit["types"] == ("bf16", "bf16")
    own = fit["models"]["llama-3-8b"]
    assert own["large-192gb"]["longest context"]["limit"] == "context"
    assert own["small-24gb"]["largest batch"]["context"] == 4096
    assert fit["models"]["experts"]["small-24gb"]["longest context"]["limit"] == "weights"


def test_models_that_do_not_fit_say_no(html):
    row = re.search(r'<tr><th scope="row">=&lt;script.*?</tr>', section(html, "summary-fit"), re.S)[0]
    assert row.count('title="the weights alone do not fit"') == 1
    assert 'title="the model’s whole context"' in row


def test_activations_are_those_of_the_longest_workload(tables):
    rows = {row["model"]: row for row in ledgers.activations_summary(tables["ledger"]["activations"])}
    assert (rows["llama-3-8b"]["context"], rows["teaching"]["context"]) == (4096, 128)
    own = rows["llama-3-8b"]
    eager, kept, fused, fused_kept = (own[f"{m}{c}"] for m in ("eager", "fused") for c in ("", ", checkpointed"))
    assert eager > fused > kept == fused_kept
    assert rows["llama-3-8b"]["logits"] == 4 * 4096 * 128256 + 8 * 4096 + 4


# ------------------------------------------------------------------------------------------------ what if


def states(count: int) -> list[dict]:
    """Settings of the calculator, drawn at random from all its models, recipes and types."""
    draw = random.Random(20240)
    models = report_tables.models()
    types = calculator.dtypes(report_tables.CACHE_DTYPES)
    out = []
    for _ in range(count):
        name = draw.choice(sorted(models))
        own = calculator.sizes(ModelSpec.from_json(models[name]["spec"]))
        sizes = {size: draw.randint(1, 2 ** draw.randint(1, 18)) for size in own}
        out.append(
            {
                "model": name,
                "sizes": sizes,
                **{key: draw.randint(1, 2 ** draw.randint(1, 20)) for key in ("B", "T", "G")},
                "D": draw.randint(1, 10**14),
                "R": draw.randint(1, 10**16),
                "recipe": draw.choice(sorted(report_tables.RECIPES)),
                "dtype": draw.choice(sorted(types)),
                "cache": draw.choice(sorted(types)),
            }
        )
    return out


def test_symbols_and_integers_say_the_same():
    for model in report_tables.models().values():
        spec = ModelSpec.from_json(model["spec"])
        symbols = {name: symbol(name) for name in (*calculator.sizes(spec), "B", "T")}
        cache = calculator.stored("int4-g64")
        varied = whatif.quantities(whatif.vary(spec, symbols), symbols["B"], symbols["T"], cache)
        values = {name: 3 + 2 * index for index, name in enumerate(calculator.sizes(spec))} | {"B": 5, "T": 4}
        expected = whatif.quantities(whatif.vary(spec, values), 5, 4, cache)
        for name, expr in varied.items():
            put = sympy.sympify(expr).subs({symbols[key]: value for key, value in values.items()})
            assert put == expected[name], name


def test_own_sizes_give_the_ledgers_totals():
    for model in report_tables.models().values():
        spec = ModelSpec.from_json(model["spec"])
        found = whatif.quantities(whatif.vary(spec, calculator.sizes(spec)), 2, 64, calculator.stored("bf16"))
        assert (found["parameters"], found["active"]) == parameters.totals(spec)
        assert found["prefill"] == matmul.total(spec, 2, 64, "prefill")


@pytest.mark.parametrize("name", shipped())
def test_calculator_gives_the_ledgers_activations_and_parts(name):
    spec = shipped()[name]
    varied = whatif.vary(spec, calculator.sizes(spec))
    symbols = {size: symbol(size) for size in (*calculator.sizes(spec), "B", "T")}
    symbolic = whatif.activation_bytes(whatif.vary(spec, symbols), symbols["B"], symbols["T"])
    for B, T in ((2, 1), (1, 2), (3, min(spec.context, 5000))):
        found = whatif.activation_bytes(varied, B, T)
        values = {symbols[key]: value for key, value in {**calculator.sizes(spec), "B": B, "T": T}.items()}
        for method, (fused, checkpointed) in whatif.METHODS.items():
            *_, (scope, _, _, saved) = activations.scopes(spec, activations.Run(B, T, 2, fused, checkpointed))
            assert scope == "total"
            assert found[f"activations {method}"] == sum(part.bytes for part in saved)
            assert symbolic[f"activations {method}"].subs(values) == found[f"activations {method}"], (method, B, T)
    parted = whatif.parameter_parts(varied)
    total = parameters.totals(spec)[0]
    assert sum(count for part, count in parted.items() if part.startswith("part ")) == total
    rule = rule_parameters(spec.depth, spec.d_model, spec.vocabulary)
    assert sum(count for part, count in parted.items() if part.startswith("gap ")) == total - rule
    assert sum(whatif.work_parts(varied, 2, 3).values()) == matmul.total(spec, 2, 3, "prefill")


@pytest.mark.parametrize("name", shipped())
def test_calculator_gives_the_ledgers_training_state_and_cache(name):
    spec, made = shipped()[name], recipes()
    varied = whatif.vary(spec, calculator.sizes(spec))
    counted = whatif.counts(varied, made)
    for recipe, held in made.items():
        rows = training_state.compute({name: spec.to_json()}, {recipe: held})
        stage = held.get("zero_stage") or fit.FULLY_SHARDED
        expected = {
            "total": sum(row["bytes"] for row in rows),
            "share": sum(row["bytes_per_device"] for row in rows),
            **{f"share {row['item']}": row["bytes_per_device"] for row in rows},
            "divided": fit.state_share(spec.to_json(), held, stage)(held.get("devices", 1)),
        }
        assert whatif.state(held, counted, held.get("devices", 1)) == expected, recipe
    for dtype in CACHES:
        for B, T in ((2, min(64, spec.context)), (1, spec.context)):
            found = whatif.quantities(varied, B, T, calculator.stored(dtype))["cache"]
            assert found == kv_cache.cache_bytes(spec, B, T, dtype, "needed"), (dtype, B, T)


def test_calculator_opens_on_plain_adamw():
    assert calculator.first_recipe(dict(sorted(recipes().items()))) == {"recipe": "adamw-fp32", "devices": 1}
    assert calculator.first_recipe({"b": {"zero_stage": 3, "devices": 8}, "a": {}}) == {"recipe": "b", "devices": 8}
    assert calculator.first_recipe({})["recipe"] is None


def test_calculator_opens_on_the_device_with_the_least_room():
    devices = {"a": {"memory_bytes": 10, "reserve": 0.1}, "b": {"memory_bytes": 11, "reserve": 0.5}}
    assert calculator.first_device(devices) == {"name": "b", "memory_bytes": 11, "reserve": 0.5}
    assert calculator.first_device({})["name"] is None


def test_layers_of_other_kinds_stay():
    base = ModelSpec.from_json(report_tables.models()["experts"]["spec"])
    (_, layer), dense = base.layers[0], ModelSpec.from_json(report_tables.models()["llama-3-8b"]["spec"]).layers[0][1]
    mixed = dataclasses.replace(base, layers=((3, dense), (29, layer)))
    assert calculator.sizes(mixed)["L"] == 32
    varied = whatif.vary(mixed, {**calculator.sizes(mixed), "L": 10, "E": 16})
    assert [count for count, _ in varied.layers] == [3, 7]
    assert [kind.feedforward.experts for _, kind in varied.layers] == [0, 16]


# ------------------------------------------------------------------------------------------------ numbers and pictures


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (8030261248, "8,030,261,248"),
        (63 * 10**23, "6.3000 × 10²⁴"),
        (-5, "−5"),
        (0.25, "0.25"),
        (2.22e-16, "2.22 × 10⁻¹⁶"),
        (0.0, "0"),
        (float("nan"), "undefined (NaN)"),
        (float("inf"), "∞"),
        (None, "—"),
        (1234567.0, "1,234,567"),
        (True, "yes"),
    ],
)
def test_short_numbers(value, text):
    assert numbers.short(value) == text


def test_sizes_say_which_unit():
    assert all(text in numbers.size(536870912) for text in ("512 MiB", "536,870,912 bytes"))
    assert "1,023 bytes" in numbers.size(1023)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1.3709, "1.37 s"), (0.0243, "24.3 ms"), (8.4e-05, "84 µs"), (2e-9, "2 ns"), (0.0, "0 ns"), (None, "—")],
)
def test_times_say_which_unit(seconds, text):
    assert numbers.plain(numbers.duration(seconds)) == text


def test_prose_sets_powers_of_ten_and_minus_signs():
    assert numbers.prose("6.3e+24 FLOP; 4.44089e-16") == "6.3\u00a0×\u00a010²⁴ FLOP; 4.44089\u00a0×\u00a010⁻¹⁶"
    assert numbers.prose("-0.52 %, llama-3.1-405b, 2e5x") == "−0.52 %, llama-3.1-405b, 2e5x"


def test_prose_sets_subscripts_and_escapes():
    assert numbers.prose("2d·h_kv·d_h <b>") == "2d·<i>h</i><sub>kv</sub>·<i>d</i><sub>h</sub> &lt;b&gt;"
    assert numbers.prose("attention_schedules") == "attention_schedules"
    assert numbers.prose("SiLU(xW_g), max_k, xW_go") == "SiLU(x<i>W</i><sub>g</sub>), max_k, xW_go"


@pytest.fixture(scope="module")
def cache_picture(tables):
    specs = calculator.specs(tables["models"])
    drawn, again = (drawing.files({"cache": ledger_pictures.cache_against_context(specs)}) for _ in range(2))
    assert drawn == again
    return drawn


def test_a_picture_is_three_files_that_stand_alone(cache_picture):
    *pictures, numbers = cache_picture
    assert pictures == ["results/figure/cache.svg", "results/figure/cache-narrow.svg"]
    for path in pictures:
        root = ElementTree.fromstring(cache_picture[path])
        texts = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
        assert "Key/value cache against context" in " ".join(texts)  # its title can be seen
        assert root.get("font-family")
        assert root.find("{http://www.w3.org/2000/svg}rect").get("fill") == palette.PAPER
        colours = set(re.findall(r"#[0-9a-f]{6}\b", re.sub(r'(id|href)="[^"]*"|url\([^)]*\)', "", cache_picture[path])))
        assert palette.SERIES[0] in colours <= palette.VARIABLES.keys()
    assert numbers == "results/figure/cache.csv"
    rows = list(csv.reader(cache_picture[numbers].splitlines()))
    assert rows[0] == ["model", "tokens", "cache [byte]"]
    own = report_tables.ARCHITECTURES["experts"]
    each = 2 * 2 * own["layers"] * own["kv_heads"] * (own["d_model"] // own["heads"])  # keys and values in two bytes
    assert rows[-1] == ["experts", str(own["context"]), str(each * own["window"])]


def test_pictures_take_their_colours_from_the_page_and_name_themselves(cache_picture):
    drawn = pictures.inlined({Path(path).stem: text for path, text in cache_picture.items() if path.endswith(".svg")})
    assert all(text in drawn["cache"] for text in ('role="img"', "<title", "<desc", "var(--series-1)"))
    assert set(palette.VARIABLES) & set(re.findall(r"#[0-9a-f]{6}\b", drawn["cache"])) == set()
    assert all(name.startswith("picture-cache") for name in re.findall(r'\bid="([^"]*)"', drawn["cache"]))


def test_pictures_have_the_colours_of_the_light_page():
    light = layout.file("style.css").partition("}")[0]
    for colour, variable in palette.VARIABLES.items():
        assert f"{variable}: {colour};" in light or colour == palette.PAPER


def test_the_page_draws_nothing():
    modules = fingerprint.closure("transformer_ledger.report.page")
    assert "transformer_ledger.report.pictures" in modules
    assert "matplotlib" in fingerprint.packages("transformer_ledger.figure.drawing")
    assert "matplotlib" not in fingerprint.packages("transformer_ledger.report.page")


def _drawn(draw, data, **look):
    picture = drawing.Picture(draw, "t", "d", ("x",), data, look)
    return "".join(drawing.files({"p": picture})[f"results/figure/p{ending}.svg"] for ending in drawing.WIDTHS)


def test_long_names_take_room_instead_of_being_cut():
    name = "the model of text A, section 7"
    drawn = _drawn(drawing.stacked_shares, {name: {"head": 1, "attention": 3}})
    assert f">{name}<" in drawn
    assert "…" not in drawn


def test_one_training_alone_has_no_interval():
    drawn = _drawn(drawing.intervals, {"g": [("rope", 0.1, float("-inf"), float("inf"))]}, x_label="x")
    assert "nan" not in drawn.lower()
    assert "inf" not in drawn


def test_labels_at_line_ends_keep_their_distance():
    placed = drawing._spread([0.5, 0.5, 0.51, 0.9], 0.1)
    assert all(
        later - earlier >= 0.1 - 1e-12 for earlier, later in zip(sorted(placed), sorted(placed)[1:], strict=False)
    )
    assert placed[3] == 0.9


def test_without_enough_points_there_is_no_picture():
    few, many = ({"rope_precision": report_tables.cases()[:count]} for count in (5, None))
    for found, shown in ((few, set()), (many, {"rotation-error"})):
        made = rope_precision.compute(verification=found)
        assert all(text.startswith("<svg") for path, text in made.items() if path.endswith(".svg"))
        assert set(pictures.inlined({Path(path).stem: text for path, text in made.items()})) == shown


@pytest.mark.parametrize(
    ("printed", "ours", "outcome"),
    [
        ("8,192", 8192, "reproduced"),
        ("81,920", 8192, "same magnitude: ours is 0.1 times the printed figure"),
        ("1,024", 8192, "same magnitude: ours is 8 times the printed figure"),
        ("0", 3, "not reproduced"),
    ],
)
def test_a_figure_with_other_digits_shows_the_factor(printed, ours, outcome):
    asked = Evidence("B5.3", by=routes.TORCH)
    asked.prints("weights", ours, Printed(printed))
    assert [entry["outcome"] for entry in claims._printed(asked.rows)] == [outcome]


def test_models_that_the_calculator_leaves_out_are_named(tables, html):
    """A hybrid has its ledgers; where a section has nothing for it, the section says so."""
    models = {"hybrid": {"spec": FAMILIES["nemotron_h"].read("hybrid").to_json(), "label": "A <hybrid>"}}
    report = {"whatif": {"model": "hybrid"}}
    found = page.compute(models=models, recipes=tables["recipes"], report=report, formulas=tables["formulas"])
    for part in ("what-if", "activations"):
        assert layout.say(f"sections/{part}/mixed", models="A <hybrid>") in found[found.index(f'id="{part}"') :]
        assert layout.words()["sections"][part]["mixed"].partition("{")[0] not in html
    assert "hybrid" not in json.loads(re.search(r'id="data"[^>]*>(.*?)</script>', found, re.S)[1])["whatif"]["models"]
