"""The GPT of notebook 15 at full size on a GPU: losses, seconds, memory and decoding, as JSON with provenance.

    python benchmarks/gpu_gpt.py benchmarks/results/gpt_gpu.json --commit $(git rev-parse --short HEAD)
    python benchmarks/gpu_gpt.py /tmp/gpt.json --tiny       the same in miniature, to try the script on a CPU

"standard" is softmax(Q K^T) V in three lines, so S and P are stored, and kept for the backward pass.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import statistics
import subprocess
import time
from datetime import date
from pathlib import Path

import torch

from flashlearn.gpt import GPT, batches, decode, encode, generate, loss_of, pytorch_attention, read_text, train
from flashlearn.inputs import causal_mask
from flashlearn.ops import flash_attention

LARGE = {
    "model": {"layers": 6, "heads": 8, "kv_heads": 2, "width": 512},
    "train": {"steps": 200, "batch": 16, "context": 1024, "lr": 1e-3},
    "timed": {"steps": 20, "batch": 8, "context": 4096},
    "contexts": [1024, 2048, 4096, 8192, 16384, 32768, 65536],
    "decode": {"prompt": 4096, "count": 128, "sample": 400},
}
TINY = {
    "model": {"layers": 2, "heads": 2, "kv_heads": 1, "width": 32},
    "train": {"steps": 3, "batch": 2, "context": 32, "lr": 1e-2},
    "timed": {"steps": 3, "batch": 2, "context": 32},
    "contexts": [32, 64],
    "decode": {"prompt": 32, "count": 4, "sample": 8},
}
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def standard_attention(q, k, v, *, causal=False):
    """softmax(Q K^T / sqrt(D)) V for (B, H, N, D), S and P in memory; heads of k and v repeated where shared."""
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    S = q @ k.mT * q.shape[-1] ** -0.5
    if causal:
        S = S.masked_fill(~causal_mask(q.shape[2], k.shape[2], q.device), float("-inf"))
    return torch.softmax(S, dim=-1).to(v.dtype) @ v


ATTENTIONS = {"standard": standard_attention, "PyTorch": pytorch_attention, "flash_attention": flash_attention}


def provenance(commit: str) -> dict:
    gpu = torch.cuda.get_device_name() if DEVICE == "cuda" else "none (CPU rehearsal)"
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.check_output(query, text=True).split()[0] if DEVICE == "cuda" else "none"
    return {"GPU": gpu, "driver": driver, "PyTorch": torch.__version__, "CUDA": torch.version.cuda,
            "Triton": importlib.metadata.version("triton"), "Python": platform.python_version(), "date": str(date.today()),
            "commit": commit}  # fmt: skip


def new_model(alphabet: str, sizes: dict, attention) -> GPT:
    torch.manual_seed(0)
    return GPT(len(alphabet), **sizes["model"], attention=attention).to(DEVICE)


def synchronize() -> float:
    """Wait for the GPU; the time."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def training(alphabet: str, tokens, sizes: dict) -> tuple[dict, GPT]:
    """Loss of every step for every attention, the same weights and batches, bfloat16 autocast."""
    losses = {}
    for name, attention in ATTENTIONS.items():
        model = new_model(alphabet, sizes, attention)
        losses[name] = [round(x, 4) for x in train(model, tokens, **sizes["train"], dtype=torch.bfloat16)]
    return {"losses": losses, "parameters": sum(p.numel() for p in model.parameters())}, model


def step_times(alphabet: str, tokens, sizes: dict, compiled: bool) -> dict:
    """Median milliseconds of a training step, the first loss, and the seconds until the first step was done."""
    found, timed = {}, sizes["timed"]
    for name, attention in ATTENTIONS.items():
        if compiled and name == "standard":
            continue
        model = new_model(alphabet, sizes, attention)
        run = torch.compile(model, fullgraph=True) if compiled else model
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        times, losses = [synchronize()], []
        stream = batches(tokens, timed["batch"], timed["context"])
        for _ in range(timed["steps"]):
            x, y = next(stream)
            with torch.autocast(DEVICE, dtype=torch.bfloat16):
                loss = loss_of(run, x, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            times.append(synchronize())
        each = [1000 * (after - before) for before, after in zip(times, times[1:], strict=False)]
        found[name] = {"ms": round(statistics.median(each[len(each) // 4 :]), 2), "first_s": round(each[0] / 1000, 1),
                       "losses": [round(x, 4) for x in losses]}  # fmt: skip
    return found


def memory(alphabet: str, tokens, sizes: dict) -> dict:
    """Peak bytes of one training step above weights and optimizer, batch 1, by context; None: out of memory."""
    found = {name: [] for name in ATTENTIONS}
    for name, attention in ATTENTIONS.items():
        model = new_model(alphabet, sizes, attention)
        for context in sizes["contexts"]:
            found[name].append(None if None in found[name] else peak_of_a_step(model, tokens, context))
    return {"contexts": sizes["contexts"], "peak_bytes": found}


def peak_of_a_step(model: GPT, tokens, context: int) -> int | None:
    x, y = next(batches(tokens, 1, context))
    if DEVICE != "cuda":
        loss_of(model, x, y).backward()
        return 0
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    try:
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = loss_of(model, x, y)
        loss.backward()
        return torch.cuda.max_memory_allocated() - before
    except torch.cuda.OutOfMemoryError:
        return None
    finally:
        model.zero_grad()


def decoding(model: GPT, alphabet: str, tokens, sizes: dict) -> dict:
    """In float32, one sequence: milliseconds per token after a long prompt, and text for one seed."""
    found, given = {}, sizes["decode"]
    long, short = tokens[None, : given["prompt"]], tokens[None, :64]
    for name in ("PyTorch", "flash_attention"):
        model.attention = ATTENTIONS[name]
        each = {}
        for cached in (True, False):
            generate(model, long, 2, cached=cached)
            start = synchronize()
            generate(model, long, given["count"], cached=cached)
            each["cached_ms" if cached else "from_scratch_ms"] = round(
                1000 * (synchronize() - start) / given["count"], 3)  # fmt: skip
        texts = [
            decode(generate(model, short, given["sample"], cached=cached)[0], alphabet) for cached in (True, False)
        ]
        found[name] = {**each, "text": texts[0], "text_from_scratch": texts[1]}
    return {"prompt": given["prompt"], "count": given["count"], "runs": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("result", type=Path)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    sizes, text = TINY if options.tiny else LARGE, read_text()
    alphabet = "".join(sorted(set(text)))
    tokens = encode(text, alphabet).to(DEVICE)
    result = {"provenance": provenance(options.commit), "sizes": sizes}

    def keep(name, found):  # after every part: a run cut short keeps what it has
        result[name] = found
        options.result.write_text(json.dumps(result) + "\n")
        print(f"{name} after {time.perf_counter() - start:.0f} s", flush=True)

    start = time.perf_counter()
    found, model = training(alphabet, tokens, sizes)
    keep("training", found)
    keep("decoding", decoding(model, alphabet, tokens, sizes))
    del model
    keep("memory", memory(alphabet, tokens, sizes))
    keep("eager", step_times(alphabet, tokens, sizes, compiled=False))
    keep("compiled", step_times(alphabet, tokens, sizes, compiled=True))


if __name__ == "__main__":
    main()
