"""flash_attention inside a Llama of Hugging Face transformers: equal to its own sdpa implementation."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: flashlearn.models.transformers is not tested", allow_module_level=True)
if importlib.util.find_spec("transformers") is None:
    pytest.skip(
        "transformers is not installed here: flashlearn.models.transformers is not tested", allow_module_level=True
    )

from flashlearn.kernels.target import INTERPRETED  # isort: skip (first: it chooses the backend)

from tests.slow import slow

# transformers takes seconds to import: what needs it imports it, not every process of pytest-xdist that collects this file
NAME = "tiled_triton"
DEVICE = "cpu" if INTERPRETED else "cuda"
SIZES = {
    "vocab_size": 50,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "eos_token_id": None,
    "pad_token_id": None,
    "bos_token_id": None,
}


def llama(implementation, **more):
    from transformers import LlamaConfig, LlamaForCausalLM

    import flashlearn.models.transformers

    assert flashlearn.models.transformers.NAME == NAME
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES, **more, attn_implementation=implementation)).to(DEVICE)


def tokens(N, B=2):
    return torch.randint(50, (B, N), generator=torch.Generator().manual_seed(N)).to(DEVICE)


@pytest.fixture(scope="module")
def pair():
    """The same weights with sdpa and with our attention."""
    return llama("sdpa").eval(), llama(NAME).eval()


@pytest.mark.parametrize("N", (slow(1), 20, slow(70)))
def test_logits_and_gradients(pair, N):
    x, found = tokens(N), []
    for model in pair:
        model.zero_grad()
        out = model(x, labels=x if N > 1 else None)
        (out.loss if N > 1 else out.logits.square().sum()).backward()
        found.append({"logits": out.logits.detach(), **{name: p.grad for name, p in model.named_parameters()}})
    want, got = found
    assert set(got) == set(want) and len(got) > 10
    for name in want:
        torch.testing.assert_close(got[name], want[name], atol=1e-5, rtol=1e-4, msg=lambda m, name=name: f"{name}: {m}")


def test_it_is_our_attention_that_runs(pair, monkeypatch):
    calls = []
    real = sys.modules["flashlearn.models.transformers"].flash_attention
    monkeypatch.setattr(
        "flashlearn.models.transformers.flash_attention",
        lambda q, k, v, **options: (
            calls.append((q.shape[1], k.shape[1], options["causal"])) or real(q, k, v, **options)
        ),
    )
    pair[1](tokens(5))
    assert calls == [(4, 2, True)] * 2


def test_a_cache_in_chunks_equals_one_pass(pair):
    x = tokens(24)
    want, cache, logits = pair[0](x).logits, None, []
    with torch.no_grad():
        for part in (x[:, :10], x[:, 10:11], x[:, 11:]):  # N_q = 10, 1 and 13, behind what is cached
            out = pair[1](part, past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            logits.append(out.logits)
    torch.testing.assert_close(torch.cat(logits, 1), want, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("count", (2, slow(10)))
def test_generates_the_same_tokens(pair, count):
    x, options = tokens(6), {"max_new_tokens": count, "do_sample": False}
    want, got = (model.generate(x, **options) for model in pair)
    assert got.shape == (2, 6 + count) and torch.equal(got, want)


def test_padding_is_refused(pair):
    padded = torch.ones(2, 6, dtype=torch.long, device=DEVICE)
    padded[0, :2] = 0
    with pytest.raises(ValueError, match="expected sequences without padding"):
        pair[1](tokens(6), attention_mask=padded)


def test_a_mask_of_its_own_is_refused(pair):
    with pytest.raises(ValueError, match=r"no attention mask, got one of shape \(2, 1, 6, 6\)"):
        pair[1](tokens(6), attention_mask=torch.ones(2, 1, 6, 6, dtype=torch.bool, device=DEVICE))


def test_packed_sequences_are_refused(pair):
    places = torch.tensor([[0, 1, 2, 0, 1, 2]], device=DEVICE)
    with pytest.raises(ValueError, match="a mask of another form"):
        pair[1](tokens(6, B=1), position_ids=places, use_cache=False)


def test_a_static_cache_is_refused(pair):
    from transformers import StaticCache

    with pytest.raises(ValueError, match="static cache"):
        pair[1](tokens(6), past_key_values=StaticCache(config=pair[1].config, max_cache_len=32), use_cache=True)


def test_a_window_is_refused_where_it_hides_keys(pair):
    from transformers import MistralConfig, MistralForCausalLM

    config = MistralConfig(**SIZES, sliding_window=8, attn_implementation=NAME)
    model = MistralForCausalLM(config).to(DEVICE)
    model(tokens(8))
    with pytest.raises(ValueError, match="all 9 keys, got a window of 8"):
        model(tokens(9))


def test_dropout_is_refused():
    with pytest.raises(ValueError, match="expected dropout 0, got 0.1"):
        llama(NAME, attention_dropout=0.1).train()(tokens(6))


def test_other_kinds_of_attention_are_refused(pair):
    from flashlearn.models.transformers import attention

    q = torch.zeros(1, 1, 2, 16, device=DEVICE)
    with pytest.raises(ValueError, match="plain attention, got softcap"):
        attention(pair[1].model.layers[0].self_attn, q, q, q, None, softcap=30.0)


@pytest.mark.slow  # a process of its own
def test_without_transformers_the_error_says_what_to_install():
    code = "import sys; sys.modules['transformers'] = None; import flashlearn.models.transformers"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 1 and "pip install -c constraints.txt -e .[transformers]" in run.stderr


def test_the_version_tested_is_the_one_pinned():
    from pathlib import Path

    import transformers

    pins = (Path(__file__).parent.parent / "constraints.txt").read_text()
    assert f"\ntransformers=={transformers.__version__}\n" in pins
