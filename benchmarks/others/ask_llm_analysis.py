"""Answers of llm-analysis to configurations that come as JSON lines: seconds of `inference`, and its figures."""

import dataclasses
import json
import logging
import sys
import time

from llm_analysis import analysis, config

for module in (analysis, config):
    module.logger.setLevel(logging.ERROR)  # its log would take most of the time
DEVICE = dataclasses.replace(config.get_gpu_config_by_name("a100-sxm-80gb"), mem_per_GPU_in_GB=10**9)  # all fit
DTYPE = config.get_dtype_config_by_name("w16a16e16")


def asked(one):
    """inference() of a configuration; the cache of one token more than it is given, so it is given one fewer."""
    model = config.ModelConfig(
        name="",
        num_layers=one["layers"],
        n_head=one["heads"],
        hidden_dim=one["d_model"],
        vocab_size=one["vocabulary"],
        num_key_value_heads=one["kv_heads"],
        ffn_embed_dim=one["d_ff"],
        expansion_ratio=one["d_ff"] / one["d_model"],
        moe_num_experts=one.get("experts") or 1,
        moe_top_k=one.get("experts_per_token") or 1,
    )
    made = analysis.LLMAnalysis(model, DEVICE, DTYPE)
    found = made.inference(one["batch"], seq_len=one["context"] - 1, num_tokens_to_generate=1)
    return made, found


for line in sys.stdin:
    configurations = json.loads(line)
    begun = time.process_time()
    answers = [asked(one) for one in configurations]
    seconds = time.process_time() - begun
    made, found = answers[-1]
    last = configurations[-1]
    figures = {
        "parameters": made.get_num_params_total(),
        "cache_bytes": found["kv_cache_memory_per_gpu"],
        "prefill_flops": made.get_num_flops_fwd_total(last["batch"], last["context"]),
    }
    print(json.dumps({"seconds": seconds, **figures}), flush=True)
