"""Answers of calflops to config.json files that come as JSON lines: seconds, parameters and multiply-adds."""

import json
import sys
import time

import torch
from calflops import calculate_flops
from transformers import AutoConfig, AutoModelForCausalLM

for line in sys.stdin:
    asked = json.loads(line)
    begun = time.process_time()
    described = AutoConfig.from_pretrained(asked["path"])
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(described, attn_implementation="eager", dtype=torch.bfloat16)
        tokens = torch.ones(asked["batch"], asked["context"], dtype=torch.long)
    model.config.use_cache = False
    given = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    _, adds, parameters = calculate_flops(model, kwargs=given, print_results=False, output_as_string=False)
    seconds = time.process_time() - begun
    print(json.dumps({"seconds": seconds, "parameters": parameters, "prefill_flops": 2 * adds}), flush=True)
