"""The versions of notebook 14: every one gives PyTorch's numbers, and reads what its switches promise."""

import importlib.util
import inspect
import re

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here", allow_module_level=True)

from flashlearn.kernels import INTERPRETED  # isort: skip (first: it chooses the backend)

import flashlearn as fl
from flashlearn.cost import v2_cost
from flashlearn.kernels import ladder
from flashlearn.kernels.forward import Launch
from flashlearn.kernels.ladder import VERSIONS, attend
from flashlearn.kernels.ladder_source import changed, decided, source_of
from flashlearn.kernels.recorder import kernel_steps
from tests.slow import across

DEVICE = "cpu" if INTERPRETED else "cuda"
SMALL = Launch(32, 16)


def random(*shape, dtype=torch.float32):
    return torch.randn(3, *shape, generator=torch.Generator().manual_seed(0)).to(DEVICE, dtype).unbind(0)


@pytest.mark.parametrize("name, causal", across(VERSIONS, (True, False)))
def test_rung_equals_pytorch(name, causal):
    q, k, v = random(2, 2, 64, 16)
    o, lse = attend(VERSIONS[name], q, k, v, causal=causal, scale=0.3, launch=SMALL)
    want = scaled_dot_product_attention(q, k, v, is_causal=causal, scale=0.3)
    torch.testing.assert_close(o, want, atol=1e-5, rtol=1e-5)
    scores = q @ k.mT * 0.3
    if causal:
        scores.masked_fill_(torch.ones(64, 64, device=DEVICE).triu(1).bool(), float("-inf"))
    torch.testing.assert_close(lse, torch.logsumexp(scores, -1), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "name, launch",
    across(("skip", "split", "descriptors"), (Launch(16, 32), Launch(32, 32), Launch(64, 16))),
    ids=str,
)
def test_blocks_may_have_any_sizes(name, launch):
    q, k, v = random(1, 1, 128, 16, dtype=torch.float16)
    o, _ = attend(VERSIONS[name], q, k, v, causal=True, launch=launch)
    torch.testing.assert_close(o, scaled_dot_product_attention(q, k, v, is_causal=True), atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize("name", ("fused", "exp2", "skip", "split", "blocks"))
def test_only_rungs_that_skip_read_less(name):
    if not INTERPRETED:
        pytest.skip("recording needs the interpreter")
    q, k, v = random(1, 2, 64, 16)
    steps = fl.record(kernel_steps(lambda: attend(VERSIONS[name], q, k, v, causal=True, launch=Launch(16, 16))))
    cost = v2_cost(1, 2, 64, 64, 16, dtype=torch.float32, causal=VERSIONS[name].skip, block_q=16, block_k=16)
    assert fl.hbm_bytes(steps) == (cost.read, cost.written)


@pytest.mark.parametrize("name, hidden", (("exp2", 6), ("skip", 0), ("split", 0)))
def test_the_record_tells_part_from_all_of_a_block(name, hidden):
    if not INTERPRETED:
        pytest.skip("recording needs the interpreter")
    q, k, v = random(1, 1, 64, 16)
    steps = fl.record(kernel_steps(lambda: attend(VERSIONS[name], q, k, v, causal=True, launch=Launch(16, 16))))
    told = {(step.values["i"], step.values["j"]): step.sentence for step in steps if step.matmuls}
    masked = {
        at: sentence.split(" of it masked")[0].split()[-1] for at, sentence in told.items() if "masked" in sentence
    }
    assert {at for at, what in masked.items() if what == "part"} == {(i, i) for i in range(4)}
    assert {at for at, what in masked.items() if what == "all"} == {(i, j) for i, j in told if j > i}
    assert len(masked) == 4 + hidden


def test_every_rung_changes_one_thing():
    versions = list(VERSIONS.values())
    for before, after in zip(versions, versions[1:], strict=False):
        assert sum(a != b for a, b in zip(before[1:], after[1:], strict=True)) == 1, after.change


def test_bad_input_is_rejected():
    q, k, v = random(1, 1, 40, 16)
    with pytest.raises(ValueError, match="expected N a multiple of 32 and 16, got 40"):
        attend(VERSIONS["exp2"], q, k, v, launch=SMALL)
    with pytest.raises(ValueError, match="expected contiguous q, k and v of one shape"):
        attend(VERSIONS["exp2"], q.mT.contiguous().mT, k, v, launch=SMALL)
    with pytest.raises(TypeError, match="expected version to be a Version, one of the values of VERSIONS, got 'exp2'"):
        attend("exp2", q, k, v)
    for D in (8, 40):
        with pytest.raises(ValueError, match=f"expected D to be a power of two of at least 16, got {D}"):
            attend(VERSIONS["exp2"], *random(1, 1, 64, D), launch=SMALL)


# The source of a version, its switches decided


@pytest.mark.parametrize("name", VERSIONS)
def test_the_source_of_a_rung_computes_what_the_rung_does(name, tmp_path, monkeypatch):
    """The displayed lines, with decorators and parameters put back, are launched in place of the ladder's kernels."""
    if not INTERPRETED:
        pytest.skip("compares in the interpreter")
    monkeypatch.setattr(ladder, "TUNED", dict.fromkeys((16, 128), SMALL))
    version, switches = VERSIONS[name], ("CAUSAL", "EXP2", "SKIP", "SPLIT")
    head = "import triton\nimport triton.language as tl\nfrom flashlearn.kernels.ladder import LN_2\n"
    kernels = [getattr(ladder, found) for found in re.findall(r"^def (\w+)", source_of(name), flags=re.MULTILINE)]
    parameters = {
        each.fn.__name__: [a for a in inspect.signature(each.fn).parameters if a not in switches] for each in kernels
    }
    kinds = {each.fn.__name__: each.fn.__annotations__ for each in kernels}
    body = source_of(name).split("\n\n", 1)[1]
    for each, named in parameters.items():
        words = ", ".join(f"{a}: {kinds[each][a]}" if a in kinds[each] else a for a in named)
        body = body.replace(f"def {each}(...):", f"@triton.jit\ndef {each}({words}):")
    path = tmp_path / f"rung_{name}.py"
    path.write_text(head + body, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    q, k, v = random(1, 2, 64, 16)
    want = attend(version, q, k, v, causal=True, launch=SMALL)
    for each in ("ladder_kernel", "descriptors_kernel"):
        if hasattr(module, each):
            monkeypatch.setattr(ladder, each, Launched(getattr(module, each), switches))
    got = attend(version, q, k, v, causal=True, launch=SMALL)
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-6, rtol=1e-6)


class Launched:
    """A kernel that is not handed the switches."""

    def __init__(self, kernel, switches):
        self.kernel, self.switches = kernel, switches

    def __getitem__(self, grid):
        return lambda *args, **options: self.kernel[grid](
            *args, **{name: value for name, value in options.items() if name not in self.switches}
        )


def test_rungs_differ_in_the_lines_of_their_change():
    names = list(VERSIONS)
    lines = {after: changed(before, after) for before, after in zip(names, names[1:], strict=False)}
    assert "+    p = tl.exp2(s - m_new[:, None])" in lines["exp2"] and "+    lse = (m_i" in lines["exp2"]
    assert lines["skip"] == "-    end = N\n+    end = tl.minimum(start_m + BLOCK_M, N)"
    assert "MASKED=False" in lines["split"] and lines["split"].count("for start_n") == 1
    assert len(lines["blocks"].splitlines()) == 2 and "num_stages=3" in lines["blocks"].splitlines()[1]
    loads = changed("blocks", "descriptors", only="load").splitlines()
    assert "+        k = k_desc.load([head * N + start_n, 0])" in loads and "-    k = tl.load(k_ptr + at)" in loads
    assert not any("zeros" in line for line in loads)


def test_a_condition_on_more_than_switches_is_rejected():
    def mixed(N, SKIP):
        if SKIP and N:
            return 1

    with pytest.raises(ValueError, match="expected switches alone in a condition, got True and N"):
        decided(mixed, {"SKIP": True})
