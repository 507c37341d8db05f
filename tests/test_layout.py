"""What the fullest of several devices holds, against tensors that torch really cuts (DTensor, a process group without
processes) and against caches of their heads; degrees that do not fit are refused."""

import json
from pathlib import Path

import pytest

from transformer_ledger import huggingface, size
from transformer_ledger.families import ADAMW, FAMILIES
from transformer_ledger.ledger import kv_cache, layout
from transformer_ledger.ledger import parameters as ledger
from transformer_ledger.ledger.layout import Layout

torch = pytest.importorskip("torch")
NEWER = Path(__file__).parents[1] / "resources/models/newer"


def read(name):
    return huggingface.read(name, json.loads((NEWER / f"{name}.json").read_text()))[0]


@pytest.fixture
def devices():
    """A mesh of n devices of which this process is the first; no process is started."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    def mesh(n):
        torch.distributed.init_process_group("fake", rank=0, world_size=n, store=FakeStore())
        return torch.distributed.init_device_mesh("cpu", (n,))

    yield mesh
    torch.distributed.destroy_process_group()


def cut(spec, mesh, expert):
    """Numbers of our decoder on the first device, each map cut by torch."""
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    from transformer_ledger.executed.decoder import Decoder, Experts

    t = mesh.size()
    with torch.device("meta"):
        model = Decoder(spec)
    plan = {"token_embedding": RowwiseParallel()} | ({} if spec.tied_head else {"head": ColwiseParallel()})
    for path, module in model.named_modules():
        if isinstance(module, Experts):
            side = 0 if expert else 2 if path.endswith("down") else 1
            module.weight = torch.nn.Parameter(distribute_tensor(module.weight, mesh, [Shard(side)]))
            if module.bias is not None and (expert or side == 1):
                module.bias = torch.nn.Parameter(distribute_tensor(module.bias, mesh, [Shard(0 if expert else 1)]))
        elif path.endswith((".query", ".up", ".gate")):
            plan[path] = ColwiseParallel()
        elif path.endswith((".key", ".value")):
            latent = type(module).__name__ == "Absorbable"
            own = spec.layers[0][1].attention
            if latent or own.kv_heads >= t:
                plan[path] = ColwiseParallel()
            else:  # a device has a copy of one head
                module.weight = torch.nn.Parameter(module.weight[: own.head_dim])
                if module.bias is not None:
                    module.bias = torch.nn.Parameter(module.bias[: own.head_dim])
        elif path.endswith((".output", ".down")):
            plan[path] = RowwiseParallel()
    parallelize_module(model, mesh, plan)
    if spec.tied_head:
        model.head.weight = model.token_embedding.weight
    local = [p.to_local() if hasattr(p, "to_local") else p for p in model.parameters()]
    sinks = sum(a.sinks.numel() for a in model.modules() if getattr(a, "sinks", None) is not None)
    return sum(p.numel() for p in local) - sinks * (t - 1) // t


@pytest.mark.parametrize("degree", [2, 4])
@pytest.mark.parametrize(
    "name", ["llama", "mixtral", "qwen2_moe", "glm4_moe", "deepseek_v3", "gpt_oss", "gpt2", "gemma2"]
)
def test_numbers_on_a_device_are_those_of_tensors_that_torch_cuts(devices, name, degree):
    spec, mesh = FAMILIES[name].read(name), devices(degree)
    experts = any(layer.feedforward.experts for _, layer in spec.layers)
    for expert in (False, True) if experts else (False,):
        own = Layout(tensor=degree, expert=degree if expert else 1)
        assert layout.parameters(spec, own) == cut(spec, mesh, expert)
    assert layout.parameters(spec, Layout()) == ledger.totals(spec)[0]


def test_stages_hold_all_layers_once_and_the_fullest_counts():
    spec = FAMILIES["olmo3"].read("olmo3")  # four layers, of which one is full
    held = [sum(t.copies for t in tensors) for tensors, _ in layout.stages(spec, Layout(pipeline=3))]
    assert [own.depth for _, own in layout.stages(spec, Layout(pipeline=3))] == [2, 1, 1]
    assert sum(held) == ledger.tensor_count(spec)
    tied = huggingface.read("t", dict(FAMILIES["qwen2"].config))[0]
    first, last = (sum(t.parameters for t in tensors) for tensors, _ in layout.stages(tied, Layout(pipeline=2)))
    assert first + last == ledger.totals(tied)[0] + 40 * 32  # the last stage has a copy of the embedding


def test_cache_and_state_on_a_device():
    spec = read("qwen3-32b-fp8")
    found = layout.compute(spec, Layout(tensor=4), 3, 4096, "bf16", "bf16", {})
    assert found["cache_bytes_per_token"] == 65_536
    assert found["cache_bytes"] == 3 * 4096 * 65_536
    wide = layout.compute(spec, Layout(tensor=16), 1, 4096, "bf16", "bf16", {})
    assert wide["cache_bytes_per_token"] == 32_768  # eight heads: each is there twice
    latent = read("kimi-k2-instruct")
    whole = kv_cache.cache_bytes(latent, 1, 4096, "bf16", "needed")
    assert layout.cache_bytes(latent, Layout(tensor=8), 1, 4096, "bf16") == whole
    assert layout.cache_bytes(spec, Layout(data=4), 6, 4096, "bf16") == kv_cache.cache_bytes(
        spec, 2, 4096, "bf16", "needed"
    )
    recipes = {"zero": ADAMW | {"zero_stage": 3}, "plain": ADAMW}
    state = layout.compute(spec, Layout(tensor=4, data=8), 8, 8, "bf16", "bf16", recipes)["training_state_bytes"]
    local = layout.parameters(spec, Layout(tensor=4))
    counters = 4 * ledger.tensor_count(spec)
    assert state == {"zero": 4 * (4 * -(-local // 8)) + counters, "plain": 16 * local + counters}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("tensor=3", "tensor 3 does not divide the attention heads 64"),
        ("tensor=12", "tensor 12 does not divide the attention heads 64"),
        ("pipeline=65", "pipeline 65 is more than the 64 layers"),
        ("expert=2", "expert 2 is more than the data × tensor devices of a stage"),
        ("tensor=0", "is no layout; wanted is data=N,tensor=N,pipeline=N,expert=N"),
        ("tensor=2,tensor=2", "is no layout"),
        ("gpu=2", "is no layout"),
    ],
)
def test_degrees_that_do_not_fit(capsys, given, message):
    code = 0
    try:
        code = size.main([str(NEWER / "qwen3-32b-fp8.json"), "--layout", given])
    except SystemExit as ended:
        code = ended.code
    assert code
    assert message in capsys.readouterr().err


def test_size_says_what_the_fullest_device_holds(capsys):
    import jsonschema

    assert size.main([str(NEWER / "glm-4.5-air.json"), "--layout", "tensor=8,expert=8,pipeline=2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, json.loads(size.SCHEMA.read_text()))
    assert found["fullest_device"]["devices"] == 16
