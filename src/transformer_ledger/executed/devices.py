"""One of several devices, as torch makes it: tensors that it really cuts, and the module of a device that really runs.

torch's process group is a fake one: it has any number of devices and no process, so that what a device gets from another
has the right shape and no meaning. Weights and caches stand on the meta device. Activations are seen by the hooks of
`activations`, with fake tensors of the CPU: its own kernels are asked for shapes, at full size. This process is the first
device of each group, which gets no less than any other where torch cuts unevenly.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._functional_collectives import all_gather_single, all_reduce, reduce_scatter_single
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.pipelining import Schedule1F1B
from torch.distributed.pipelining.schedules import _ComputationType
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from transformer_ledger.executed import activations
from transformer_ledger.executed.cache import DTYPES, Cache, storage_bytes
from transformer_ledger.executed.decoder import Attention, Decoder, Experts, FixedState, Indexer, LatentAttention
from transformer_ledger.executed.optimizer import fullest, step
from transformer_ledger.model import Attention as Attends
from transformer_ledger.model import ModelSpec

BY_OUTPUT = ("query", "key", "value", "gate", "up", "rates", "steps")
BY_INPUT = ("output", "down")


@contextmanager
def group(devices: int) -> Iterator[None]:
    """A fake process group of `devices`, of which this process is the first."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=devices, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


def _mesh(degree: int) -> DeviceMesh:
    """The first `degree` devices."""
    return init_device_mesh("cpu", (dist.get_world_size() // degree, degree), mesh_dim_names=("all", "one"))["one"]


# ------------------------------------------------------------------------------------------------ weights, cut by torch


def _replace(module: nn.Module, name: str, mesh: DeviceMesh, side: int) -> None:
    tensor = getattr(module, name)
    if tensor is not None:
        setattr(module, name, nn.Parameter(distribute_tensor(tensor, mesh, [Shard(side)])))


def _experts(module: Experts, down: bool, mesh: DeviceMesh, spread: bool) -> None:
    """Whole experts, or each expert's width: of the map down, its inputs."""
    _replace(module, "weight", mesh, 0 if spread else 2 if down else 1)
    if spread or not down:
        _replace(module, "bias", mesh, 0 if spread else 1)


def _fixed_state(module: FixedState, mesh: DeviceMesh) -> None:
    """What a head or a group has by itself; a device without a group of its own has the first."""
    own = module.spec
    keys, values = own.groups * own.key_dim, own.heads * own.value_dim
    for holder in (module.input, module.convolution):
        for name, tensor in list(holder.named_parameters()):
            split = tensor.detach().split((keys, keys, values))
            pieces = [part(distribute_tensor(piece, mesh, [Shard(0)])) for piece in split]
            if own.groups < mesh.size():
                pieces[:2] = [piece[: own.key_dim] for piece in split[:2]]
            setattr(holder, name, nn.Parameter(torch.cat(pieces)))
    for name in ("decay", "step", "skip"):
        _replace(module, name, mesh, 0)
    if own.rule == "ssm" and module.norm is not None:
        _replace(module.norm, "weight", mesh, 0)


def _one_head(module: Attention, path: str, degree: int) -> bool:
    """Whether a key or value map has fewer heads than devices, and so leaves each a copy of one head."""
    if path.rpartition(".")[2] not in ("key", "value") or isinstance(module, LatentAttention):
        return False
    return module.spec.kv_heads < degree


def cut(spec: ModelSpec, tensor: int, expert: int) -> Decoder:
    """A decoder on the meta device with one layer of each kind, its maps DTensors over `tensor` or `expert` devices."""
    with torch.device("meta"):
        model = Decoder(replace(spec, layers=tuple((1, layer) for _, layer in spec.kinds())))
    mesh, spread = _mesh(tensor), _mesh(expert)
    plan: dict[str, Any] = {"token_embedding": RowwiseParallel()}
    if not spec.tied_head and spec.head_width:
        plan["head"] = ColwiseParallel()
    for path, module in list(model.named_modules()):
        holder, _, name = path.rpartition(".")
        owner = model.get_submodule(holder)
        if isinstance(module, Experts):
            _experts(module, name == "down", spread if expert > 1 else mesh, expert > 1)
        elif isinstance(module, Attention) and module.sinks is not None:
            _replace(module, "sinks", mesh, 0)
        elif isinstance(module, FixedState):
            _fixed_state(module, mesh)
        elif isinstance(owner, Indexer):  # whole on every device, as engines have it
            continue
        elif isinstance(module, nn.Linear) and isinstance(owner, Attention) and _one_head(owner, path, tensor):
            for part, old in list(module.named_parameters()):
                setattr(module, part, nn.Parameter(old[: owner.spec.head_dim]))
        elif isinstance(module, nn.Linear) and name in BY_OUTPUT and tensor > 1:
            plan[path] = ColwiseParallel()
        elif isinstance(module, nn.Linear) and name in BY_INPUT and tensor > 1:
            plan[path] = RowwiseParallel()
    if tensor > 1:
        parallelize_module(model, mesh, plan)
    if spec.tied_head:
        model.head.weight = model.token_embedding.weight
    return model


def part(tensor: Tensor) -> Tensor:
    """What this device has of a tensor."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def local(model: Decoder) -> ModelSpec:
    """The description of what a device has of a cut decoder, read off its tensors: one layer of each kind."""

    def rows(module: Any, axis: int = 0) -> int:
        return int(part(module.weight).shape[axis])

    layers = []
    block: Any
    for (_, layer), block in zip(model.spec.layers, model.layers, strict=True):
        a, ff = layer.mixer, layer.feedforward
        if isinstance(a, Attends):
            own, latent = block.attention, a.latent
            widths = (latent.nope_dim + latent.rope_dim, latent.nope_dim) if latent else (a.head_dim, a.head_dim)
            a = replace(a, heads=rows(own.query) // widths[0], kv_heads=rows(own.key) // widths[1])
        state = layer.state
        if state:
            heads = len(part(block.state.decay))
            channels = rows(block.state.convolution) - heads * state.value_dim
            state = replace(state, heads=heads, groups=channels // (2 * state.key_dim))
        if ff.kind != "none":
            ff = replace(ff, width=rows(block.feedforward.up, 1 if ff.experts else 0))
        if ff.shared_width:
            ff = replace(ff, shared_width=rows(block.shared_feedforward.up))
        beside = layer.beside and state
        layers.append((1, replace(layer, mixer=a if isinstance(a, Attends) else state, feedforward=ff, beside=beside)))
    return replace(model.spec, layers=tuple(layers), vocabulary=rows(model.token_embedding))


def layers_of(spec: ModelSpec, stages: int) -> list[Counter[int]]:
    """For each stage of a pipeline how many layers of each kind it has, the first stages one more."""
    kinds = [layer for _, layer in spec.kinds()]
    every = torch.tensor([kinds.index(layer) for layer in spec.each_layer()])
    return [Counter(stage.tolist()) for stage in every.tensor_split(stages)]


def _copies(path: str, counts: Counter[int], first: bool, last: bool, tied: bool) -> int:
    """How many tensors of a stage the one at `path` stands for."""
    top, _, rest = path.partition(".")
    if top == "layers":
        return counts[int(rest.partition(".")[0])]
    if top in ("norm", "head", "head_projection"):
        return int(last)
    return int(first or (last and tied and top == "token_embedding"))


def state(
    spec: ModelSpec, model: Decoder, layout: Mapping[str, Any], recipe: Mapping[str, Any]
) -> list[dict[str, int | None]]:
    """For each stage the bytes of each item of a recipe, from the tensors that a real step leaves on this device.

    The devices that have the same tensors share one flat tensor of them, cut into equal parts.
    """
    named = {path: nn.Parameter(part(tensor)) for path, tensor in model.named_parameters()}
    for tensor in named.values():
        tensor.grad = torch.empty_like(tensor)
    stepped = dict(zip(named, step(list(named.values()), recipe), strict=True))
    spread = {path for path in named if layout["expert"] > 1 and isinstance(_holder(model, path), Experts)}
    stage_devices = layout["data"] * layout["tensor"] * layout["context"]
    zero = recipe.get("zero_stage") or 0 if layout["zero_stage"] is None else layout["zero_stage"]
    found = []
    counts = layers_of(spec, layout["pipeline"])
    for stage, own in enumerate(counts):
        items: dict[str, int | None] = {}
        for paths, degree in ((spread, layout["expert"]), (named.keys() - spread, layout["tensor"])):
            kept: dict[str, list[tuple[int, list[Tensor]]]] = {}
            for path in [path for path in named if path in paths]:
                copies = _copies(path, own, stage == 0, stage == len(counts) - 1, spec.tied_head)
                for (item, _), tensors in stepped[path].items() if copies else ():
                    kept.setdefault(item, []).append((copies, tensors))
            for item, every in kept.items():
                share = fullest(item, every, {"devices": stage_devices // degree, "zero_stage": zero})
                items[item] = None if share is None else (items.get(item) or 0) + share
        found.append(items)
    return found


def _holder(model: Decoder, path: str) -> nn.Module:
    return model.get_submodule(path.rpartition(".")[0])


def weights(spec: ModelSpec, model: Decoder, stages: int, dtype: str) -> list[int]:
    """Bytes of the weights of each stage in one type, undivided."""
    named, counts = dict(model.named_parameters()), layers_of(spec, stages)
    size = {path: storage_bytes([part(t).to(DTYPES[dtype], copy=True)]) for path, t in named.items()}
    return [
        sum(_copies(path, own, n == 0, n == stages - 1, spec.tied_head) * size[path] for path in named)
        for n, own in enumerate(counts)
    ]


def cached(spec: ModelSpec, model: Decoder, layout: Mapping[str, Any], B: int, T: int, dtype: str) -> list[int]:
    """Bytes in the caches of each stage after this device ran its sequences and positions."""
    with torch.device("meta"):
        own = Decoder(local(model))
    cache = Cache(dtype)
    sequences, positions = (
        len(torch.arange(n).tensor_split(layout[key])[0]) for n, key in ((B, "data"), (T, "context"))
    )
    with torch.no_grad():
        own(torch.zeros(sequences, positions, dtype=torch.long, device="meta"), cache)
    size = Counter[int]()
    for kept in (cache.kept, cache.states):
        size.update({n: storage_bytes(t for tensors in own for t in tensors) for n, own in kept.items()})
    return [
        sum(copies * size[kind] for kind, copies in counts.items()) for counts in layers_of(spec, layout["pipeline"])
    ]


# ------------------------------------------------------------------------------------------------ the module of a device


class _GatheredLinear(torch.autograd.Function):
    """A linear map of all tokens (B, T, in), of which each device has, and saves, its own (Megatron's sequence parallelism)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, mesh: DeviceMesh) -> Tensor:
        ctx.save_for_backward(x, weight)
        return functional.linear(all_gather_single(x.contiguous(), 1, mesh), weight, bias)


class _CutLoss(torch.autograd.Function):
    """Cross-entropy of logits (n, V) in fp32 where each device has V tokens of the vocabulary (Megatron's)."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, wanted: Tensor, mesh: DeviceMesh) -> Tensor:
        first = mesh.get_local_rank() * logits.shape[-1]
        elsewhere = (wanted < first) | (wanted >= first + logits.shape[-1])
        own = (wanted - first).masked_fill(elsewhere, 0)
        softmax = (logits - all_reduce(logits.amax(-1), "max", mesh).unsqueeze(-1)).exp()
        total = all_reduce(softmax.sum(-1), "sum", mesh)
        chosen = logits.gather(-1, own.unsqueeze(-1)).squeeze(-1).masked_fill(elsewhere, 0)
        softmax /= total.unsqueeze(-1)
        ctx.save_for_backward(softmax, elsewhere, own)
        return total.log() - all_reduce(chosen, "sum", mesh)


def _shared_tokens(model: Decoder, mesh: DeviceMesh) -> None:
    """Let the devices share the tokens between the maps: gathered before a cut map, summed and shared out behind it."""

    def gathered(module: Any, x: Tensor) -> Tensor:
        return _GatheredLinear.apply(x, module.weight, module.bias, mesh)

    def shared(forward: Any, x: Tensor) -> Tensor:
        return reduce_scatter_single(forward(x), "sum", 1, mesh)

    def own(forward: Any, x: Tensor) -> Tensor:
        return forward(x).tensor_split(mesh.size())[mesh.get_local_rank()]

    def turned(rotation: Any, *arguments: Any) -> Any:
        rotate = rotation(*arguments)
        T = len(arguments[0])
        return lambda x: rotate(x if x.shape[-2] == T else all_gather_single(x.contiguous(), x.dim() - 2, mesh))

    spread = [path for path, module in model.named_modules() if isinstance(module, Experts)]
    for path, module in model.named_modules():
        name = path.rpartition(".")[2]
        if path in spread or not isinstance(module, (nn.Linear, nn.Embedding)):
            continue
        if name in (*BY_OUTPUT, "head"):
            module.forward = functools.partial(gathered, module)  # type: ignore[method-assign]
        elif name in (*BY_INPUT, "token_embedding"):
            module.forward = functools.partial(shared, module.forward)  # type: ignore[method-assign]
        elif name == "position_embedding":
            module.forward = functools.partial(own, module.forward)  # type: ignore[method-assign]
    model._rotate = functools.partial(turned, model._rotate)  # type: ignore[method-assign]


def device(spec: ModelSpec, layout: Mapping[str, Any], mesh: DeviceMesh, dtype: str) -> Decoder:
    """The module of one device, from the description of what it has; with fake tensors, in their default type."""
    model = activations.decoder(spec, dtype, layout["attention"], layout["checkpointing"] == "full")
    if layout["sequence_parallel"] and mesh.size() > 1:
        _shared_tokens(model, mesh)
    for module in model.modules():
        if isinstance(module, Attention) and layout["checkpointing"] == "selective":
            module.attend = functools.partial(checkpoint, module.attend, use_reentrant=False)  # type: ignore[method-assign]
    return model


def _loss(logits: Tensor, wanted: Tensor, mesh: DeviceMesh) -> Tensor:
    flat = logits.float().flatten(0, 1)
    if mesh.size() == 1:
        return functional.cross_entropy(flat, wanted.flatten())
    return _CutLoss.apply(flat, wanted.flatten(), mesh).mean()


def saved(spec: ModelSpec, model: Decoder, layout: Mapping[str, Any], B: int, T: int, dtype: str) -> list[int]:
    """Bytes that a device of each stage has saved when it has most micro-batches under way."""
    own, mesh = local(model), _mesh(layout["tensor"])
    sequences = len(torch.arange(B).tensor_split(layout["data"] * layout["microbatches"])[0])
    positions = len(torch.arange(T).tensor_split(layout["context"])[0])

    @functools.cache
    def traced(kinds: tuple[int, ...]) -> Counter[Any]:
        with FakeTensorMode():
            described = replace(own, layers=tuple((2, own.layers[kind][1]) for kind in kinds))
            ran = device(described, layout, mesh, dtype)
            kept = activations.Saved(ran.parameters())
            ids, wanted = (torch.zeros(sequences, positions, dtype=torch.long) for _ in range(2))
            with kept.watching(ran.layers, behind="ended"):
                logits = ran(ids)
                kept.part = "loss"
                _loss(logits, wanted, mesh)
        return kept.bytes

    under_way = most_under_way(layout["pipeline"], layout["microbatches"])
    found = []
    for stage, counts in enumerate(layers_of(spec, layout["pipeline"])):
        size = traced(kinds := tuple(sorted(counts)))  # masks and angles are saved with the first layer that reads them
        total = sum(size[2 * n] + (counts[kind] - 1) * size[2 * n + 1] for n, kind in enumerate(kinds))
        total += size["outside"] * (stage == 0)
        total += (size["ended"] + size["loss"]) * (stage == layout["pipeline"] - 1)
        found.append(under_way[stage] * total)
    return found


def most_under_way(stages: int, microbatches: int) -> list[int]:
    """For each stage the most micro-batches that have gone forward and not yet backward, in torch's own schedule."""
    sizes = SimpleNamespace(_num_stages=stages, _n_microbatches=max(microbatches, stages))  # it has no case for fewer
    found = []
    for actions in Schedule1F1B._get_pipeline_order(sizes).values():  # type: ignore[arg-type, union-attr]
        ran = [action.computation_type for action in actions if action]
        gone, back, most = 0, 0, 0
        for kind in ran:
            gone = min(gone + (kind == _ComputationType.FORWARD), microbatches)
            most = max(most, gone - back)
            back += kind == _ComputationType.FULL_BACKWARD
        found.append(most)
    return found


# ------------------------------------------------------------------------------------------------ rows


def counted(spec: ModelSpec, given: Mapping[str, Any]) -> dict[str, list[dict[str, int | None]]]:
    """Phase → for each stage the bytes of each item, of one entry of `layouts`."""
    layout, recipe, B, T = given["layout"], given["state"], given["batch"], given["context"]
    dtype, tensor = recipe["weights"], layout["tensor"]
    with group(layout["data"] * tensor * layout["context"]):
        model = cut(spec, tensor, layout["expert"])
        training = state(spec, model, layout, recipe)
        if given["trained"]:
            for items, size in zip(training, saved(spec, model, layout, B, T, dtype), strict=True):
                items["activations"] = size
        caches = cached(spec, model, layout, B, T, given["cache_dtype"])
        held = weights(spec, model, layout["pipeline"], dtype)
    inference: list[dict[str, int | None]] = [
        {"weights": size, "cache": cache} for size, cache in zip(held, caches, strict=True)
    ]
    return {"training": training, "inference": inference}


def rows(make: Any, spec: ModelSpec, layouts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of the table `execution`: every item of every stage, and the sum of the stage that has most."""
    made = []
    for name, given in layouts.items():
        for phase, stages in counted(spec, given).items():
            counts = {
                (item, f"stage {stage}"): size
                for stage, items in enumerate(stages)
                for item, size in items.items()
                if size is not None
            }
            if all(size is not None for items in stages for size in items.values()):
                counts["all", ""] = max(sum(items.values()) for items in stages)  # type: ignore[arg-type]
            made += make("device_bytes", counts, name, phase, total=False)
    return made
