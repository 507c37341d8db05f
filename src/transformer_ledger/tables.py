"""The tables of `results/`: their columns, an atomic write with provenance, and a read that checks what it reads.

`results/README.md` documents the same columns; a test holds the two together.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Number
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

METADATA_KEY = b"transformer_ledger"
FAMILIES = {"verification": "<name>", "execution": "<name>", "timing": "<name>"}  # one file a name; else one file
FAMILIES |= {"sweep": "<name>/<shard>", "answers": "<name>", "maps": "<name>"}
TYPES = {
    "string": pa.string(),
    "bool": pa.bool_(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "decimal128(38,0)": pa.decimal128(38, 0),
}


class TableError(Exception):
    """A table that cannot be written or trusted; the message names the file and what to do."""


@dataclass(frozen=True)
class Column:
    """One column: its type is a key of TYPES, its meaning one sentence, its unit empty for names and ratios."""

    name: str
    type: str
    meaning: str
    unit: str = ""


def _columns(text: str) -> tuple[Column, ...]:
    """Columns from lines of `name | type | unit | meaning`."""
    rows = [[part.strip() for part in line.split("|", 3)] for line in text.strip().splitlines()]
    return tuple(Column(name, kind, meaning, unit) for name, kind, unit, meaning in rows)


_MODEL = "model | string | | name of the model in the config"
_SWEPT = """layers | int64 | layer | layers
d_model | int64 | component | width of the model
heads | int64 | head | query heads; these and the next sizes are those of its first layer where a model's layers differ
kv_heads | int64 | head | key/value heads
head_dim | int64 | component | width of a head
d_ff | int64 | component | width of the feed-forward, of one expert where there are experts
vocabulary | int64 | token | rows of the embedding
longest_context | int64 | token | longest sequence of the model
window | int64 | token | attention window, null where all is seen
experts | int64 | expert | experts of a layer, 0 where it is dense
experts_per_token | int64 | expert | experts that a token is routed to
shared_width | int64 | component | total width of the experts that every token passes through
positions | string | | learned, rope or none
norm | string | | layernorm or rmsnorm
feedforward | string | | gelu or gated
tied_head | bool | | the head is the transposed embedding
biases | string | | parts that have biases, by name
batch | int64 | sequence | sequences processed together
context | int64 | token | length of each: all of it in prefill and training, cached in front of the last token in decode
dtype | string | | type of the weights
cache_dtype | string | | type of the cache
recipe | string | | name of the training recipe in the config, null without one
devices | int64 | device | devices that share the recipe's state
parameters | int64 | parameter | total of ledger/parameters
active_parameters | int64 | parameter | the same without experts that a token is not routed to
weight_bytes | int64 | byte | one copy of the weights
cache_bytes | int64 | byte | total of ledger/kv_cache, policy needed
inference_bytes | int64 | byte | weights and cache
state_bytes | int64 | byte | total of ledger/training_state
state_bytes_per_device | int64 | byte | the same on the device that holds most
prefill_flops | decimal128(38,0) | FLOP | total of ledger/matmul, full convention
decode_flops | decimal128(38,0) | FLOP | the same of one token with context − 1 before it, for each sequence
training_flops | decimal128(38,0) | FLOP | the same of one training step"""
_WORKLOAD = """workload | string | | name of the workload in the config
batch | int64 | sequence | sequences processed together"""

TABLES: dict[str, tuple[Column, ...]] = {
    "verification": _columns("""
        claim | string | | claim that the case belongs to
        case | string | | the case in words
        parameters | string | | parameters of the case as JSON, keys sorted
        leg | string | | exact (nothing is rounded), floating (rounded, compared with a bound) or control (one named change that must break the claim); shown but not counted: repetition (the same thing twice) and theorem (no other result is possible)
        scope | string | | stated (the claim as the text makes it), conditioned (with the condition it needs), corrected (our right value) or printed (digits that depend on inputs that the text does not publish)
        route | string | | how measured was computed
        other_route | string | | how expected or the bound was computed; if it equals route, the case proves nothing
        backend | string | | arithmetic behind route: sequential, blas, torch, rational, symbolic or empty
        quantity | string | | what was measured
        measured | float64 | see unit | the measured value; for a control, with the change
        relation | string | | bitwise (measured counts differing values, 0 wanted), ==, !=, <=, >=, in or outside
        expected | float64 | see unit | value or bound that measured is compared with (for in and outside: the middle)
        lower | float64 | see unit | lower end of the interval, for in and outside
        upper | float64 | see unit | upper end of the interval, for in and outside
        measured_exact | string | | measured as an integer or fraction, where it is one
        expected_exact | string | | expected as an integer or fraction, where it is one
        change | string | | the one thing changed, for a control
        unchanged | float64 | see unit | the same quantity from the same code with the change switched off, for a control
        unchanged_relation | string | | relation that unchanged must keep
        unchanged_expected | float64 | see unit | value or bound that unchanged is compared with
        unchanged_lower | float64 | see unit | lower end of its interval
        unchanged_upper | float64 | see unit | upper end of its interval
        unchanged_exact | string | | unchanged as an integer or fraction, where it is one
        unchanged_expected_exact | string | | unchanged_expected as an integer or fraction, where it is one
        bound_source | string | | where the expected value or bound comes from
        printed | string | see unit | what the text prints, null where it prints nothing
        reproduced | string | | reproduced (ours rounds to the printed digits), same magnitude (other digits, and neither is more than ten times the other) or not reproduced, null where nothing is printed
        to_printed | float64 | | measured divided by the printed figure, null where nothing is printed or one of the two is 0
        unpublished | string | | inputs of the printed figure that the text does not publish, null where there are none
        unit | string | | unit of measured, unchanged, expected and printed
        holds | bool | | measured satisfies relation; for a control also: unchanged satisfies unchanged_relation, so the change alone made the difference
        applicable | bool | | false where the settings are not those for which the text prints the figure
        headline | bool | | the value that the claims table and the page show for the claim
        key | string | | name by which the claim's reason and pictures find the row, null for most
    """),
    "claims": _columns("""
        claim | string | | identifier, such as A8.4: text A, its section 8, statement 4
        source | string | | text A or text B
        section | string | | section of the text, by subject
        statement | string | | the claim in our words
        printed | string | | what the text prints, null where it prints nothing
        value | string | | our value
        verdict | string | | confirmed, conditional, refuted, not reproducible, not settled or not applicable
        registered | string | | verdict that the shipped settings should give
        surprise | bool | | the verdict is not the registered one
        condition | string | | the condition that the text omits, or why the claim is refuted or not reproducible
        why | string | | why the claim comes out so, in a few sentences, with this run's numbers
        equation | string | | the governing equation, with this run's numbers
        reproduced | string | | how well the run reproduces the printed figures: the worst of reproduced, same magnitude and not reproduced
        legs | string | | legs that the claim rests on, of exact, floating and control
        cases | int64 | | exact and floating cases measured
        asides | int64 | | repetitions and theorems, which are not counted as evidence
        controls | int64 | | controls run
        controls_broken | int64 | | controls that broke the claim, as they must
        measured_to_bound | float64 | | largest measured / bound among the bounded floating cases
        control_to_threshold | float64 | | smallest measured / threshold among the controls (1 or more is a break)
        verification | string | | verification that settles it
    """),
    "execution": _columns(f"""
        {_MODEL}
        implementation | string | | ours (our torch module) or transformers
        quantity | string | | parameters, active_parameters, flops, cache_bytes, state_bytes, activation_bytes or device_bytes (on one of several)
        workload | string | | workload, empty where it plays no part; small copy, for activations; layout, for a device
        phase | string | | prefill, decode or train; dtype of a cache; recipe of a state; method of activations; training or inference, of a device
        component | string | | component of the ledger, or total; for activations layer 0, layer 1… (a kind), outside, logits or total; of a device the item, or all
        part | string | | further split: weight or bias, item and dtype of the state, dtype of activations, stage of a device
        value | decimal128(38,0) | see quantity | what was counted
    """),
    "families": _columns(f"""
        {_MODEL.replace("in the config", "among the small ones, one for each family or feature")}
        implementation | string | | ours (our torch module) or transformers
        quantity | string | | parameters, active_parameters, flops, cache_bytes, state_bytes or activation_bytes
        workload | string | | workload, empty where it plays no part; small copy, for activations
        phase | string | | prefill, decode or train; dtype of a cache; recipe of a state; method of activations
        component | string | | component of the ledger, or total; for activations layer 0, layer 1… (a kind), outside, logits or total
        part | string | | further split: weight or bias, item and dtype of the state, dtype of activations
        value | decimal128(38,0) | see quantity | what was counted
    """),
    "ledger/parameters": _columns(f"""
        {_MODEL}
        component | string | | tensor kind, as attention.query or feedforward.up
        shape | string | | shape of one copy
        copies | int64 | | tensors of this kind
        bias | bool | | true for a bias (also a norm's bias)
        formula | string | | formula of one copy, printed from the function that computed it
        parameters | int64 | parameter | in all copies
        active_parameters | int64 | parameter | used by one token: experts not routed to are left out
        executed | int64 | parameter | counted on the executed model, transformers’ where there is one
        difference | int64 | parameter | parameters minus executed
        active_difference | int64 | parameter | active_parameters minus those counted on our module
        shape_difference | int64 | parameter | parameters minus the numbers in tensors of these shapes
        met_by | string | | what confirmed the figure, the strongest evidence: transformers (and our module, if it has such a figure), our module, second derivation, or nothing
    """),
    "ledger/training_state": _columns(f"""
        {_MODEL}
        recipe | string | | name of the recipe in the config
        item | string | | weights, master_weights, gradients, master_gradients, first_moment, second_moment, largest_second_moment or step; of a recipe with lora also quantised_weights and adapters, and what is not weights is the adapters'
        dtype | string | | how the item is stored
        bytes_per_parameter | float64 | byte/parameter | bytes divided by parameters (the step counters are a few bytes for each tensor)
        bytes | int64 | byte | one copy of the whole item
        devices | int64 | device | devices that share the state
        bytes_per_device | int64 | byte | on the device that holds the most
        executed_bytes | int64 | byte | read from real tensors after one optimiser step
        difference | int64 | byte | bytes minus executed_bytes
        bytes_per_device_difference | int64 | byte | bytes_per_device minus the storage of the fullest device’s share of real tensors
        bytes_per_parameter_difference | float64 | byte/parameter | bytes_per_parameter minus executed bytes divided by executed parameters
        met_by | string | | what confirmed the figure, the strongest evidence: transformers (and our module, if it has such a figure), our module, second derivation, or nothing
    """),
    "ledger/kv_cache": _columns(f"""
        {_MODEL}
        {_WORKLOAD}
        context | int64 | token | positions of each sequence
        dtype | string | | how keys and values are stored
        kv_heads | int64 | head | key/value heads (1 for a latent cache)
        head_dim | int64 | component | width of a key or value head (of the latent, for a latent cache)
        policy | string | | needed (what attention can still read), reserved (full length in every layer), dynamic and static (what transformers' two caches hold, where that is something else), or state (the part of all these that does not grow: the fixed states of Gated DeltaNet, Kimi Delta Attention and Mamba-2)
        formula | string | | formula of one layer's bytes, printed from the function that computed it
        bytes_per_token | int64 | byte/token | what the last token of the context adds in one sequence; a full window adds nothing
        bytes | int64 | byte | in all layers
        ratio_to_mha | float64 | | bytes divided by those of a cache with as many key/value heads as query heads, without fixed states
        executed_bytes | int64 | byte | size of the real cache tensors' storage
        difference | int64 | byte | bytes minus executed_bytes
        bytes_per_token_difference | int64 | byte | bytes_per_token of all sequences minus what the last token added to a real cache
        ratio_difference | float64 | | ratio_to_mha minus the same ratio of two real caches: executed_bytes divided by the storage of one with a key and a value for each query head
        met_by | string | | what confirmed the figure, the strongest evidence: transformers (and our module, if it has such a figure), our module, second derivation, or nothing
    """),
    "ledger/matmul": _columns(f"""
        {_MODEL}
        {_WORKLOAD}
        tokens | int64 | token | new tokens of each sequence
        context | int64 | token | key positions that the newest token attends to
        phase | string | | prefill, decode (one token with a cache) or train (forward and backward)
        component | string | | matrix product, as attention.scores or feedforward.up
        formula | string | | formula of one layer's FLOPs, printed from the function that computed it
        convention | string | | full (every query against every key, what dense kernels run), causal-exact (T(T+1)/2 pairs) or absorbed (latent attention computed on the latent itself, which is not expanded)
        multiply_adds | decimal128(38,0) | multiply-add | in all layers
        flops | decimal128(38,0) | FLOP | 2 for each multiply-add
        executed_flops | decimal128(38,0) | FLOP | counted on the executed model
        derived_flops | decimal128(38,0) | FLOP | for causal-exact only, which no dense model runs: from the executed full count and the pairs that the mask allows, counted query by query
        difference | decimal128(38,0) | FLOP | flops minus executed_flops, or minus derived_flops
        multiply_adds_difference | decimal128(38,0) | multiply-add | multiply_adds minus half of the counted FLOPs, because torch counts a multiply-add as 2
        met_by | string | | what confirmed the figure, the strongest evidence: transformers (and our module, if it has such a figure), our module, second derivation, or nothing
    """),
    "ledger/training_compute": _columns(f"""
        {_MODEL}
        run | string | | name of the training run in the config
        parameters | int64 | parameter | exact count that a token uses (experts not routed to are left out)
        tokens | int64 | token | training tokens
        context | int64 | token | sequence length of the exact count
        flops_6nd | decimal128(38,0) | FLOP | the rule 6·N·D
        flops_exact | decimal128(38,0) | FLOP | matrix products forward and backward, full convention
        devices | int64 | device | devices
        flops_per_second_per_device | float64 | FLOP/s | assumed sustained rate
        seconds | float64 | s | flops_6nd at that rate
        days | float64 | day | the same in days
        published_device_hours | int64 | device-hour | as published, null where not
        implied_flops_per_second_per_device | float64 | FLOP/s | flops_6nd divided by the published device-hours
        extrapolated_flops | decimal128(38,0) | FLOP | flops_exact by another route: the FLOPs counted on the executed model at two short lengths give a and b of a·T + b·T², which is evaluated at the context
        difference | decimal128(38,0) | FLOP | flops_exact minus extrapolated_flops
        parameters_difference | int64 | parameter | parameters minus those that the executed model uses for a token
        flops_6nd_difference | decimal128(38,0) | FLOP | flops_6nd minus (2 + 4) FLOPs × executed parameters × tokens, computed in decimal arithmetic
        seconds_difference | float64 | s | seconds minus the same in decimal arithmetic
        days_difference | float64 | day | days minus the same in decimal arithmetic
        implied_flops_per_second_per_device_difference | float64 | FLOP/s | the implied rate minus the same in decimal arithmetic
        met_by | string | | what confirmed the figure, the strongest evidence: transformers (and our module, if it has such a figure), our module, second derivation, or nothing
    """),
    "ledger/activations": _columns(f"""
        {_MODEL}
        workload | string | | name of the workload in the config, or small copy: the model with its sizes cut down, which really runs
        batch | int64 | sequence | sequences processed together
        context | int64 | token | tokens of each sequence
        implementation | string | | ours (our torch module) or transformers (its model of the config.json, where there is one)
        dtype | string | | type of weights and activations
        method | string | | eager (the attention weights are kept) or fused (they are not); there is no fused row where transformers uses no fused kernel: BLOOM, Gemma 2, gpt-oss, DeepSeek, Falcon with one key for all queries
        checkpointed | bool | | each layer keeps only its input and is computed again in the backward pass
        dropout | bool | | true: a training step with the dropout rates of the model's file; false: without dropout. A fused row drops no attention weights, because torch's kernel for the CPU cannot
        scope | string | | layer (one of a kind), outside (embedding, masks, angles, final norm, input of the head), logits (with the loss) or total
        kind | int64 | | number of the kind of layer, from 0, in order of first appearance
        layers | int64 | layer | layers of that kind; the total is the sum of layers × bytes over the kinds, plus outside and logits
        formula | string | | formulas of what is saved, printed from the functions that computed them, each with its number
        bytes | int64 | byte | storages that autograd saves for the backward pass, each once, without parameters
        executed_bytes | int64 | byte | the same of a model that ran: the small copy with real tensors, the others traced; null where nothing ran
        difference | int64 | byte | bytes minus executed_bytes
        met_by | string | | what confirmed the figure, the strongest evidence: transformers (and our module, if it has such a figure), our module, second derivation, or nothing
    """),
    "ledger/fit": _columns(f"""
        {_MODEL}
        device | string | | name of the device in the config
        question | string | | longest context (of one sequence), largest batch (of sequences as long as the workload's) or fewest devices (that train it)
        dtype | string | | how the weights are stored
        cache_dtype | string | | how keys and values are stored
        policy | string | | needed (what attention can still read) or reserved (full length in every layer; the same where no layer has a window)
        workload | string | | workload, for the largest batch
        recipe | string | | recipe of the config whose training state is divided, for the fewest devices
        zero_stage | int64 | | what the devices divide among themselves (ZeRO): the recipe's own stage, 3 where it has none
        batch | int64 | sequence | sequences, for the longest context
        context | int64 | token | positions of each sequence, for the largest batch
        answer | int64 | see question | most positions, most sequences or fewest devices that fit; null where no number of devices does
        limit | string | | why the answer is not larger (for devices: not smaller): memory, context (the model's own), weights (they alone do not fit) or undivided (what the stage does not divide does not fit on one device)
        memory_bytes | int64 | byte | memory of one device
        available_bytes | int64 | byte | memory_bytes minus the device's reserve; activations, workspace, fragmentation and the engine's memory are not counted and must fit into the reserve
        bytes | int64 | byte | weights and cache, or the training state on the device that holds the most, at the answer (the weights alone where they do not fit)
        bytes_beyond | int64 | byte | bytes with one position or sequence more, or with one device fewer (null if that is none); more than available_bytes if limit is memory
        searched | int64 | see question | the answer found by trying, with the bytes that the executed model held
        difference | int64 | see question | answer minus searched, no answer counted as 0
        bytes_difference | int64 | byte | bytes and bytes_beyond together minus those of the search
        limit_difference | int64 | | 1 if the search found another limit, otherwise 0
        met_by | string | | what confirmed the figure, the strongest evidence: transformers (and our module, if it has such a figure), our module, second derivation, or nothing
    """),
    "ledger/layout": _columns(f"""
        {_MODEL}
        layout | string | | name of the layout in the config
        devices | int64 | device | data × tensor × pipeline × context
        data | int64 | device | copies of the model, which divide the sequences
        tensor | int64 | device | number of devices that share the matrices of attention and feed-forward, split by heads or by width, embedding and head
        pipeline | int64 | stage | number of pipeline stages, each of consecutive layers
        expert | int64 | device | number of devices of one stage that share the experts of a layer
        context | int64 | device | number of devices that share the positions of a sequence
        microbatches | int64 | | number of micro-batches into which each copy of the model divides its sequences
        zero_stage | int64 | | what data and context devices divide of the state (ZeRO); null: the recipe's own
        sequence_parallel | bool | | the tensor devices share the tokens of norms and of the maps' inputs
        checkpointing | string | | what the backward pass computes again: none, selective (attention's scores and weights), full (each layer but its input)
        attention | string | | eager (attention's weights are kept) or fused
        recipe | string | | recipe of the config: what is kept, and the weights' type, of activations and inference too
        workload | string | | workload of the config; its sequences are divided over data copies and micro-batches
        batch | int64 | sequence | sequences of the workload
        length | int64 | token | positions of each
        phase | string | | training (state and activations) or inference (weights and cache)
        stage | int64 | | stage of the pipeline whose device holds most, from 0
        item | string | | item of the recipe, activations (no row where they are not given), weights, cache, or all of a phase
        dtype | string | | type of the item, null for all
        bytes | int64 | byte | on one device of that stage
        executed_bytes | int64 | byte | the same bytes, of torch's shards (weights, state) and of a run of one device's module (cache, activations), all of them shapes without numbers; of `all`, the sum on one device of the fullest stage
        difference | int64 | byte | bytes minus executed_bytes
        met_by | string | | what confirmed the figure, the strongest evidence: transformers (and our module, if it has such a figure), our module, second derivation, or nothing
    """),
    "ledger/conventions": _columns(f"""
        {_MODEL}
        quantity | string | | parameters, active parameters (of a mixture), weights, KV cache, forward pass, decoded token or training step
        workload | string | | workload, null where it plays no part
        batch | int64 | sequence | sequences processed together
        context | int64 | token | positions of each sequence
        convention | string | | name of the way to count; only those that apply to the model have a row
        ours | bool | | true if the other ledgers count this way; for FLOPs both full and causal-exact are, and ratio_to_ours is relative to full
        value | decimal128(38,0) | see unit | what the convention gives
        unit | string | | parameter, byte or FLOP
        ratio_to_ours | float64 | | value divided by ours
        counts | string | | what the convention counts
        elsewhere | string | | who counts this way, null where we checked no source
        recounted | decimal128(38,0) | see unit | the convention applied to what the executed model counted
        difference | decimal128(38,0) | see unit | value minus recounted
        met_by | string | | what confirmed the figure, the strongest evidence: transformers (and our module, if it has such a figure), our module, second derivation, or nothing
    """),
    "ledger/agreement": _columns(f"""
        {_MODEL}
        implementation | string | | ours (our torch module) or transformers
        quantity | string | | parameters, active_parameters, flops or cache_bytes
        workload | string | | workload, empty where it plays no part
        phase | string | | prefill, decode, decode_absorbed (latent attention) or train; dtype of a cache
        policy | string | | needed, reserved, dynamic or static, for a cache
        ledger | decimal128(38,0) | see quantity | total of the ledger, full convention
        executed | decimal128(38,0) | see quantity | total counted on the implementation
        difference | decimal128(38,0) | see quantity | ledger minus executed
        met_by | string | | what confirmed the figure, the strongest evidence: transformers (and our module, if it has such a figure), our module, second derivation, or nothing
    """),
    "timing": _columns("""
        case | string | | what was timed, with its sizes
        part | string | | what runs: a product, a norm, a kernel
        parameters | string | | what the case says in words, as JSON with sorted keys
        flops | decimal128(38,0) | FLOP | operations, computed before the measurement
        counted_flops | decimal128(38,0) | FLOP | of the matrix products that ran, counted call by call; null if the counter sees none (norms, softmax, the fused kernel)
        difference | decimal128(38,0) | FLOP | flops minus counted_flops
        bytes_moved | int64 | byte | of inputs and outputs, each once, and of matrices of scores, each time they are read or written; computed before the measurement
        flops_per_byte | float64 | FLOP/byte | arithmetic intensity
        peak_flops_per_second | float64 | FLOP/s | best rate of a large matrix product on this machine, same threads
        peak_bytes_per_second | float64 | byte/s | best rate of a large copy on this machine, same threads
        bottleneck | string | | compute or memory, whichever of the two takes longer at its peak
        expected_seconds | float64 | s | the longer of the two
        warmups | int64 | | runs before the timed ones, under the memory profiler and the counter of operations
        interleaved | int64 | | cases and parts that were timed alternately, this one included
        repeats | int64 | | runs timed; they end when the spread of all that is compared is no more than spread_wanted, or at the configured maximum
        median_seconds | float64 | s | median run
        q1_seconds | float64 | s | first quartile
        q3_seconds | float64 | s | third quartile
        spread | float64 | | half the width of the interval of the median (order statistics, at least 90 % if there are 5 runs), divided by the median
        spread_wanted | float64 | | spread at which the repeats end
        measured_to_expected | float64 | | median_seconds / expected_seconds
        baseline | string | | case that this one is compared with
        expected_ratio | float64 | | operations divided by the baseline's
        measured_ratio | float64 | | time divided by the baseline's, median of the rounds, in each of which both ran
        ratio_low | float64 | | lower end of the interval of measured_ratio (order statistics)
        ratio_high | float64 | | upper end
        ratio_confidence | float64 | | exact confidence of that interval
        outcome | string | | longer, shorter, or no clear difference if the interval contains 1
        peak_bytes | int64 | byte | most memory held at once beyond the inputs, from the profiler's memory events
        threads | int64 | | threads of the numerical library
        device | string | | device that ran it
    """),
    "ledger/families": _columns(f"""
        ledger | string | | ledger that the figure is of
        {_MODEL.replace("in the config", "among the small ones, one for each family or feature")}
        case | string | | what tells the row from others of its ledger, as JSON
        figure | string | | column of that ledger
        value | float64 | | the figure
        difference | float64 | | the figure minus what it was compared with
        met_by | string | | what confirmed it, the strongest evidence: transformers, our module or second derivation
    """),
    "ledger/published": _columns("""
        subject | string | | model or training that the source speaks of
        quantity | string | | what is published
        convention | string | | how it is counted
        published | string | see unit | the figure as published
        value | float64 | see unit | our figure
        unit | string | | unit of both
        holds | bool | | ours rounds to the published digits
        source | string | | paper or model card
        difference | int64 | | 0 where it holds, 1 where it does not
        met_by | string | | published
    """),
    "experiment/decoder": _columns("""
        case | string | | small model of a family, or the setting
        family | string | | model_type of the family, null for a setting
        switch | string | | the setting of the architecture that is then changed in the reference only, null for a family
        quantity | string | | logits (of the last position), loss (mean over all), decoded logits (the last positions one by one into a cache) or absorbed logits (latent attention computed on the latent itself)
        other | string | | what our torch decoder is compared with: NumPy reference or transformers, same weights and tokens, fp64
        difference | float64 | nat for the loss | between the two, at the entry where it is largest relative to its bound
        bound | float64 | nat for the loss | twice the running error bound of the reference there
        changed_difference | float64 | nat for the loss | largest difference with the setting changed in the reference; at one entry at least it must be 100 times the bound or more
        holds | bool | | difference is within bound, and changed_difference beyond it as it must
    """),
    "experiment/rope_dot_product": _columns("""
        case | string | | printed (the text's own vectors) or a drawn one
        pairing | string | | interleaved (2i, 2i+1) or half-split (i, i + d_h/2)
        head_dim | int64 | component | width of q and k
        base | float64 | | base of the frequencies (null for the printed case, which gives one angle)
        dtype | string | | precision of the computation
        m | int64 | token | position of q
        n | int64 | token | position of k
        observed | float64 | | q rotated to m against k rotated to n
        relative | float64 | | q against k rotated by n − m
        shifted | float64 | | both positions increased by the same shift (settings printed.shift and drawn.shift)
        reference | float64 | | rounded from the high-precision value
        reference_decimal | string | | the high-precision value to ten digits fewer than it was computed with
        difference | float64 | | largest of the three distances from the reference
        bound | float64 | | largest of the three a-priori rounding bounds
        decisive | bool | | bound is at most a tenth of the reference: a wider one would let wrong results pass, and the row is shown but not counted
        holds | bool | | each of the three is within its bound of the reference
    """),
    "experiment/blocked_softmax": _columns("""
        case | string | | printed or a drawn one, with its mask
        keys | int64 | token | keys of the row
        blocks | string | | block boundaries
        order | string | | order in which the blocks were read
        dtype | string | | precision of the computation
        pass | string | | forward or backward
        quantity | string | | output, score gradient or value gradient
        dense | float64 | | the dense form's value, first entry of the output or gradient
        blocked | float64 | | the blocked form's value of the same entry
        reference | float64 | | the same entry, rounded from the high-precision value for the inputs as stored in this precision
        reference_decimal | string | | the high-precision value to ten digits fewer than it was computed with
        dense_error | float64 | | largest distance of the dense form from the reference, over the entries
        blocked_error | float64 | | largest distance of the blocked form from the reference, over the entries
        naive | float64 | | dense in fp64 without the maximum subtracted: NaN where the exponentials overflow or all vanish; null for gradients
        difference | float64 | | largest distance between dense and blocked
        bound | float64 | | largest a-priori rounding bound on difference, over the entries
        size | float64 | | largest entry of the reference, without its sign
        decisive | bool | | bound is at most a tenth of size: a wider one would let wrong results pass, and the row is shown but not counted
        ratio | float64 | | largest distance from the reference divided by its bound, among the entries of both forms
        holds | bool | | every entry of both forms is within its bound of the reference
    """),
    "experiment/blocked_softmax_states": _columns("""
        block | int64 | | number of the block, from 0, in the order read
        begin | int64 | | first key
        end | int64 | | one past the last key
        maximum | float64 | | m: largest score so far
        denominator | float64 | | a: sum of exp(score − m) so far
        numerator | float64 | | o: sum of exp(score − m) · value so far
    """),
    "study/loss": _columns(f"""
        {_MODEL}
        step | int64 | | optimiser steps done
        tokens | int64 | token | predictions trained on so far
        learning_rate | float64 | | of the step just done
        split | string | | training (mean of the batches since the row before) or held-out (sequences that no step saw)
        source | string | | markov (second-order Markov data), recall (associative recall) or both
        loss | float64 | nat/token | mean of −ln p
        floor | float64 | nat/token | entropy of what is predicted: no model has a lower expected loss
        source_loss | float64 | nat/token | loss of the true source on the very same held-out tokens
        excess | float64 | nat/token | loss minus source_loss, which removes the noise of the sample
        holds | bool | | the 99.9 % interval of source_loss over the sequences contains the floor, and excess is not below 0 by more than its own interval; null for training
    """),
    "study/classification": _columns("""
        key | string | | short, fixed name of the change
        change | string | | what was changed in the one trained checkpoint
        registered | string | | function or schedule, as registered before any run
        stated | string | | function or schedule as text B has it, empty where it names no such change
        control | bool | | no change at all, or a change that must be seen
        logit_change | float64 | | largest change over all held-out logits
        bounded_change | float64 | | of the logit whose change is largest relative to its bound
        bound | float64 | | rounding bounds of both forms for that logit
        change_to_bound | float64 | | bounded_change / bound: above 1 the function has changed
        score_change | float64 | | the same for the first layer's attention scores, null where a form makes no such tensor
        score_bound | float64 | | rounding bounds of both forms for that score
        loss_before | float64 | nat/token | held-out loss of the form before
        loss_change | float64 | nat/token | held-out loss after minus before
        loss_change_low | float64 | nat/token | lower end of the interval of loss_change, over the held-out sequences
        loss_change_high | float64 | nat/token | upper end
        decided | string | | function, schedule or nothing, from bounded_change, schedule and storage alone
        expression | bool | | a logit moved beyond its bound: another mathematical expression
        sharing | bool | | another number of query heads shares a key/value head
        activation | bool | | other activation functions ran
        storage | bool | | the bytes of weights, cache or intermediate tensors differ
        schedule | bool | | other operations, or other shapes, ran
        parameters | int64 | parameter | after the change
        parameters_changed | int64 | parameter | new, gone or of another value
        parameter_bytes_change | int64 | byte | stored weights, after minus before
        cache_bytes_change | int64 | byte | kept behind the last token, after minus before
        made_bytes_change | int64 | byte | all tensors made during one pass, after minus before
        loads_as_is | bool | | the old checkpoint loads in strict mode: no missing name, no wrong shape
        retraining_needed | bool | | the held-out loss rises: loss_change_low is above 0
    """),
    "sweep": _columns(f"""
        model | string | | name of the model in the config, null for an architecture of the sweep
        {_SWEPT}
    """),
    "answers": _columns(f"""
        question | string | | name of the question in the config, or front: no other configuration is better in one of the two and as good in the other
        rows | int64 | | configurations that the question admits
        model | string | | name of the model in the config, null for an architecture of the sweep
        {_SWEPT}
    """),
    "maps": _columns("""
        x | int64 | | size along the map (sweeps.<name>.map.x)
        y | int64 | | size down the map (sweeps.<name>.map.y)
        least | decimal128(38,0) | see config | least value of sweeps.<name>.map.value over all configurations of these sizes
        rows | int64 | | how many those are
    """),
    "study/attention": _columns("""
        case | string | | shapes, mask and grouping
        queries | int64 | token | queries, the last of the sequence
        length | int64 | token | length of the sequence, its keys
        dtype | string | | of inputs and outputs
        logits | string | | ordinary or peaky (scores of a larger deviation, study.attention.scales)
        method | string | | naive, blocked (ours) or fused (torch's kernel)
        tensor | string | | output, dq, dk or dv
        relative_rms_error | float64 | | root mean square distance from fp64, divided by the root mean square of the fp64 values; null where these are 0
        largest_error | float64 | | largest distance from fp64
        largest_value | float64 | | largest fp64 value
        ratio_to_fused | float64 | | relative_rms_error divided by that of the fused kernel; null where that is 0
        allowed_ratio | float64 | | largest ratio_to_fused allowed for blocked attention, set beforehand in study.attention.allowed_ratio; null for other methods
        holds | bool | | ratio_to_fused is no more than allowed_ratio; null where there is nothing to judge
    """),
    "study/extension": _columns("""
        variant | string | | base, rope, gqa, rmsnorm, gated or modern (all four)
        budget | string | | scratch (as many parameters and training FLOPs as the base), conversion (the base's weights converted) or up-training (and then trained on)
        share | float64 | | of the whole programme's compute: the point of the curve
        seeds | int64 | | trainings, each of its own seed
        d_ff | int64 | component | feed-forward width that the budget leaves
        parameters | int64 | parameter | counted on the module that was trained
        parameter_change | int64 | parameter | against the base
        steps | int64 | | optimiser steps
        tokens | int64 | token | predictions trained on
        learning_rate | float64 | | largest; chosen for the variant among those of study/extension_runs whose budget is selection
        flops | decimal128(38,0) | FLOP | of the whole training, matrix products, full convention
        flops_change | decimal128(38,0) | FLOP | against the base's
        cache_bytes | int64 | byte | keys and values of one sequence of the training length, in bf16
        cache_bytes_change | int64 | byte | against the base
        checkpoint_parameters | int64 | parameter | that load unchanged from the old checkpoint: same name, same shape
        programme | string | | the training programme in words
        floor | float64 | nat/token | entropy of what is predicted
        loss | float64 | nat/token | mean held-out loss over the seeds
        excess | float64 | nat/token | the same minus the true source's loss on the same tokens; each seed has its own held-out tokens
        excess_low | float64 | nat/token | lower end of Student's interval of excess over the seeds, at the configured confidence
        excess_high | float64 | nat/token | upper end
        spread | float64 | nat/token | standard deviation over the seeds
        comparisons | int64 | | intervals of differences in this study: both sources together and each alone
        interval_confidence | float64 | | of each of them, so that all are right together with the configured confidence (Bonferroni)
        disclosed | string | | settings that we chose so that differences can be seen
        holds | bool | | parameters equal the formula; from scratch, parameters and FLOPs match the base to half a unit of width and half a step; and excess_high is not below 0, because no model beats the source
        excess_change | float64 | nat/token | against the base of the same budget, seed by seed
        excess_change_low | float64 | nat/token | lower end of its interval over the seeds, at interval_confidence
        excess_change_high | float64 | nat/token | upper end
        markov_excess | float64 | nat/token | excess on the second-order Markov data alone
        markov_excess_change | float64 | nat/token | excess_change on it
        markov_excess_change_low | float64 | nat/token | lower end of its interval over the seeds
        markov_excess_change_high | float64 | nat/token | upper end
        recall_excess | float64 | nat/token | excess on associative recall alone
        recall_excess_change | float64 | nat/token | excess_change on it
        recall_excess_change_low | float64 | nat/token | lower end of its interval over the seeds
        recall_excess_change_high | float64 | nat/token | upper end
        distinguishable | bool | | the interval of excess_change excludes 0; otherwise the study shows no clear difference
    """),
    "study/extension_tensors": _columns("""
        variant | string | | as in study/extension, trained from scratch
        tensor | string | | name in the model
        status | string | | same (name and shape), reshaped, new or gone
        old_shape | string | | in the base, empty where new
        new_shape | string | | in the variant, empty where gone
        parameters_before | int64 | parameter | in the base
        parameters_after | int64 | parameter | in the variant
    """),
    "study/extension_runs": _columns("""
        variant | string | | as in study/extension
        budget | string | | as in study/extension, or selection: trained to choose the learning rate
        share | float64 | | as in study/extension
        steps | int64 | | optimiser steps
        learning_rate | float64 | | largest of the training
        chosen | bool | | the variant's learning rate in all other trainings; null outside selection
        split | string | | what the loss is of: held-out, or validation in a selection; a training sees neither
        seed | int64 | | of initial weights and batches
        source | string | | markov or recall
        loss | float64 | nat/token | at the end
        floor | float64 | nat/token | entropy of what is predicted
        source_loss | float64 | nat/token | loss of the true source on the same tokens
        excess | float64 | nat/token | loss minus source_loss
    """),
    "compare": _columns("""
        kind | string | | setting, code, package, file, verdict, ledger, bound or timing
        table | string | | file of results/ in which it lies; for settings and code the jobs, for packages empty
        row | string | | what names the row in it, as JSON with sorted keys; for a setting its key
        column | string | | what moved
        old | string | see column | value in the older results, null where it was not there
        new | string | see column | value in the newer results, null where it is gone
        change | string | see column | new minus old as an integer or a fraction, exact; null where they are no numbers
        ratio | float64 | | new divided by old
    """),
}


def schema(table: str) -> pa.Schema:
    """Arrow schema of `table`; each field's metadata are its description and, where it has one, its unit."""
    return pa.schema([pa.field(column.name, TYPES[column.type], metadata=_about(column)) for column in TABLES[table]])


def _about(column: Column) -> dict[str, str]:
    return {"description": column.meaning, **({"unit": column.unit} if column.unit else {})}


def _value(value: Any, column: Column) -> Any:
    """The value as its column holds it. Raises ValueError, saying what is wrong with it."""
    if value is None:
        return None
    if column.type in ("int64", "decimal128(38,0)"):
        if isinstance(value, (bool, float)) or int(value) != value:
            raise ValueError(f"{value!r} is not an integer")
        value = int(value)
        if column.type == "int64" and not -(2**63) <= value < 2**63:
            raise ValueError(f"{value} does not fit int64")
        if column.type != "int64" and abs(value) >= 10**38:
            raise ValueError(f"{value} does not fit decimal128(38,0)")
        return value
    if column.type == "float64":
        return float(value)
    if column.type == "bool":
        return bool(value)
    if not isinstance(value, str | Number):  # another object's text may hold its address, which no two runs share
        raise ValueError(f"{type(value).__name__} is neither text nor a number")
    return str(value)


def _values(rows: Sequence[Mapping[str, Any]], column: Column, path: Path) -> list[Any]:
    """A column's values; TableError names the column and, by its first names, the row that cannot be written."""
    made = []
    for row in rows:
        try:
            made.append(_value(row.get(column.name), column))
        except ValueError as error:
            names = [f"{name} {value}" for name, value in row.items() if value and isinstance(value, str)][:3]
            where = f" ({', '.join(names)})" if names else ""
            raise TableError(f"{path}: column {column.name}: {error}{where}") from None
    return made


def _array(values: list[Any], column: Column) -> pa.Array:
    """Values as Arrow, laid out here: `pa.array` imports pandas as soon as it sees a Python list (0.3 s a job)."""
    kind, count = column.type, len(values)
    valid = np.packbits([value is not None for value in values], bitorder="little") if count else np.zeros(0, np.uint8)
    buffers: list[Any]
    if kind == "string":
        encoded = [b"" if value is None else value.encode() for value in values]
        offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
        buffers = [offsets.tobytes(), b"".join(encoded)]
    elif kind == "bool":
        buffers = [np.packbits([bool(value) for value in values] or [False], bitorder="little").tobytes()]
    elif kind == "decimal128(38,0)":
        buffers = [b"".join((value or 0).to_bytes(16, "little", signed=True) for value in values)]
    else:
        buffers = [np.array([0 if value is None else value for value in values], kind).tobytes()]
    return pa.Array.from_buffers(TYPES[kind], count, [pa.py_buffer(buffer) for buffer in (valid.tobytes(), *buffers)])


@contextlib.contextmanager
def _at_one_stroke(path: Path) -> Iterator[Path]:
    """A file beside `path` that takes its place when all is written. Where that fails, TableError, and nothing is left."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        os.replace(partial, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise TableError(f"{path}: cannot be written ({error.strerror or error})") from None


def write(path: str | Path, table: str, rows: Iterable[Mapping[str, Any]], metadata: Mapping[str, Any]) -> None:
    """Write `rows` as `table` to `path` at one stroke (temporary file, then rename).

    A row may leave a column out (null); a key that is not a column, a non-integer in an integer column or an integer
    that does not fit raises TableError. `metadata` goes into the schema as one sorted JSON object.
    """
    path = Path(path)
    columns = TABLES[table]
    rows = list(rows)
    unknown = {key for row in rows for key in row} - {column.name for column in columns}
    if unknown:
        raise TableError(f"{path}: no such column in {table}: {', '.join(sorted(unknown))}")
    arrays = [_array(_values(rows, column, path), column) for column in columns]
    text = json.dumps(metadata, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    full = pa.Table.from_arrays(arrays, schema=schema(table).with_metadata({METADATA_KEY: text.encode()}))
    with _at_one_stroke(path) as partial:
        pq.write_table(full, partial, compression="zstd", write_page_checksum=True)


def _block(columns: Mapping[str, Any], table: str, path: Path) -> pa.RecordBatch:
    """Rows of a block, each column one array or one value for all; the number of rows is its entry `rows`."""
    count, arrays = columns["rows"], []
    for column in TABLES[table]:
        value: Any = columns.get(column.name)
        several = isinstance(value, np.ndarray)
        if several and value.dtype == object and max(abs(value.max()), abs(value.min())) < 2**63:
            value = value.astype(np.int64)
        if several and column.type == "int64" and value.dtype == np.int64:
            arrays.append(pa.array(value))
        elif several and column.type == "decimal128(38,0)" and max(abs(value.max()), abs(value.min())) < 10**38:
            wide = value.dtype == object
            low, high = (value & (2**64 - 1), value >> 64) if wide else (value, value >> 63)  # halves of 128 bits
            words = np.stack([low.astype(np.uint64).view(np.int64), high.astype(np.int64)], axis=1)
            arrays.append(pa.Array.from_buffers(TYPES[column.type], count, [None, pa.py_buffer(words.tobytes())]))
        else:
            given = [{column.name: each} for each in ([*value] if several else [value])]
            made = _array(_values(given, column, path), column)
            arrays.append(made if several else made.take(pa.array(np.zeros(count, np.int64))))
    return pa.RecordBatch.from_arrays(arrays, schema=schema(table))


def write_blocks(
    path: str | Path, table: str, blocks: Iterable[Mapping[str, Any]], metadata: Mapping[str, Any]
) -> None:
    """Write `table` to `path` at one stroke, a row group a block, holding no more than one block."""
    path = Path(path)
    text = json.dumps(metadata, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    full = schema(table).with_metadata({METADATA_KEY: text.encode()})
    with (
        _at_one_stroke(path) as partial,
        pq.ParquetWriter(partial, full, compression="zstd", write_page_checksum=True) as writer,
    ):
        for columns in blocks:
            writer.write_batch(_block(columns, table, path))


def integers(column: pa.ChunkedArray | pa.Array) -> np.ndarray[Any, Any]:
    """A column of integers without nulls: int64 where all fit, else Python ints. Null anywhere raises TableError."""
    if column.null_count:
        raise TableError("a column of sizes that is null in some rows")
    chunk = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if not pa.types.is_decimal(chunk.type):
        return np.asarray(chunk.to_numpy(zero_copy_only=False))
    words = np.frombuffer(chunk.buffers()[1], np.int64)[2 * chunk.offset : 2 * (chunk.offset + len(chunk))].reshape(
        -1, 2
    )
    if (words[:, 1] == words[:, 0] >> 63).all():
        return words[:, 0]
    return np.array([int(value) for value in chunk.to_pylist()], object)


def write_bytes(path: str | Path, content: bytes | str) -> None:
    """Write a file that is no table at one stroke, as `write` does."""
    with _at_one_stroke(Path(path)) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)


def _open(path: str | Path) -> pa.Table:
    try:
        return pq.ParquetFile(path, page_checksum_verification=True).read()
    except FileNotFoundError:
        raise TableError(f"{path}: missing; run snakemake again to make it") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TableError(f"{path}: damaged ({str(error).splitlines()[0]}); delete it and run snakemake again") from None


def read(path: str | Path, table: str | None = None) -> list[dict[str, Any]]:
    """Rows of a table written by `write`; decimals come back as Python ints.

    Raises TableError, naming the file to delete, where the file is missing, damaged or of other columns than `table`.
    """
    full = _open(path)
    if table is not None and full.schema.remove_metadata() != schema(table):
        raise TableError(f"{path}: not a {table} table of this version; delete it and run snakemake again")
    rows = full.to_pylist()
    decimals = [field.name for field in full.schema if pa.types.is_decimal(field.type)]
    for row in rows:
        for name in decimals:
            row[name] = None if row[name] is None else int(row[name])
    return rows


def read_metadata(path: str | Path) -> dict[str, Any]:
    """The metadata that `write` stored in the schema of `path`."""
    try:
        stored = pq.read_schema(path).metadata or {}
        return json.loads(stored[METADATA_KEY])
    except FileNotFoundError:
        raise TableError(f"{path}: missing; run snakemake again to make it") from None
    except (pa.ArrowException, OSError, ValueError, KeyError):
        raise TableError(f"{path}: damaged or not ours; delete it and run snakemake again") from None


def by(rows: Sequence[Mapping[str, Any]], *keys: str) -> dict[Any, list[Mapping[str, Any]]]:
    """Rows grouped by the values of `keys` (a tuple where there are several), in order of appearance."""
    out: dict[Any, list[Mapping[str, Any]]] = {}
    for row in rows:
        value = row[keys[0]] if len(keys) == 1 else tuple(row[key] for key in keys)
        out.setdefault(value, []).append(row)
    return out


def dictionary() -> str:
    """The data dictionary of every table as Markdown, for `results/README.md`."""
    parts = []
    for table, columns in TABLES.items():
        path = f"results/{table}/{FAMILIES[table]}.parquet" if table in FAMILIES else f"results/{table}.parquet"
        path = "logs/compare.parquet" if table == "compare" else path  # it compares two results, and is none
        rows = [f"| `{column.name}` | {column.type} | {column.unit} | {column.meaning} |" for column in columns]
        parts.append("\n".join([f"### `{path}`", "", "| column | type | unit | meaning |", "|---|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"
