"""The GPT of notebook 16 at full size on a GPU: losses, seconds, memory and decoding, as JSON with provenance.

    python benchmarks/gpu_gpt.py flashlearn/measurements/gpt_gpu.json --commit $(git rev-parse --short HEAD)
    python benchmarks/gpu_gpt.py /tmp/gpt.json --tiny       the same in miniature, to try the script on a CPU
    python benchmarks/gpu_gpt.py VERSE.json --parts verse   only the 5,000 steps, as in measurements/gpt_verse_h100.json

"standard" is softmax(Q K^T) V in three lines, so S and P are stored, and kept for the backward pass.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import statistics
import time
from functools import partial
from pathlib import Path

import torch
from recording import provenance
from torch.nn.attention import SDPBackend, sdpa_kernel

from flashlearn.core.mask import causal_mask
from flashlearn.fast.api import flash_attention
from flashlearn.fast.dispatch import choose_forward
from flashlearn.models.gpt import GPT, batches, decode, encode, generate, loss_of, pytorch_attention, read_text, train
from flashlearn.models.ngram import ngram_loss

LARGE = {
    "model": {"layers": 6, "heads": 8, "kv_heads": 2, "width": 512},
    "train": {"steps": 200, "batch": 16, "context": 1024, "lr": 1e-3},
    "verse": {
        "batch": 16,
        "context": 1024,
        "lr": 1e-3,
        "steps": 5000,
        "samples": [0, 200, 1000, 5000],
        "every": 100,
        "count": 400,
        "order": 5,
    },
    "timed": {"steps": 20, "batch": 8, "context": 4096},
    "contexts": [1024, 2048, 4096, 8192, 16384, 32768, 65536],
    "decode": {"prompts": [64, 4096, 65536], "count": 128, "sample": 400},
    "one_query": {
        "heads": [[2, 2, 64], [8, 2, 64], [32, 8, 128]],  # H, H_kv, D; the second is the model's
        "contexts": [128, 1024, 4096, 16384, 65536],
    },
}
TINY = {
    "model": {"layers": 2, "heads": 2, "kv_heads": 1, "width": 32},
    "train": {"steps": 3, "batch": 2, "context": 32, "lr": 1e-2},
    "verse": {
        "batch": 2,
        "context": 32,
        "lr": 1e-2,
        "steps": 6,
        "samples": [0, 2, 6],
        "every": 2,
        "count": 8,
        "order": 5,
    },
    "timed": {"steps": 3, "batch": 2, "context": 32},
    "contexts": [32, 64],
    "decode": {"prompts": [8, 32], "count": 4, "sample": 8},
    "one_query": {"heads": [[2, 1, 16]], "contexts": [16, 64]},
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


def verse(alphabet: str, tokens, sizes: dict) -> dict:
    """Train until the model writes something like verse, with PyTorch's attention and with ours, the same weights and
    batches. The last tenth of the text is held out. Results of each: losses of every step, regular validation losses,
    texts after `samples` steps and of the best checkpoint, all drawn from one seed. Next to them: the loss of a 5-gram
    model.
    """
    given, split = sizes["verse"], len(tokens) * 9 // 10
    learnt, held_out = tokens[:split], tokens[split:]
    found = {"held_out": len(held_out), "order": given["order"], "runs": {}}
    found["ngram"] = ngram_loss(learnt.cpu(), held_out.cpu(), order=given["order"], vocabulary=len(alphabet))
    for name in ("PyTorch", "flash_attention"):
        model = new_model(alphabet, sizes, ATTENTIONS[name])
        found["runs"][name] = trained(model, alphabet, learnt, held_out, given)
        print(
            name, {key: found["runs"][name][key] for key in ("best", "best_step")}, "n-gram", found["ngram"], flush=True
        )
    return found


def trained(model: GPT, alphabet: str, learnt, held_out, given: dict) -> dict:
    """One run of `verse`."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=given["lr"])
    stream, losses, validation, texts = batches(learnt, given["batch"], given["context"]), [], {}, {}
    best, best_step, kept = float("inf"), 0, copy.deepcopy(model.state_dict())
    for step in range(given["steps"] + 1):
        if step % given["every"] == 0:
            validation[step] = held_out_loss(model, held_out, given)
            if validation[step] < best:
                best, best_step, kept = validation[step], step, copy.deepcopy(model.state_dict())
        if step in given["samples"]:
            texts[step] = sample(model, alphabet, held_out, given["count"])
        if step < given["steps"]:
            with torch.autocast(DEVICE, dtype=torch.bfloat16):
                loss = loss_of(model, *next(stream))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    model.load_state_dict(kept)
    return {
        "losses": [round(x, 4) for x in torch.stack(losses).tolist()],
        "validation": {step: round(x, 4) for step, x in validation.items()},
        "texts": texts,
        "best": round(best, 4),
        "best_step": best_step,
        "best_text": sample(model, alphabet, held_out, given["count"]),
    }


@torch.no_grad()
def held_out_loss(model: GPT, held_out, given: dict) -> float:
    """Nats per character of the held-out text, in adjacent windows; the rest at the end is not read."""
    windows = held_out[: (len(held_out) - 1) // given["context"] * given["context"] + 1]
    x, y = (t.view(-1, given["context"]) for t in (windows[:-1], windows[1:]))
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        each = [loss_of(model, *part) * len(part[0]) for part in zip(x.split(16), y.split(16), strict=True)]
    return (sum(each) / len(x)).item()


def sample(model: GPT, alphabet: str, held_out, count: int) -> str:
    """The model's text after the first 64 held-out characters, from a fixed seed."""
    return decode(generate(model, held_out[None, :64], count, seed=0, temperature=0.8)[0], alphabet)


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
        found[name] = {
            "ms": round(statistics.median(each[len(each) // 4 :]), 2),
            "first_s": round(each[0] / 1000, 1),
            "losses": [round(x, 4) for x in losses],
        }
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
    """One sequence: milliseconds per token after prompts of several lengths in bfloat16, and text in float32."""
    found, given, short = {}, sizes["decode"], tokens[None, :64]
    half = copy.deepcopy(model).bfloat16()
    for name in ("PyTorch", "flash_attention"):
        model.attention = half.attention = ATTENTIONS[name]
        each = {"cached_ms": [], "from_scratch_ms": []}
        for N in given["prompts"]:
            prompt = tokens[None, :N]
            each["cached_ms"].append(cached_ms(half, prompt, given["count"]))
            each["from_scratch_ms"].append(from_scratch_ms(half, prompt, given["count"] // 4))
        texts = [
            decode(generate(model, short, given["sample"], cached=cached)[0], alphabet) for cached in (True, False)
        ]
        found[name] = {**each, "text": texts[0], "text_from_scratch": texts[1]}
    return {"dtype": "bfloat16", "prompts": given["prompts"], "count": given["count"], "runs": found}


@torch.no_grad()
def cached_ms(model: GPT, prompt, count: int) -> float:
    """Milliseconds for each of `count` tokens behind a prompt that is in the cache; the second of two runs."""
    for _ in range(2):  # the first one compiles, and makes plans
        caches = model.empty_caches(1, prompt.shape[1] + count)
        model(prompt, caches)
        start = synchronize()
        for _ in range(count):
            model(prompt[:, -1:], caches)
        ms = 1000 * (synchronize() - start) / count
    return round(ms, 3)


@torch.no_grad()
def from_scratch_ms(model: GPT, prompt, count: int) -> float:
    """Milliseconds to read the whole prompt again, as each token needs without a cache."""
    model(prompt)
    start = synchronize()
    for _ in range(count):
        model(prompt)
    return round(1000 * (synchronize() - start) / count, 3)


BACKENDS = {
    "PyTorch's FlashAttention-2": SDPBackend.FLASH_ATTENTION,
    "PyTorch's cuDNN": SDPBackend.CUDNN_ATTENTION,
    "PyTorch's memory-efficient": SDPBackend.EFFICIENT_ATTENTION,
}


@torch.no_grad()
def one_query(sizes: dict) -> list[dict]:
    """Microseconds of attention alone for one query behind N_k keys, bfloat16; None: the backend rejects.

    The GPU's own time: calls are recorded in a CUDA graph, and every call reads another cache. "kernel" is ours.
    """
    rows = []
    for H, H_kv, D in sizes["one_query"]["heads"]:
        for N_k in sizes["one_query"]["contexts"]:
            q, caches = inputs_of(H, H_kv, D, N_k)
            k, v = caches[0]
            row = {"H": H, "H_kv": H_kv, "D": D, "N_k": N_k, "kernel": choose_forward(q, k, v, scale=D**-0.5).name}
            for name in ("flash_attention", "PyTorch"):
                row[name] = microseconds(ATTENTIONS[name], q, caches)
            for name, backend in BACKENDS.items():
                try:
                    with sdpa_kernel(backend):
                        row[name] = microseconds(pytorch_attention, q, caches)
                except RuntimeError as error:
                    print(f"{name} rejects: {error}", flush=True)
                    row[name] = None
            print(row, flush=True)
            rows.append(row)
    return rows


def inputs_of(H: int, H_kv: int, D: int, N_k: int):
    """A query (1, H, 1, D), and enough caches (k, v) to exceed 200 MB, or 64."""
    options = {"device": DEVICE, "dtype": torch.bfloat16 if DEVICE == "cuda" else torch.float32}
    torch.manual_seed(0)
    q = torch.randn(1, H, 1, D, **options)
    copies = min(64, 200_000_000 // (4 * H_kv * N_k * D) + 2) if DEVICE == "cuda" else 1
    return q, [tuple(torch.randn(2, 1, H_kv, N_k, D, **options)) for _ in range(copies)]


def microseconds(attention, q, caches: list) -> float:
    """Median time of a call, once it is found to be right; that first call also sets up what a graph must not hold."""
    k, v = caches[0]
    want = standard_attention(q.float(), k.float(), v.float())
    error = ((attention(q, k, v, causal=True).float() - want).norm() / want.norm()).item()
    if not error < 2e-2:
        raise AssertionError(f"wrong, relative error {error:.1e}: not timed")
    if DEVICE != "cuda":
        return 0.0
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = [attention(q, *cache, causal=True) for cache in caches]
    times = []
    for _ in range(20):
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before.record()
        graph.replay()
        after.record()
        torch.cuda.synchronize()
        times.append(1000 * before.elapsed_time(after) / len(outputs))
    return round(statistics.median(times), 2)


OTHERS = {
    "verse": verse,
    "memory": memory,
    "eager": partial(step_times, compiled=False),
    "compiled": partial(step_times, compiled=True),
    "one_query": lambda alphabet, tokens, sizes: one_query(sizes),
}
PARTS = ["training", *OTHERS]  # with "training" goes "decoding", of the model that it trained


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("result", type=Path)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    options = parser.parse_args()
    sizes, text = TINY if options.tiny else LARGE, read_text()
    alphabet = "".join(sorted(set(text)))
    tokens = encode(text, alphabet).to(DEVICE)
    about = {
        "title": text.splitlines()[0],
        "characters": len(text),
        "alphabet": len(alphabet),
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
    }
    result = {"provenance": provenance(options.commit), "text": about, "sizes": sizes}

    def keep(name, found):  # after every part: an interrupted run keeps its parts
        result[name] = found
        options.result.write_text(json.dumps(result) + "\n", encoding="utf-8")
        print(f"{name} after {time.perf_counter() - start:.0f} s", flush=True)

    start = time.perf_counter()
    if "training" in options.parts:
        found, model = training(alphabet, tokens, sizes)
        keep("training", found)
        keep("decoding", decoding(model, alphabet, tokens, sizes))
        del model
    for name, part in OTHERS.items():
        if name in options.parts:
            keep(name, part(alphabet, tokens, sizes))


if __name__ == "__main__":
    main()
