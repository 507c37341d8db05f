"""Saved activations: predicted bytes against real tensors, for every family and for random decoders."""

import json
import random
import re
from fractions import Fraction
from pathlib import Path

import pytest
import torch

from transformer_ledger import huggingface, tables
from transformer_ledger.executed import activations as executed
from transformer_ledger.executed import run
from transformer_ledger.executed.decoder import Experts
from transformer_ledger.formulas import activations as formulas
from transformer_ledger.ledger import activations as ledger
from transformer_ledger.model import Attention, Feedforward, Latent, Layer, ModelSpec
from transformer_ledger.shrunken import COPY, public, public_config, shrunken

MODELS = Path(__file__).parents[1] / "resources" / "models"
LARGEST = {"d_model": 40, "kv_heads": 2, "group": 3, "head_dim": 8, "rank": 12, "d_ff": 56, "experts": 6}
LARGEST |= {"vocabulary": 96, "window": 5}
SETTINGS = {"dtypes": ["bf16"], "batch": 2, "tokens": 16, "largest": LARGEST}
WORKLOADS = {"b1-t512": {"batch": 1, "context": 512}, "b8-t2048": {"batch": 8, "context": 2048}}
CONFIGS = {path.stem: json.loads(path.read_text()) for path in sorted(MODELS.glob("*.json"))}
SPECS = {name: huggingface.read(name, config)[0] for name, config in CONFIGS.items()}
ROW = ("model", "workload", "implementation", "dtype", "method", "checkpointed")
PUBLIC = {name: family for name, config in CONFIGS.items() if (family := public(config, SPECS[name]))}


@pytest.fixture(scope="module")
def execution():
    torch.set_num_threads(1)
    return {name: run._activations(SPECS[name], CONFIGS[name], SETTINGS) for name in SPECS}


def compute(execution):
    return ledger.compute({n: s.to_json() for n, s in SPECS.items()}, WORKLOADS, SETTINGS, PUBLIC, execution)


def differing(execution):
    return [row for row in compute(execution) if row["difference"]]


def test_every_shipped_model_to_the_byte(execution):
    rows = compute(execution)
    assert len(SPECS) >= 20
    ran = [row for row in rows if row["workload"] == COPY]
    assert all(row["difference"] == 0 for row in ran)
    assert all(row["difference"] is None for row in rows if row["workload"] != COPY)
    assert {row["model"] for row in ran} == set(SPECS)
    assert {row["model"] for row in ran if row["implementation"] == "transformers"} == set(PUBLIC)
    assert {"gpt2", "llama-3-8b", "qwen2.5-7b"} <= set(PUBLIC)
    assert set(SPECS) - {row["model"] for row in ran if row["method"] == "fused"} == {"deepseek-v3", "gpt-oss-20b"}


def test_parts_add_up(execution):
    for key, rows in tables.by(compute(execution), *ROW).items():
        (total,) = [row["bytes"] for row in rows if row["scope"] == "total"]
        assert total == sum(row["layers"] * row["bytes"] for row in rows if row["scope"] != "total"), key
        if key[1] != COPY:
            assert sum(row["layers"] for row in rows if row["scope"] == "layer") == SPECS[key[0]].depth


def test_fewer_bytes_fused_and_checkpointed(execution):
    rows = [row for row in compute(execution) if row["scope"] == "total" and row["workload"] == "b8-t2048"]
    for own in tables.by(rows, "model", "implementation").values():
        size = {(row["method"], row["checkpointed"]): row["bytes"] for row in own}
        assert size["eager", True] < size.get(("fused", False), size["eager", False]) <= size["eager", False]


@pytest.mark.parametrize(
    ("formula", "change"),
    [
        ("rms_norm", lambda B, T, d: 4 * B * T * 2 * d),
        ("layer_norm_statistics", lambda B, T, b: B * T * b),
        ("attention_weights", lambda B, T, h, b: B * h * T * (T + 1) // 2 * b),
        ("attention_weights_with_sinks", lambda B, T, h, b: B * h * T**2 * b),
        ("keys", lambda B, T, h_kv, d_h, b: B * T * h_kv * d_h * b + 1),
        ("log_sum_exp", lambda B, T, h: 2 * B * h * T),
        ("additive_mask", lambda T, b: T**2),
        ("routes", lambda B, T, k, b: B * T * k * b),
        ("latent_norm", lambda B, T, r_kv: 4 * B * T * r_kv),
        ("batch_mask", lambda B, T, b: T**2 * b),
        ("loss", lambda B, T, V: 2 * B * T * V),
    ],
)
def test_a_wrong_formula_shows(execution, monkeypatch, formula, change):
    def shown(*arguments, **named):
        return change(*arguments, **named)

    shown.__wrapped__ = change
    monkeypatch.setattr(formulas, formula, shown)
    monkeypatch.setattr(ledger, "text", lambda _: "")
    assert differing(execution)


def layer_bytes(name, B, T, fused, checkpointed=False, family=True):
    spec = SPECS[name]
    own = ledger.Run(B, T, 2, fused, checkpointed, PUBLIC[name] if family is True else family)
    return sum(part.bytes for part in ledger.layer_saved(spec, spec.layers[0][1], own))


@pytest.mark.parametrize(("b", "s"), [(1, 1024), (8, 512)])
def test_known_closed_forms_of_transformers(b, s):
    # bf16 without dropout: GPT-2 with plain GELU, and Llama (Korthikanti et al. count so, with dropout).
    a, h = 12, 768
    plain = {"model_type": "gpt2", "activation": "gelu"}
    assert layer_bytes("gpt2", b, s, False, family=plain) == 32 * s * b * h + 2 * a * s**2 * b + 8 * s * b
    assert layer_bytes("gpt2", b, s, True, family=plain) == 32 * s * b * h + 4 * a * s * b + 8 * s * b
    for name in ("llama-2-7b", "llama-3-8b", "llama-3.1-405b"):
        layer = SPECS[name].layers[0][1]
        a, kv, f, h = layer.attention.heads, layer.attention.kv_heads, layer.feedforward.width, SPECS[name].d_model
        wanted = s * b * h * (20 + 4 * Fraction(kv, a) + 8 * Fraction(f, h)) + 4 * a * s * b + 8 * s * b
        assert layer_bytes(name, b, s, True) == wanted
        assert layer_bytes(name, b, s, True, checkpointed=True) == 2 * s * b * h


@pytest.mark.parametrize("name", ["gpt2", "gpt2-large", "llama-2-7b", "llama-3-8b", "qwen2.5-7b"])
@pytest.mark.parametrize(("batch", "tokens"), [(1, 1), (1, 7), (3, 2)])
def test_transformers_at_other_shapes(name, batch, tokens):
    spec, family = shrunken(SPECS[name], LARGEST, 16), PUBLIC[name]
    found = executed.measured_transformers(public_config(spec, **family), batch, tokens, "fp16")
    assert found == predicted(spec, batch, tokens, found, family)


def predicted(spec, batch, tokens, found, family=None):
    """The ledger's bytes for every method of `found`."""
    out = {}
    for method in {method for method, _ in found}:
        own = ledger.Run(batch, tokens, 2, method.startswith("fused"), method.endswith("checkpointed"), family)
        for scope, kind, _, parts in ledger.scopes(spec, own):
            out[method, scope if kind is None else f"layer {kind}"] = sum(part.bytes for part in parts)
    return out


def drawn(seed):
    """A random decoder of one or two kinds of layer, each run twice."""
    r = random.Random(seed)
    latent, head_dim, rope = r.random() < 0.2, 2 * r.randint(1, 5), 2 * r.randint(1, 4)

    def attention():
        h_kv, window = r.randint(1, 3), r.choice([None, 1, 3, 50])
        if latent:
            ranks = Latent(r.choice([0, 5]), r.randint(2, 9), r.randint(2, 7), rope, r.randint(2, 7))
            return Attention(h_kv, h_kv, head_dim, window=window, latent=ranks)
        norm = r.choice(["none", "head", "full"])
        return Attention(
            h_kv * r.choice([1, 1, 2, 4]),
            h_kv,
            head_dim,
            query_bias=r.random() < 0.5,
            window=window,
            query_key_norm=norm,
            sinks=r.random() < 0.2,
        )

    def layer():
        experts = r.choice([0, 0, 1, 4])
        shared = r.choice([0, 7]) if experts else 0
        feedforward = Feedforward(
            r.choice(["gelu", "gated"]),
            r.randint(1, 30),
            r.random() < 0.5,
            experts,
            r.randint(1, experts) if experts else 0,
            shared,
            bool(shared) and r.random() < 0.5,
            bool(experts) and r.random() < 0.5,
        )
        parallel = r.random() < 0.3
        post = not parallel and r.random() < 0.3
        return Layer(
            attention(), feedforward, r.choice([1, 2] if parallel else [2] if post else [2, 4]), parallel, post
        )

    kinds = list(dict.fromkeys(layer() for _ in range(r.choice([1, 2]))))
    d, learned = r.randint(2, 30), r.random() < 0.3
    return ModelSpec(
        "drawn",
        d,
        r.randint(3, 60),
        20,
        tuple((1, kind) for _ in range(2) for kind in kinds),
        "learned" if learned else r.choice(["rope", "none"]),
        22 if learned else 0,
        norm=r.choice(["layernorm", "rmsnorm"]),
        embedding_norm=r.random() < 0.2,
        final_norm=r.random() < 0.8,
        tied_head=r.random() < 0.5,
        embedding_width=r.choice([0, 0, max(1, d // 2)]),
    )


@pytest.mark.parametrize("seed", range(60))
def test_random_decoders_to_the_byte(seed):
    r = random.Random(-1 - seed)
    spec, batch, tokens = drawn(seed), r.randint(1, 3), r.choice([1, 2, 3, 7, 12])
    found = executed.measured(spec, batch, tokens, r.choice(["bf16", "fp16"]))
    assert found == predicted(spec, batch, tokens, found), spec


def test_grouped_experts_have_the_gathered_ones_gradients():
    torch.manual_seed(0)
    experts = Experts(4, 5, 3, bias=True).double()
    x, chosen = torch.randn(11, 5, dtype=torch.float64, requires_grad=True), torch.randint(4, (11,))
    inputs = [x, experts.weight, experts.bias]
    weight = torch.randn(11, 3, dtype=torch.float64)
    wanted, got = experts(x, chosen), executed._grouped(experts, x, chosen)
    torch.testing.assert_close(got, wanted)
    for a, b in zip(*(torch.autograd.grad((y * weight).sum(), inputs) for y in (got, wanted)), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", ["gpt2", "llama-3-8b", "gemma-3-1b", "mixtral-8x7b", "falcon-7b"])
def test_fused_and_checkpointed_are_the_same_function(name):
    spec = shrunken(SPECS[name], LARGEST, 16)
    torch.manual_seed(0)
    plain = executed.decoder(spec, "fp32", "eager", False)
    ids = torch.randint(spec.vocabulary, (2, 16))
    for method, checkpointed in (("fused", False), ("eager", True), ("fused", True)):
        other = executed.decoder(spec, "fp32", method, checkpointed)
        state = plain.state_dict()
        other.load_state_dict({inside(key) if checkpointed else key: value for key, value in state.items()})
        torch.testing.assert_close(other(ids), plain(ids))


def inside(key):
    """Name of a parameter where the layers are wrapped."""
    return re.sub(r"^(layers\.\d+)\.", r"\1.layer.", key)


def test_a_storage_counts_once_and_parameters_do_not():
    weight = torch.nn.Parameter(torch.ones(8))
    saved = executed.Saved(iter([weight]))
    x = torch.ones(2, 8, requires_grad=True)
    with saved.watching(torch.nn.ModuleList()):
        y = x.exp()  # saves its result
        (y[0] * y[1]).sum()  # saves two views of it
        (x * weight).sum()  # saves x; the weight is a parameter
    assert saved.bytes == {"outside": 2 * 2 * 8 * 4}


def test_a_small_copy_keeps_the_structure():
    for spec in SPECS.values():
        small = shrunken(spec, LARGEST, 16)
        assert ModelSpec.from_json(json.loads(json.dumps(small.to_json()))) == small
        assert small.kinds()[0][0] == 2
        assert len(small.kinds()) == len(spec.kinds())
        for (_, a), (_, b) in zip(small.kinds(), spec.kinds(), strict=True):
            assert a.attention.heads % a.attention.kv_heads == 0
            assert (a.norms, a.parallel, a.post_norm) == (b.norms, b.parallel, b.post_norm)
            assert (a.attention.window is None) == (b.attention.window is None)
            assert (a.attention.heads > a.attention.kv_heads) == (b.attention.heads > b.attention.kv_heads)
            assert (a.attention.latent is None) == (b.attention.latent is None)
            assert a.feedforward.experts_per_token <= a.feedforward.experts
            assert bool(a.feedforward.experts) == bool(b.feedforward.experts)
        assert small.d_model <= LARGEST["d_model"] or small.d_model == 48  # heads times their width


def test_public_knows_what_it_does_not_know():
    spec = SPECS["llama-3-8b"]
    assert public(None, spec) is None
    assert public({"model_type": "olmo2"}, spec) is None
    assert public({"model_type": "llama", "hidden_act": "relu"}, spec) is None
    assert public({"model_type": "gpt2", "reorder_and_upcast_attn": True}, SPECS["gpt2"]) is None
    assert public({"model_type": "gpt2"}, SPECS["gpt2"]) == {"model_type": "gpt2", "activation": "gelu_new"}
    assert public({"model_type": "qwen2"}, SPECS["mistral-7b"]) is None  # it has a window


def test_the_table_takes_the_rows(execution, tmp_path):
    rows = compute(execution)
    tables.write(tmp_path / "a.parquet", "ledger/activations", rows, {})
    assert len(tables.read(tmp_path / "a.parquet", "ledger/activations")) == len(rows)
    for name, made in execution.items():
        tables.write(tmp_path / f"{name}.parquet", "execution", made, {})
