"""Conventions: published figures come out of the one that is named, and ours are the other ledgers' totals."""

import json
import re
from fractions import Fraction
from pathlib import Path

import pytest

from transformer_ledger import huggingface, tables
from transformer_ledger.ledger import (
    conventions,
    fit,
    kv_cache,
    matmul,
    parameters,
    training_compute,
    training_state,
)
from transformer_ledger.model import ModelSpec, from_architecture
from transformer_ledger.report import page

MODELS = Path(__file__).parents[1] / "resources" / "models"
SHIPPED = sorted(path.stem for path in MODELS.glob("*.json"))
GPT = {"positions": "learned", "norm": "layernorm", "feedforward": "gelu"}
LLAMA = {"positions": "rope", "norm": "rmsnorm", "feedforward": "gated"}


def shipped(name: str) -> ModelSpec:
    return huggingface.read(name, json.loads((MODELS / f"{name}.json").read_text()))[0]


def read(**config) -> ModelSpec:
    return huggingface.read("m", config)[0]


def explicit(**keys) -> ModelSpec:
    return from_architecture("m", {"layers": 2, "vocabulary": 1000, "context": 4096, **keys})


def given(spec: ModelSpec, quantity: str, convention: str, B: int = 1, T: int = 64) -> int:
    """What a convention gives, from the rows of the table."""
    rows = conventions.compute({"m": spec.to_json()}, {"w": {"batch": B, "context": T}})
    (row,) = (row for row in rows if (row["quantity"], row["convention"]) == (quantity, convention))
    return row["value"]


# ------------------------------------------------------------------------------------------------ registry


def test_ours_is_one_of_each_quantity_and_of_flops_the_named_pair():
    ours = {q: [c.name for c in conventions.CONVENTIONS if c.quantity == q and c.ours] for q in conventions.QUANTITIES}
    pair = ["full", "causal-exact"]
    assert ours.pop("forward pass") == ours.pop("training step") == pair
    assert ours.pop("decoded token") == ["full"]  # a decoded token sees its whole past
    assert all(len(names) == 1 for names in ours.values())
    assert len({(c.quantity, c.name) for c in conventions.CONVENTIONS}) == len(conventions.CONVENTIONS)
    assert {c.quantity for c in conventions.CONVENTIONS} == set(conventions.QUANTITIES)
    assert all(re.fullmatch(r".+[^.]\.", c.counts) for c in conventions.CONVENTIONS)


@pytest.mark.parametrize("name", SHIPPED)
def test_ours_are_the_totals_of_the_other_ledgers(name):
    spec = shipped(name)
    models, loads = {name: spec.to_json()}, {"a": {"batch": 3, "context": 128}, "b": {"batch": 1, "context": 1024}}
    rows = conventions.compute(models, loads)
    ours = {(r["quantity"], r["workload"], r["convention"]): r["value"] for r in rows if r["ours"]}
    counted = parameters.compute(models)
    expected = {("parameters", None, "every tensor"): sum(row["parameters"] for row in counted)}
    if any(row["component"] == "router" for row in counted):
        active = sum(row["active_parameters"] for row in counted)
        expected["active parameters", None, "every tensor in use"] = active
    recipe = {"weights": "bf16", "gradients": "bf16", "optimizer": "sgd", "moments": "bf16"}
    (weights, _) = training_state.compute(models, {"": recipe})
    expected["weights", None, "bf16"] = weights["bytes"]
    for row in kv_cache.compute(models, loads, ["bf16"]):
        if row["policy"] == "needed":
            expected["KV cache", row["workload"], "needed"] = row["bytes"]
    phases = {"prefill": "forward pass", "decode": "decoded token", "train": "training step"}
    for row in matmul.compute(models, loads):
        if row["convention"] != "absorbed":
            key = phases[row["phase"]], row["workload"], row["convention"]
            expected[key] = expected.get(key, 0) + row["flops"]
    assert ours == expected


@pytest.mark.parametrize("name", SHIPPED)
def test_first_row_of_a_quantity_is_ours_and_the_ratios_are_to_it(name):
    rows = conventions.compute({name: shipped(name).to_json()}, {"w": {"batch": 2, "context": 512}})
    for group in tables.by(rows, "quantity").values():
        assert group[0]["ours"]
        assert all(row["ratio_to_ours"] == row["value"] / group[0]["value"] for row in group)
        assert all(row["value"] > 0 for row in group)


def test_rows_only_where_a_convention_applies():
    def names(spec):
        return {
            row["convention"] for row in conventions.compute({"m": spec.to_json()}, {"w": {"batch": 1, "context": 8}})
        }

    mixture = {"experts in use", "one expert", "every tensor in use", "no router", "6ND, every expert"}
    window = {"reserved", "between steps", "w/2"}
    latent = {"latent expanded", "latent twice", "absorbed", "new token expanded"}
    assert not names(shipped("gpt2")) & (mixture | window | latent | {"width d/h", "every query head"})
    assert {"tied head twice", "without position table"} <= names(shipped("gpt2"))
    assert not names(shipped("llama-3-8b")) & {"tied head twice", "without position table", "width d/h"}
    assert mixture | window | {"width d/h", "every query head"} <= names(shipped("gpt-oss-20b"))
    assert mixture | latent | {"width d/h"} <= names(shipped("deepseek-v3"))
    assert not names(shipped("deepseek-v3")) & (window | {"every query head"})


# ------------------------------------------------------------------------------------------------ published figures


@pytest.mark.parametrize(
    ("model", "quantity", "convention", "printed"),
    [
        ("gpt2", "parameters", "tied head twice", "163037184"),
        ("gpt2", "parameters", "without position table", "123.65e6"),  # what nanoGPT prints of these weights
        ("mixtral-8x7b", "parameters", "every tensor", "47e9"),  # arXiv:2401.04088
        ("mixtral-8x7b", "parameters", "experts in use", "13e9"),
        ("mixtral-8x7b", "active parameters", "every tensor in use", "13e9"),
        ("gpt-oss-20b", "parameters", "every tensor", "20.91e9"),  # arXiv:2508.10925, table 1
        ("gpt-oss-20b", "active parameters", "without input tables", "3.61e9"),
        ("qwen3-30b-a3b", "parameters", "every tensor", "30.5e9"),  # model cards
        ("qwen3-30b-a3b", "parameters", "non-embedding", "29.9e9"),
        ("qwen2.5-7b", "parameters", "non-embedding", "6.53e9"),
        ("llama-3.1-70b", "weights", "bf16", "141.11e9"),
        ("llama-3.1-70b", "weights", "GiB called GB", "131.42e9"),
    ],
)
def test_published_figure(model, quantity, convention, printed):
    digits = len(printed.partition("e")[0].replace(".", ""))
    assert float(f"{given(shipped(model), quantity, convention):.{digits - 1}e}") == float(printed)


def test_gpt_oss_120b():
    config = json.loads((MODELS / "gpt-oss-20b.json").read_text())
    spec = read(
        **config | {"num_hidden_layers": 36, "num_local_experts": 128, "layer_types": config["layer_types"][:12] * 3}
    )
    assert round(given(spec, "parameters", "every tensor") / 1e9, 2) == 116.83
    assert round(given(spec, "active parameters", "without input tables") / 1e9, 2) == 5.13


@pytest.mark.parametrize(
    ("layers", "d", "heads", "vocabulary", "non_embedding", "total"),
    [  # Pythia, arXiv:2304.01373, table 1; the totals of the model cards
        (6, 512, 8, 50304, 18_915_328, 70_426_624),
        (12, 768, 12, 50304, 85_056_000, 162_322_944),
        (24, 1024, 16, 50304, 302_311_424, 405_334_016),
        (16, 2048, 8, 50304, 805_736_448, 1_011_781_632),
        (24, 2048, 16, 50304, 1_208_602_624, 1_414_647_808),
        (32, 2560, 32, 50304, 2_517_652_480, 2_775_208_960),
        (32, 4096, 32, 50432, 6_444_163_072, 6_857_302_016),
        (36, 5120, 40, 50688, 11_327_027_200, 11_846_072_320),
    ],
)
def test_pythia(layers, d, heads, vocabulary, non_embedding, total):
    sizes = {"num_hidden_layers": layers, "hidden_size": d, "num_attention_heads": heads, "vocab_size": vocabulary}
    spec = read(model_type="gpt_neox", intermediate_size=4 * d, **sizes)
    assert given(spec, "parameters", "non-embedding") == non_embedding
    assert given(spec, "parameters", "every tensor") == total


@pytest.mark.parametrize(
    ("spec", "a_token"),
    [  # bytes of bf16 keys and values for one token
        (
            explicit(**LLAMA, layers=36, d_model=2560, heads=32, kv_heads=8, head_dim=128, d_ff=9728),  # Qwen3-4B
            {"needed": 147_456, "width d/h": 92_160},
        ),
        (shipped("deepseek-v3"), {"needed": 70_272, "width d/h": 1_748_992, "latent twice": 124_928}),
        (
            read(model_type="gpt_bigcode", multi_query=True, n_layer=24, n_embd=2048, n_head=16),
            {"needed": 12_288, "every query head": 196_608},
        ),
        (
            read(model_type="gpt_bigcode", multi_query=True, n_layer=40, n_embd=6144, n_head=48),
            {"needed": 20_480, "every query head": 983_040},
        ),
    ],
    ids=["qwen3-4b", "deepseek-v3", "santacoder-like", "starcoder-like"],
)
def test_cache_of_a_token(spec, a_token):
    assert {name: Fraction(given(spec, "KV cache", name, 3, 64), 3 * 64) for name in a_token} == a_token


def test_cache_of_gpt_oss():
    spec = shipped("gpt-oss-20b")
    assert given(spec, "KV cache", "needed", 32, 8192) == 6_543_114_240
    assert given(spec, "KV cache", "reserved", 32, 8192) == 12_884_901_888
    assert given(spec, "KV cache", "between steps", 32, 8192) == 6_543_114_240 - 32 * 12 * 2 * 8 * 64 * 2


def test_llama_70b_in_8_bits_without_the_token_table_called_gb():
    """64.73 “GB” of a calculator: two conventions and a byte a parameter."""
    assert round(given(shipped("llama-3.1-70b"), "parameters", "without input tables") / 2**30, 2) == 64.73


def test_embedding_and_head_in_training():
    for spec in (shipped("llama-3-8b"), explicit(**LLAMA, d_model=4096, heads=32, d_ff=64, tied_head=True)):
        ours, more = (given(spec, "training step", name, 2, 8) for name in ("full", "lookup as product"))
        (head,) = (p.flops for p in matmul.products(spec, 2, 8, 8, "prefill") if p.component == "head")
        assert (more - ours) // 16 == 3 * head // 16 == 6 * spec.vocabulary * 4096
    assert 6 * 128256 * 4096 == 3_152_019_456


def test_gpt_oss_training_with_heads_as_wide_as_the_model():
    """Causal-exact, the router left out, 4096 tokens: d/h = 45 where the file says 64."""
    found = {}
    for spec in (shipped("gpt-oss-20b"), conventions.narrowed(shipped("gpt-oss-20b"))):
        rows = matmul.compute({"m": spec.to_json()}, {"w": {"batch": 1, "context": 4096}})
        kept = [r for r in rows if (r["phase"], r["convention"]) == ("train", "causal-exact")]
        found[spec.kinds()[0][1].attention.head_dim] = sum(r["flops"] for r in kept if r["component"] != "router")
    assert found == {64: 93_848_227_282_944, 45: 87_640_983_797_760}


def test_keys_of_a_query_behind_a_window():
    spec = explicit(**LLAMA, d_model=64, heads=4, d_ff=8, window=512)
    B, T, width = 3, 2048, 2 * 2 * 2 * 64  # FLOPs of a pair: 2 layers, 2 products, 2 a multiply-add
    full = given(spec, "forward pass", "full", B, T)

    def keys(name):
        return T - Fraction(full - given(spec, "forward pass", name, B, T), B * T * width)

    assert (keys("causal-exact"), keys("T²/2"), keys("w/2")) == (Fraction("448.125"), 1024, 256)


def test_rules_of_deepseek():
    """37e9 active parameters and 14.8e12 tokens in 2.79e6 device-hours at 1.513e15 FLOP/s: 21.62 %, or 7.2 by 2ND."""
    spec = shipped("deepseek-v3")
    forward, rule = (given(spec, "training step", name, 2, 16) for name in ("2ND", "6ND"))
    assert Fraction(forward, rule) == Fraction(1, 3)
    share = 6 * 37e9 * 14.8e12 / (2.79e6 * 3600 * 1.513e15)
    assert (round(100 * share, 2), round(100 * share * forward / rule, 1)) == (21.62, 7.2)
    assert rule == training_compute.formulas.rule_flops(parameters.totals(spec)[1], 32)
    # Of scores and values, which 12LHQT takes as wide as the keys (128 + 64), though they are 128 wide.
    assert given(spec, "training step", "6N + 12LHQT", 2, 16) - rule == 12 * 61 * 128 * (128 + 64) * 16 * (2 * 16)


def test_every_expert_makes_a_mixture_larger():
    ratios = {}
    for name in ("mixtral-8x7b", "deepseek-v3"):
        every, active = (given(shipped(name), "training step", rule) for rule in ("6ND, every expert", "6ND"))
        ratios[name] = round(every / active, 1)
    assert ratios == {"mixtral-8x7b": round(46_702_792_704 / 12_879_925_248, 1), "deepseek-v3": 17.9}
    assert given(shipped("mixtral-8x7b"), "parameters", "one expert") == parameters.totals(shipped("mistral-7b"))[0]


def test_decoding_deepseek():
    """14.8 times by transformers, which expands the whole latent again, with 512 positions in the cache."""
    spec = shipped("deepseek-v3")
    full, new = (given(spec, "decoded token", name, 1, 513) for name in ("full", "new token expanded"))
    assert round(full / new, 1) == 14.8
    assert given(spec, "decoded token", "absorbed", 1, 513) == matmul.total(spec, 1, 513, "decode", "absorbed")


# ------------------------------------------------------------------------------------------------ formulas of papers


@pytest.mark.parametrize(("L", "d", "h", "V", "T", "B"), [(24, 2304, 24, 51200, 2048, 4), (3, 64, 4, 97, 16, 2)])
def test_formulas_of_gpt_shapes(L, d, h, V, T, B):
    sizes = {"layers": L, "d_model": d, "heads": h, "d_ff": 4 * d, "vocabulary": V, "context": T}
    spec = explicit(**GPT, **sizes, tied_head=True)
    linear, pairs = 24 * B * T * L * d**2, 4 * B * T**2 * L * d  # FLOPs forward
    head = 2 * B * T * d * V

    def forward(name):
        return given(spec, "forward pass", name, B, T)

    def training(name):
        return given(spec, "training step", name, B, T)

    # Narayanan et al., equation 3: 96BTLd²(1 + T/6d + V/16Ld), recomputation included
    recomputed = 96 * B * T * L * d**2 * (1 + Fraction(T, 6 * d) + Fraction(V, 16 * L * d))
    assert training("recomputed") == recomputed
    # Kaplan et al., table 1: 2N + 2·n_layer·n_ctx·d_attn a token; N here with what they leave out, the norms' weights
    norms = d * (2 * L + 1)
    assert forward("2N + attention") - 2 * B * T * norms == B * T * (2 * 12 * L * d**2 + 2 * L * T * d)
    assert given(spec, "parameters", "12Ld²") == 12 * L * d**2 == given(spec, "parameters", "non-embedding") - norms
    # Hoffmann et al., appendix F
    attention = 2 * 3 * T * d * d + 2 * T * T * d + 3 * h * T * T + 2 * T * T * d + 2 * T * d * d
    appendix = 2 * T * V * d + L * (attention + 2 * T * (d * 4 * d + d * 4 * d)) + 2 * T * d * V
    assert forward("lookup and softmax") == B * appendix
    # nanoGPT's estimate_mfu: 6N + 12LHQT a token, its N without positions
    N = parameters.totals(spec)[0] - T * d
    assert training("6N + 12LHQT") - 6 * B * T * T * d == B * T * (6 * N + 12 * L * h * (d // h) * T)
    # Megatron-LM: scores and values over half of all pairs
    assert forward("T²/2") == linear + pairs // 2 + head
    assert training("T²/2, no router") == 3 * (linear + pairs // 2 + head)
    assert forward("multiply-adds") == (linear + pairs + head) // 2
    assert forward("one row of logits") == linear + pairs + 2 * B * d * V
    assert forward("2N") == 2 * B * T * (N + T * d)
    assert training("6ND, non-embedding") == training("total_flos") == 6 * B * T * (12 * L * d**2 + norms)


def test_megatron_counts_no_router():
    """num_floating_point_operations of a mixture with grouped queries, for Mixtral."""
    B, T, L, d, f, V, q, kv = 2, 512, 32, 4096, 14336, 32000, 4096, 1024
    attention = d * (q + 2 * kv) + q * T / 2 * 2 + q * d
    megatron = B * T * (3 * 2 * d * f * 2 * 3 * L + 3 * 2 * L * attention + 3 * 2 * d * V)
    assert given(shipped("mixtral-8x7b"), "training step", "T²/2, no router", B, T) == megatron
    router = given(shipped("mixtral-8x7b"), "forward pass", "full", B, T) - given(
        shipped("mixtral-8x7b"), "forward pass", "no router", B, T
    )
    assert router == 2 * B * T * L * d * 8


def test_megatron_counts_the_norms_of_a_latent():
    """The same function with multi-latent attention, for DeepSeek-V3: each rank times (its maps + 1)."""
    B, T, L, d, V, h, r_q, r_kv, nope, rope, d_v = 2, 512, 61, 7168, 129280, 128, 1536, 512, 128, 64, 128
    maps = r_q * (d + h * (nope + rope) + 1) + r_kv * (d + h * (nope + d_v) + 1) + d * rope + h * d_v * d
    attention = maps + T * h * (nope + rope + d_v) // 2
    feedforward = 3 * d * (3 * 18432 + 58 * 2048 * (8 + 1))
    megatron = 6 * B * T * (L * attention + feedforward + d * V)
    ours = given(shipped("deepseek-v3"), "training step", "T²/2, no router", B, T)
    assert megatron - ours == 6 * B * T * L * (r_q + r_kv)


@pytest.mark.parametrize("name", ["gpt2", "llama-3-8b", "mixtral-8x7b"])
def test_what_transformers_counts(name):
    """num_parameters and the sum over state_dict() of the model on the meta device."""
    torch = pytest.importorskip("torch")
    from transformers import AutoConfig, AutoModelForCausalLM

    spec, config = shipped(name), AutoConfig.for_model(**json.loads((MODELS / f"{name}.json").read_text()))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    tabled = "non-embedding" if spec.tied_head else "without input tables"
    assert model.num_parameters() == given(spec, "parameters", "every tensor")
    assert model.num_parameters(exclude_embeddings=True) == given(spec, "parameters", tabled)
    assert 6 * 64 * model.num_parameters(exclude_embeddings=True) == given(spec, "training step", "total_flos")
    if spec.tied_head:
        stored = sum(tensor.numel() for tensor in model.state_dict().values())
        assert stored == given(spec, "parameters", "tied head twice")


# ------------------------------------------------------------------------------------------------ table and page


def test_table_keeps_every_digit(tmp_path):
    load = {"w": {"batch": 1_000_000, "context": 4096}, "too long": {"batch": 1, "context": 131_073}}
    rows = conventions.compute({"m": shipped("llama-3.1-405b").to_json()}, load)
    assert {row["workload"] for row in rows} == {None, "w"}
    tables.write(tmp_path / "c.parquet", "ledger/conventions", rows, {})
    back = tables.read(tmp_path / "c.parquet", "ledger/conventions")
    assert [row["value"] for row in back] == [row["value"] for row in rows]
    assert max(row["value"] for row in back) > 2**63


def test_weights_are_one_byte_count_whatever_the_unit():
    spec = shipped("gpt2")
    size = fit.weight_bytes(spec, "bf16")
    assert given(spec, "weights", "GiB called GB") == int(Fraction(size, 2**30) * 10**9)
    assert given(spec, "weights", "tied head twice") - size == 2 * 50257 * 768


@pytest.fixture(scope="module")
def html():
    config = json.loads((MODELS / "gemma-3-1b.json").read_text())
    outer = {"model_type": "gemma3", "text_config": config, "vision_config": {"hidden_size": 1152}}
    spec, notes = huggingface.read("seeing", outer)
    models = {"seeing": {"spec": spec.to_json(), "label": "Seeing", "notes": notes}}
    models["gpt2"] = {"spec": shipped("gpt2").to_json(), "label": "GPT-2", "notes": []}
    described = {name: model["spec"] for name, model in models.items()}
    loads = {"short": {"batch": 4, "context": 64}, "long": {"batch": 1, "context": 1024}}
    return page.compute(models=models, ledger={"conventions": conventions.compute(described, loads)})


def table(html: str, name: str) -> str:
    return html.split(f'id="{name}"', 1)[1].split("</table>", 1)[0]


def test_page_explains_each_convention_and_marks_ours(html):
    explained = table(html, "conventions-table")
    rows = re.findall(r"<tr><th scope=\"row\">(.*?)</tr>", explained)
    assert len(rows) == len(conventions.CONVENTIONS)
    for row, convention in zip(rows, conventions.CONVENTIONS, strict=True):
        assert convention.counts.replace("_", "") in re.sub("<[^>]+>", "", row).replace("&#39;", "'")
        assert (">ours<" in row) == convention.ours


def test_page_shows_values_and_ratios_at_the_longest_workload(html):
    assert "163,037,184" in table(html, "conventions-parameters")
    assert "1.31 of ours" in table(html, "conventions-parameters")
    assert "36,864" in table(html, "conventions-kv-cache")  # bytes a token of GPT-2
    forward = table(html, "conventions-forward-pass")
    assert "291,648,307,200" in forward  # GPT-2, one sequence of 1024
    assert ">0.5<" in forward
    assert 'id="conventions-active-parameters"' not in html  # no mixture here
    assert html.count('href="#conventions"') >= 5  # contents, and the ledgers that have other conventions


def test_page_says_that_the_text_part_was_taken(html):
    shown = table(html, "models-table")
    assert re.search(r">Seeing <span class=\"of\">text part</span></th>", shown)
    assert shown.count("text part</span>") == 1
    assert huggingface.TEXT_PART in html.split("Values that the models’ files leave open", 1)[1]
