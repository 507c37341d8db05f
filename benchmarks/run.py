"""Timings and exactness of the array path, of two other tools, of `size`, of every job and of a large sweep.

`make bench` writes benchmarks/results/*.json and, from them, docs/benchmarks.md. What is compared is measured in turn in
one session. The other tools run in environments of their own under benchmarks/environments, made from exact pins.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import yaml

ROOT = Path(__file__).parents[1]
HERE = ROOT / "benchmarks"
sys.path[:0] = [str(ROOT / "src"), str(HERE)]

import table  # noqa: E402

from transformer_ledger import huggingface, jobs, provenance  # noqa: E402
from transformer_ledger.__main__ import main as main_of_a_job  # noqa: E402
from transformer_ledger.config import load  # noqa: E402
from transformer_ledger.formulas.arrays import checked  # noqa: E402
from transformer_ledger.ledger import kv_cache, parameters  # noqa: E402
from transformer_ledger.model import described, from_architecture  # noqa: E402
from transformer_ledger.sweep.totals import PARTS, Kinds, state, totals, work  # noqa: E402

MODELS = ("gpt2", "gpt-neox-20b", "falcon-7b", "llama-2-7b", "llama-3-8b", "gemma-2-9b", "mixtral-8x7b")
MODELS += ("qwen3-30b-a3b", "gpt-oss-20b", "deepseek-v3")
LOAD = {"batch": 2, "context": 512}
SINGLE = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def spread(values: list[float]) -> dict[str, float]:
    """Median, quartiles and number of some measurements."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    return {"median": middle, "low": low, "high": high, "repeats": len(values)}


class Tool:
    """Another tool in an environment of its own, which answers line by line."""

    def __init__(self, name: str):
        folder, pins = HERE / "environments" / name, HERE / "others" / f"{name}.txt"
        stamp = folder / "pins.txt"
        if not stamp.exists() or stamp.read_text() != pins.read_text():
            venv.create(folder, clear=True, with_pip=True)
            subprocess.run([folder / "bin/pip", "install", "--quiet", "-r", pins], check=True)
            shutil.copy(pins, stamp)
        command = [folder / "bin/python", HERE / "others" / f"ask_{name}.py"]
        environment = {**os.environ, **SINGLE, "PYTHONPATH": ""}
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, question: object) -> dict[str, float]:
        """Its answer. Raises ValueError where it gives none."""
        assert self.process.stdin
        assert self.process.stdout
        print(json.dumps(question), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def end(self) -> None:
        """End it."""
        self.process.communicate()


def drawn(count: int) -> tuple[dict[str, object], dict[str, object]]:
    """Architecture keys and workloads of unrelated configurations, as arrays."""
    rng = np.random.default_rng(0)
    kv_heads = 2 ** rng.integers(0, 4, count)
    heads = kv_heads * 2 ** rng.integers(0, 4, count)
    keys = {"layers": rng.integers(1, 129, count), "d_model": 128 * heads, "heads": heads, "kv_heads": kv_heads}
    keys |= {"head_dim": np.full(count, 128)}  # a bound on d_model / heads would be too wide for int64
    keys |= {"d_ff": 128 * rng.integers(4, 256, count), "vocabulary": rng.integers(1000, 2**18, count)}
    workload = {"batch": rng.integers(1, 129, count), "context": rng.integers(2, 32769, count)}
    workload["devices"] = rng.integers(1, 1025, count)
    fixed = {"context": 131072, "positions": "rope", "norm": "rmsnorm", "feedforward": "gated"}
    return {**keys, **fixed}, workload


def one(values: dict[str, object], at: int) -> dict[str, object]:
    """One configuration of arrays."""
    return {name: int(value[at]) if isinstance(value, np.ndarray) else value for name, value in values.items()}


def speed(config: dict, repeats: int, count: int = 2**20) -> dict[str, object]:
    """Configurations a second of processor time, so that other work on the machine counts less; each way in turn."""
    keys, workload = drawn(count)
    kinds = Kinds("bf16", "bf16", config["recipes"]["zero-3"])
    singles = [(one(keys, i), one(workload, i)) for i in range(200)]
    asked = [{**a, **b} for a, b in singles]
    gpt2 = {"path": str(ROOT / "resources/models/gpt2.json"), **LOAD}
    ours = {
        "parameters": lambda s, w: parameters.totals(described("", s)),
        "KV cache": lambda s, w: kv_cache.cache_bytes(described("", s), w["batch"], w["context"], "bf16", "needed"),
        "FLOPs": functools.partial(work, kinds=kinds),
        "training state": functools.partial(state, kinds=kinds),
    }
    tools = {name: Tool(name) for name in ("llm_analysis", "calflops")}

    def clock(call: object) -> float:
        begun = time.process_time()
        call()
        return time.process_time() - begun

    ways = {
        f"arrays: {name}": lambda f=f: count / clock(lambda: checked(f, keys, workload)) for name, f in ours.items()
    }
    together = [functools.partial(part, kinds=kinds) for part in PARTS]
    ways["arrays: all together"] = lambda: count / clock(lambda: [checked(part, keys, workload) for part in together])
    ways["Python loop: all together"] = lambda: (
        200 / clock(lambda: [totals(from_architecture("", a), b, kinds) for a, b in singles])
    )
    ways["llm-analysis 0.2.2: inference()"] = lambda: 200 / tools["llm_analysis"].ask(asked)["seconds"]
    ways["calflops 0.3.2: GPT-2"] = lambda: 1 / tools["calflops"].ask(gpt2)["seconds"]
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats + 1):
        for name, way in ways.items():
            rates[name].append(way())
    for tool in tools.values():
        tool.end()
    kept = {name: found[1:] for name, found in rates.items()}  # the first warms up
    base = kept["arrays: all together"]
    ratios = {
        name: spread([a / b for a, b in zip(base, found, strict=True)])
        for name, found in kept.items()
        if not name.startswith("arrays")
    }
    return {"configurations": count, "rates": {name: spread(found) for name, found in kept.items()}, "ratios": ratios}


def exactness(config: dict, repeats: int) -> dict[str, object]:
    """Parameters, cache and forward FLOPs of each tool for the same models, against the exact ones."""
    kinds, found = Kinds("bf16", "bf16", None), {}
    analysis = Tool("llm_analysis")
    for name in MODELS:
        path = ROOT / f"resources/models/{name}.json"
        spec, _ = huggingface.read(name, json.loads(path.read_text(encoding="utf-8")))
        exact = totals(spec, {**LOAD, "devices": None}, kinds)
        layer = spec.layers[-1][1]
        a, ff = layer.attention, layer.feedforward
        given = {"layers": spec.depth, "heads": a.heads, "kv_heads": a.kv_heads, "d_model": spec.d_model}
        given |= {"vocabulary": spec.vocabulary, "d_ff": ff.width, "experts": ff.experts, **LOAD}
        given["experts_per_token"] = ff.experts_per_token
        flops = Tool("calflops")  # a process a model: after a failure its counts add up
        answers = {"exact": {key: exact[key] for key in ("parameters", "cache_bytes", "prefill_flops")}}
        for tool, process, question in (
            ("llm-analysis", analysis, [given]),
            ("calflops", flops, {"path": str(path), **LOAD}),
        ):
            answer = process.ask(question)
            answers[tool] = {key: value for key, value in answer.items() if key != "seconds"}
        flops.end()
        found[name] = answers
    analysis.end()
    return {"workload": LOAD, "models": found}


def cost(command: list[str], folder: Path) -> tuple[float, float, int]:
    """Processor seconds, wall seconds and most memory [byte] of one process."""
    begun = time.perf_counter()
    environment = os.environ | SINGLE | {"PYTHONPATH": str(ROOT / "src")}
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return used.ru_utime + used.ru_stime, time.perf_counter() - begun, used.ru_maxrss * 1024


def costs(commands: dict[str, list[str]], folder: Path, repeats: int) -> dict[str, object]:
    """What each command costs, by name."""
    found = {}
    for name, command in commands.items():
        times = [cost(command, folder) for _ in range(repeats)]
        processor, wall, memory = zip(*times, strict=True)
        found[name] = {"processor": spread(list(processor)), "wall": spread(list(wall)), "memory": max(memory)}
        print(".", end="", file=sys.stderr, flush=True)
    return found


def startup(config: dict, repeats: int) -> dict[str, object]:
    """One call of `size`, from the start of its process to its end."""
    command = [sys.executable, "-m", "transformer_ledger", "size", str(ROOT / "resources/models/gpt-oss-20b.json")]
    with tempfile.TemporaryDirectory() as folder:
        cost(command, Path(folder))
        return costs({"size gpt-oss-20b": command}, Path(folder), max(repeats, 5))


def job_costs(config: dict, repeats: int) -> dict[str, object]:
    """Every job of config.yaml, as a process of its own."""
    plan = jobs.Plan(config)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shutil.copytree(ROOT / "results", folder / "results")
        commands = {}
        for job in plan.names:
            spec = folder / f"{job.replace('/', '.')}.json"
            spec.write_text(jobs.canonical(plan.spec(job)), encoding="utf-8")
            commands[job] = [sys.executable, "-m", "transformer_ledger", "--spec", str(spec)]
            commands[job] += ["--output", *jobs.outputs(job)]
        return costs(commands, folder, repeats)


def sweep(config: dict, repeats: int) -> dict[str, object]:
    """One shard with ever more rows of config.sweep.yaml's grid, a process each: memory, time and bytes."""
    settings = dict(config["sweeps"]["large"])
    found = {}
    for layers in config["bench_sizes"]:
        settings["architecture"] = {**config["sweeps"]["large"]["architecture"], **layers}
        part = {**config, "sweeps": {"large": {**settings, "rows_per_job": 10**9}}}
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            spec = folder / "spec.json"
            spec.write_text(jobs.canonical(jobs.Plan(part).spec("sweep/large/0000")), encoding="utf-8")
            output = "results/sweep/large/0000.parquet"
            command = [sys.executable, "-m", "transformer_ledger", "--spec", str(spec), "--output", output]
            used = costs({"": command}, folder, 1 if layers == {} else 2)[""]
            made = folder / output
            rows = pq.ParquetFile(made).metadata.num_rows
            found[str(rows)] = {**used, "rows": rows, "bytes": made.stat().st_size}
    return found


def _project(folder: Path) -> Path:
    """A copy of the project's tracked files."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    return folder


def _waited(folder: Path, *arguments: str) -> float:
    """Seconds of one call of Snakemake on two cores."""
    begun = time.perf_counter()
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "-m", "snakemake", "--cores", "2", *arguments]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return time.perf_counter() - begun


EDITS = {
    "one NumPy verification edited": "src/transformer_ledger/verification/embedding_lookup.py",
    "one torch verification edited": "src/transformer_ledger/verification/rope_values.py",
    "one picture edited": "src/transformer_ledger/figure/score_scale.py",
    "the page's words edited": "src/transformer_ledger/report/words.yaml",
}


def waiting(config: dict, repeats: int) -> dict[str, object]:
    """How long a user waits for the page, and the least that a run could take."""
    found: dict[str, list[float]] = {}

    def note(name: str, seconds: float) -> None:
        found.setdefault(name, []).append(seconds)
        print(f"{name}: {seconds:.2f} s", file=sys.stderr, flush=True)

    for turn in range(repeats):
        with tempfile.TemporaryDirectory() as temporary:
            folder = _project(Path(temporary))
            own = "own=resources/models/qwen3-8b.json"
            note(
                "ledgers of one's own model, in a fresh folder",
                _waited(folder, "results/ledgers.html", "--config", own),
            )
            note("a clean run", _waited(folder))
            note("nothing to do", _waited(folder))
            for name, path in EDITS.items():
                text = "\n# edited\n" if path.endswith(".yaml") else f"\n_EDITED = {turn}\n"
                with open(folder / path, "a", encoding="utf-8") as file:
                    file.write(text)
                note(name, _waited(folder))
            if turn == 0:
                note("floor of a clean run", floor(config, folder))
    return {name: spread(seconds) for name, seconds in found.items()}


def floor(config: dict, folder: Path) -> float:
    """Seconds of all jobs' own work on two workers, everything imported: the timings', and half of the others'."""
    for package in (
        "pyarrow.parquet",
        "torch",
        "transformers.models.llama.modeling_llama",
        "sympy",
        "matplotlib.figure",
    ):
        importlib.import_module(package)
    plan, seconds = jobs.Plan(config), {"timing": 0.0, "other": 0.0}
    for job in plan.names:
        path = folder / "spec.json"
        path.write_text(jobs.canonical(plan.spec(job)), encoding="utf-8")
        begun = time.perf_counter()
        if not (child := os.fork()):
            os.chdir(folder)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os._exit(main_of_a_job(["--spec", str(path), "--output", *jobs.outputs(job)]))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, job
        seconds["timing" if job.startswith("timing/") else "other"] += time.perf_counter() - begun
    return seconds["timing"] + seconds["other"] / 2


PARTS_OF_BENCH = {
    "waiting": waiting,
    "speed": speed,
    "exactness": exactness,
    "startup": startup,
    "jobs": job_costs,
    "sweep": sweep,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--parts", nargs="*", choices=PARTS_OF_BENCH, default=["speed", "exactness", "startup", "jobs"])
    parser.add_argument("--whole", action="store_true", help="of the sweep, all 116 million rows too (1 GB, minutes)")
    options = parser.parse_args()
    os.chdir(ROOT)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    every = yaml.safe_load(Path("config.yaml").read_text(encoding="utf-8"))
    if "sweep" in options.parts:
        every["sweeps"] = yaml.safe_load(Path("config.sweep.yaml").read_text(encoding="utf-8"))["sweeps"]
    config = dict(load(every, [Path("config.yaml")]))
    config["bench_sizes"] = [{"layers": [32], "d_model": [4096, 8192]}, {"layers": [32]}]
    config["bench_sizes"] += [{}] if options.whole else []
    versions = {name: __import__(name).__version__ for name in ("numpy", "pyarrow")}
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    machine = {**provenance.machine(), "memory": memory, **versions}
    for part in options.parts:
        made = {"machine": machine, part: PARTS_OF_BENCH[part](config, options.repeats)}
        (HERE / "results" / f"{part}.json").write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")
        Path("docs/benchmarks.md").write_text(table.text(table.read()), encoding="utf-8")


if __name__ == "__main__":
    main()
