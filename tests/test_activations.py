"""Saved activations: predicted bytes against real tensors, for every family and for random decoders."""

import json
import random
from fractions import Fraction
from pathlib import Path

import pytest
import torch

from transformer_ledger import huggingface, tables
from transformer_ledger import shrunken as copies
from transformer_ledger.executed import activations as executed
from transformer_ledger.executed import run
from transformer_ledger.executed.decoder import Attention as AttentionModule
from transformer_ledger.executed.decoder import Experts
from transformer_ledger.formulas import activations as formulas
from transformer_ledger.ledger import activations as ledger
from transformer_ledger.ledger import public_activations
from transformer_ledger.model import NO_DROPOUT, Attention, Dropout, Feedforward, Latent, Layer, ModelSpec
from transformer_ledger.shrunken import ACTIVATIONS, COPY, fuses, public, public_config, shrunken

MODELS = Path(__file__).parents[1] / "resources" / "models"
LARGEST = {"d_model": 40, "kv_heads": 2, "group": 3, "head_dim": 8, "rank": 12, "d_ff": 56, "experts": 6}
LARGEST |= {"vocabulary": 96, "window": 5}
SETTINGS = {"dtypes": ["bf16"], "batch": 2, "tokens": 16, "largest": LARGEST}
WORKLOADS = {"b1-t512": {"batch": 1, "context": 512}, "b8-t2048": {"batch": 8, "context": 2048}}
SHIPPED = {path.stem: json.loads(path.read_text()) for path in sorted(MODELS.glob("*.json"))}
# Families and forms of them of which no model is shipped: what sets them apart, and sizes where the defaults will not do.
OTHERS = {
    "olmo2": {"num_key_value_heads": 8},
    "phi3": {"num_key_value_heads": 8, "sliding_window": 2047, "partial_rotary_factor": 0.75},
    "phi3 longrope": {
        "rope_scaling": {"type": "longrope", "long_factor": [1.5] * 48, "short_factor": [1.1] * 48},
        "original_max_position_embeddings": 4096,
    },
    "gemma": {"num_key_value_heads": 1, "hidden_act": "gelu"},
    "opt": {"ffn_dim": 1024},
    "opt post-norm": {"word_embed_proj_dim": 512, "do_layer_norm_before": False},
    "bloom": {"n_head": 16, "n_embed": 1024},
    "gpt_bigcode": {},
    "gpt_bigcode many heads": {"multi_query": False},
    "falcon 40b": {"new_decoder_architecture": True, "num_attention_heads": 64, "num_kv_heads": 8, "hidden_size": 4096},
    "falcon alibi": {"alibi": True, "multi_query": False, "parallel_attn": False, "bias": True},
    "falcon alibi, one key": {"alibi": True},
    "qwen2 window": {"use_sliding_window": True, "max_window_layers": 16, "sliding_window": 64},
    "deepseek_v2": {"q_lora_rank": None, "num_experts_per_tok": 6},
    "deepseek_v2 groups": {
        "num_experts_per_tok": 6,
        "topk_method": "group_limited_greedy",
        "n_group": 8,
        "topk_group": 3,
    },
}
CONFIGS = SHIPPED | {name: {"model_type": name.split()[0], **keys} for name, keys in OTHERS.items()}
SPECS = {name: huggingface.read(name, config)[0] for name, config in CONFIGS.items()}
ROW = ("model", "workload", "implementation", "dtype", "method", "checkpointed", "dropout")
PUBLIC = {name: family for name, config in CONFIGS.items() if (family := public(config, SPECS[name]))}


@pytest.fixture(scope="module")
def execution():
    torch.set_num_threads(1)
    return {name: run._activations(SPECS[name], CONFIGS[name], SETTINGS, {}) for name in SPECS}


def compute(execution, workloads=WORKLOADS):
    return ledger.compute({n: s.to_json() for n, s in SPECS.items()}, workloads, SETTINGS, PUBLIC, execution)


def differing(execution):
    return [row for row in compute(execution, {}) if row["difference"]]


def test_every_model_to_the_byte(execution):
    rows = compute(execution)
    assert len(SHIPPED) >= 20
    ran = [row for row in rows if row["workload"] == COPY]
    assert all(row["difference"] == 0 for row in ran)
    assert all(row["difference"] is None for row in rows if row["workload"] != COPY)
    for implementation in ("ours", "transformers"):
        assert {row["model"] for row in ran if row["implementation"] == implementation} == set(SPECS)
    without = {
        name: {row["model"] for row in ran if row["implementation"] == name and row["method"] == "fused"}
        for name in ("ours", "transformers")
    }
    assert without["ours"] == set(SPECS)
    assert set(SHIPPED) - without["transformers"] == {"deepseek-v3", "gpt-oss-20b", "gemma-2-9b", "falcon-7b"}


@pytest.mark.parametrize("name", ["mixtral-8x7b", "gpt-oss-20b"])
def test_a_model_is_traced_at_full_width(name):
    spec, loads = SPECS[name], {"b8-t2048": WORKLOADS["b8-t2048"]}
    made = {name: run._activations(spec, CONFIGS[name], SETTINGS, loads)}
    rows = [row for row in compute(made, loads) if row["model"] == name and row["workload"] != COPY]
    assert {row["difference"] for row in rows} == {0}
    assert {row["implementation"] for row in rows} == {"ours", "transformers"}
    assert max(row["bytes"] for row in rows) > 2**32  # more than the process may take


def test_what_a_grouped_kernel_refuses_is_compared_with_nothing():
    spec, loads = SPECS["deepseek_v2"], {"b1-t512": WORKLOADS["b1-t512"]}
    assert any(layer.feedforward.width % 8 for _, layer in spec.kinds())
    rows = run._activations(spec, CONFIGS["deepseek_v2"], SETTINGS, loads)
    assert {row["implementation"] for row in rows if row["workload"] != COPY} == {"ours"}


def test_what_is_covered_is_what_the_reader_knows():
    assert set(copies.PUBLIC) == set(public_activations.FAMILIES) < set(huggingface.KNOWN)
    assert {facts["model_type"] for facts in PUBLIC.values()} == set(copies.PUBLIC)
    eager = {facts["model_type"] for facts in PUBLIC.values() if not fuses(facts)}
    assert eager == {"bloom", "gemma2", "gpt_oss", "deepseek_v2", "deepseek_v3", "falcon"}


@pytest.mark.parametrize("name", [name for name, facts in PUBLIC.items() if not fuses(facts)])
def test_what_is_said_not_to_fuse_does_not(monkeypatch, name):
    monkeypatch.setattr(executed, "ways", lambda *_: [("fused", False, False)])
    config = public_config(shrunken(SPECS[name], LARGEST, 16), CONFIGS[name])
    with pytest.raises((RuntimeError, ValueError), match=r"No available kernel|scaled_dot_product_attention"):
        executed.measured(executed.transformers(config, "bf16", NO_DROPOUT), 2, 16)


def test_every_formula_is_measured():
    used = set()
    for name, spec in SPECS.items():
        for batch in (1, 2):  # see test_transformers_at_random_shapes
            for *_, own in ledger._runs(spec, batch, 16, "bf16", PUBLIC[name]):
                for *_, parts in ledger.scopes(shrunken(spec, LARGEST, 16), own):
                    used |= {part.formula.__name__ for part in parts if part.bytes}
    module = {name for name, made in vars(formulas).items() if hasattr(made, "__wrapped__")}
    # No shipped family has the first; random decoders below do. The other is of a model over several devices.
    assert module - used == {"shared_gate", "loss_cut"}


def test_parts_add_up(execution):
    for key, rows in tables.by(compute(execution), *ROW).items():
        (total,) = [row["bytes"] for row in rows if row["scope"] == "total"]
        assert total == sum(row["layers"] * row["bytes"] for row in rows if row["scope"] != "total"), key
        if key[1] != COPY:
            assert sum(row["layers"] for row in rows if row["scope"] == "layer") == SPECS[key[0]].depth


def test_fewer_bytes_fused_and_checkpointed(execution):
    rows = [row for row in compute(execution) if row["scope"] == "total" and row["workload"] == "b8-t2048"]
    for own in tables.by(rows, "model", "implementation", "dropout").values():
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
        ("loss", lambda B, T, V: 2 * B * T * V),
        ("dropped_weights", lambda B, T, h, b: B * h * T**2),
        ("dropout_mask", lambda B, T, d, b: B * T * d),
        ("batch_mask", lambda B, T, b: T**2 * b),
        ("batch_bias", lambda B, T, h, b: B * T**2 * b),
        ("rms_norm_narrow", lambda B, T, d, b: 4 * B * T * d + B * T * d * b),
        ("rms_norm_plus_one", lambda B, T, d: 4 * B * T * (2 * d + 1)),
        ("query_norm_narrow", lambda B, T, h, d_h, b: 4 * B * T * h * (2 * d_h + 1)),
        ("key_norm_plus_one", lambda B, T, h_kv, d_h: 4 * B * T * h_kv * (2 * d_h + 1)),
        ("latent_norm_narrow", lambda B, T, r_kv, b: 4 * B * T * (2 * r_kv + 1)),
        ("query_rank_norm_narrow", lambda B, T, r_q, b: 4 * B * T * (2 * r_q + 1)),
        ("queries_keys_values", lambda B, T, h, h_kv, d_h, b: B * T * h_kv * d_h * b),
        ("picked_heads", lambda m: 4 * m),
        ("attention_weights_wide", lambda B, T, h, b: B * h * T**2 * b),
        ("capped_scores", lambda B, T, h, b: 0),
        ("capped_logits", lambda B, T, V, b: 4 * B * T * V),
        ("largest_scores", lambda B, T, h: 4 * B * h * T),
        ("rotation_narrow", lambda T, d_r, b: 8 * T * d_r),
        ("rotation_pairs", lambda T, d_r, b: 2 * T * d_r * b),
        ("rotation_complex", lambda T, d_r: 8 * T * d_r),
        ("embedding_factor", lambda b: 4),
        ("batch_position_ids", lambda B, T: 8 * T),
        ("model_wide_fp32", lambda B, T, d: 2 * B * T * d),
        ("router_probabilities", lambda B, T, E: 2 * B * T * E),
        ("normalised_routes", lambda B, T, k: 4 * B * T * k),
        ("route_indices", lambda B, T, k: 4 * B * T * k),
        ("route_weights", lambda B, T, k, b: 4 * B * T * k),
        ("route_weights_wide", lambda B, T, k: 2 * B * T * k),
        ("expert_ends", lambda E: 8 * E),
        ("best_of_groups", lambda B, T, n_g: 8 * B * T),
        ("chosen_groups", lambda B, T, k_g: 8 * B * T),
        ("hidden_experts", lambda B, T, E: 0),
    ],
)
def test_a_wrong_formula_shows(execution, monkeypatch, formula, change):
    right = getattr(formulas, formula)

    def size(self):
        return self.copies * (change if self.formula is right else self.formula)(**self.arguments)

    monkeypatch.setattr(ledger.Saved, "bytes", property(size))
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


def test_a_training_of_gpt_2_with_the_dropout_of_its_file():
    """A figure from elsewhere: one sequence of 1,024 tokens, eager, in bf16; dropout 0.1.

    Its loss is the class's own, which keeps one label more than there are tokens.
    """
    spec, public = SPECS["gpt2"], PUBLIC["gpt2"]
    found = {}
    for on in (spec.dropout, NO_DROPOUT):
        own = ledger.Run(1, 1024, 2, False, False, public, on)
        bytes_ = {scope: sum(part.bytes for part in parts) for scope, _, _, parts in ledger.scopes(spec, own)}
        found[on.any] = bytes_["layer"], bytes_["total"] + 8
    assert found == {True: (122_691_584, 1_682_898_956), False: (69_214_208, 1_039_597_580)}


VARIED = {
    "activation_function hidden_activation hidden_act activation": list(ACTIVATIONS),
    "attn_logit_softcapping final_logit_softcapping": [None, 20.0],
    "norm_topk_prob alibi use_parallel_residual attention_bias": [False, True],
    "partial_rotary_factor rotary_pct": [0.25, 0.5, 1.0],
    "sliding_window": [None, 64],
    "num_key_value_heads": [1, 4, None],
}


def varied(name, r):
    """The model's config.json with some of its keys given another value."""
    config = dict(CONFIGS[name])
    for keys, values in VARIED.items():
        for key in keys.split():
            if key in config and r.random() < 0.5:
                config[key] = r.choice(values)
    for key in huggingface.dropout_keys(config["model_type"]):
        config[key] = r.choice([0.0, 0.2])
    try:
        huggingface.read(name, config)
    except huggingface.ModelError:
        return CONFIGS[name]
    return config


@pytest.mark.parametrize("name", sorted(set(CONFIGS) - {"llama-2-70b", "llama-3-70b", "llama-3.1-70b", "gpt2-large"}))
@pytest.mark.parametrize("batch", [1, 2, 3])
def test_transformers_at_random_shapes(name, batch):
    r = random.Random(f"{name} {batch}")
    config = varied(name, r)
    spec = huggingface.read(name, config)[0]
    facts = public(config, spec)
    if facts is None:  # Falcon's new architecture with ALiBi
        config, facts, spec = CONFIGS[name], PUBLIC[name], SPECS[name]
    largest = {"kv_heads": r.randint(1, 4), "group": r.randint(1, 4), "head_dim": 2 * r.randint(1, 12)}
    largest |= {"d_model": r.randint(2, 64), "rank": r.randint(1, 20), "d_ff": r.randint(1, 70)}
    largest |= {"experts": r.randint(1, 9), "vocabulary": r.randint(2, 90), "window": r.randint(1, 14)}
    spec = shrunken(spec, largest, 16)
    tokens = r.choice([1, 2, 5, 8, 13, 16])
    found = executed.measured(
        executed.transformers(public_config(spec, config), r.choice(["bf16", "fp16"]), spec.dropout), batch, tokens
    )
    assert any(method.endswith("-dropout") for method, _ in found) == spec.dropout.any
    assert found == predicted(spec, batch, tokens, found, facts), (config, spec, batch, tokens)


def predicted(spec, batch, tokens, found, family=None):
    """The ledger's bytes for every method of `found`."""
    out = {}
    for method in {method for method, _ in found}:
        way, on = method.split("-"), spec.dropout if method.endswith("-dropout") else NO_DROPOUT
        own = ledger.Run(batch, tokens, 2, way[0] == "fused", "checkpointed" in way, family, on)
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
        tuple((2, kind) for kind in kinds),
        "learned" if learned else r.choice(["rope", "none"]),
        22 if learned else 0,
        norm=r.choice(["layernorm", "rmsnorm"]),
        embedding_norm=r.random() < 0.2,
        final_norm=r.random() < 0.8,
        tied_head=r.random() < 0.5,
        embedding_width=r.choice([0, 0, max(1, d // 2)]),
        dropout=Dropout(*(r.choice([0.0, 0.3]) for _ in range(4))) if r.random() < 0.5 else NO_DROPOUT,
    )


@pytest.mark.parametrize("seed", range(60))
def test_random_decoders_to_the_byte(seed):
    r = random.Random(-1 - seed)
    spec, batch, tokens = drawn(seed), r.randint(1, 3), r.choice([1, 2, 3, 7, 12])
    found = executed.measured(executed.ours(spec, r.choice(["bf16", "fp16"])), batch, tokens)
    assert found == predicted(spec, batch, tokens, found), spec


def test_grouped_experts_have_the_gathered_ones_gradients():
    torch.manual_seed(0)
    experts = Experts(4, 5, 3, bias=True).double()
    x, chosen = torch.randn(11, 5, dtype=torch.float64, requires_grad=True), torch.randint(4, (11,))
    inputs = [x, experts.weight, experts.bias]
    weight = torch.randn(11, 3, dtype=torch.float64)
    wanted, got = experts(x, chosen), executed.grouped(experts, x, chosen)
    torch.testing.assert_close(got, wanted)
    for a, b in zip(*(torch.autograd.grad((y * weight).sum(), inputs) for y in (got, wanted)), strict=True):
        torch.testing.assert_close(a, b)


MODELS_OF_ALL_KINDS = ["gpt2", "llama-3-8b", "gemma-3-1b", "mixtral-8x7b", "falcon-7b", "deepseek-v3", "gpt-oss-20b"]


@pytest.mark.parametrize("name", MODELS_OF_ALL_KINDS)
def test_fused_and_checkpointed_are_the_same_function(name):
    spec = shrunken(SPECS[name], LARGEST, 16)
    torch.manual_seed(0)
    plain = executed.decoder(spec, "fp32", "eager", False).double()
    for module in plain.modules():
        if isinstance(module, AttentionModule) and module.sinks is not None:
            torch.nn.init.normal_(module.sinks)
    ids = torch.randint(spec.vocabulary, (2, 16))
    wanted = gradients(plain, ids)
    for method, checkpointed in (("fused", False), ("eager", True), ("fused", True)):
        other = executed.decoder(spec, "fp32", method, checkpointed).double()
        other.load_state_dict(plain.state_dict())
        torch.testing.assert_close(gradients(other, ids), wanted)


def gradients(model, ids):
    """The logits, and the gradient of their sum of squares by every parameter."""
    logits = model(ids)
    return [logits, *torch.autograd.grad(logits.square().sum(), list(model.parameters()), allow_unused=True)]


@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_sinks_in_the_fused_kernel(window, kv_heads):
    torch.manual_seed(0)
    double = {"dtype": torch.float64, "requires_grad": True}
    q, k, v = (torch.randn(2, heads, 5, 4, **double) for heads in (4, kv_heads, kv_heads))
    sinks = torch.randn(4, **double)
    behind = torch.arange(5).unsqueeze(1) - torch.arange(5)
    hidden = (behind < 0) | (behind >= (window or 5))
    mask = torch.zeros(5, 5, dtype=torch.float64).masked_fill(hidden, -torch.inf) if window else None

    def fused(*inputs):
        return executed._WithSinks.apply(*inputs, mask, 0.3)

    assert torch.autograd.gradcheck(fused, (q, k, v, sinks))
    scores = (q @ k.repeat_interleave(4 // kv_heads, 1).mT * 0.3).masked_fill(hidden, -torch.inf)
    weights = torch.cat([scores, sinks.view(1, 4, 1, 1).expand(2, 4, 5, 1)], -1).softmax(-1)[..., :-1]
    torch.testing.assert_close(fused(q, k, v, sinks), weights @ v.repeat_interleave(4 // kv_heads, 1))


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
            assert (a.attention.kv_heads > 1) == (b.attention.kv_heads > 1)
            assert bool(a.feedforward.shared_width) == bool(b.feedforward.shared_width)
        assert small.d_model <= LARGEST["d_model"] or small.d_model == 48  # heads times their width


def test_public_knows_what_it_does_not_know():
    spec = SPECS["llama-3-8b"]
    assert public(None, spec) is None
    assert public({"model_type": "unheard-of"}, spec) is None
    assert public({"model_type": "llama", "hidden_act": "tanh"}, spec) is None
    assert public({"model_type": "gpt2", "reorder_and_upcast_attn": True}, SPECS["gpt2"]) is None
    assert public({"model_type": "mixtral", "output_router_logits": True}, spec) is None
    assert public({"model_type": "gpt2"}, SPECS["gpt2"])["activation"] == "gelu_new"
    new = {"model_type": "falcon", "new_decoder_architecture": True}
    assert public(new, SPECS["falcon 40b"]) is not None
    assert public(new | {"alibi": True}, SPECS["falcon 40b"]) is None
    assert public(new, SPECS["falcon-7b"]) is None  # it has one key/value head


def test_public_reads_old_and_new_files():
    spec = SPECS["gpt-neox-20b"]
    for keys in ({"rotary_pct": 0.5}, {"rope_parameters": {"partial_rotary_factor": 0.5}}):
        assert public({"model_type": "gpt_neox", **keys}, spec)["partial_rotary_factor"] == 0.5
    assert public({"model_type": "gpt_neox"}, spec)["partial_rotary_factor"] == 0.25
    assert copies.groups(PUBLIC["deepseek-v3"], 256) == (8, 4)  # the model's own
    assert copies.groups(PUBLIC["deepseek-v3"], 6) == (3, 3)
    inner = CONFIGS["gemma-3-1b"]
    multimodal = {"model_type": "gemma3", "text_config": inner}
    assert public(multimodal, SPECS["gemma-3-1b"]) == PUBLIC["gemma-3-1b"]
    small = shrunken(SPECS["gemma-3-1b"], LARGEST, 16)
    assert public_config(small, multimodal) == public_config(small, inner) | {"model_type": "gemma3_text"}


def test_a_fused_kernel_drops_no_weights():
    plain = [("eager", False, False), ("eager", True, False), ("fused", False, False), ("fused", True, False)]
    dropping = [("eager", False, True), ("eager", True, True)]
    assert list(copies.ways(None, Dropout(weights=0.1))) == plain + dropping
    fused = [("fused", False, True), ("fused", True, True)]
    assert list(copies.ways(None, Dropout(attention=0.1))) == plain + dropping + fused
    assert list(copies.ways(None, Dropout())) == plain


def test_the_table_takes_the_rows(execution, tmp_path):
    rows = compute(execution)
    tables.write(tmp_path / "a.parquet", "ledger/activations", rows, {})
    assert len(tables.read(tmp_path / "a.parquet", "ledger/activations")) == len(rows)
    for name, made in execution.items():
        tables.write(tmp_path / f"{name}.parquet", "execution", made, {})
