"""The worked examples that the course is built around: notebooks compute and print them, and do not only tell of them."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
EXAMPLES = {  # notebook: {example: what its code or what it printed must hold; .* goes over lines}
    "01": {
        "the row and its softmax": r"weights: \[0\.0043, 0\.0116, 0\.0315, 0\.0858, 0\.2331, 0\.6337\]",
        "softmax(x) @ v": r"softmax\(x\) @ v = 5\.4329",
        "edges of exp": r"float16 .*above  11\.0899.*bfloat16 .*88\.7189.*float32 .*88\.7228.*float64 .*709\.7827",
        "the sum overflows earlier": r"exp: +\[59872\.0, 59872\.0\].*?\[0\.0, 0\.0\]",
        "underflow gives 0/0": r"exp: +\[0\.0, 0\.0\]\nsoftmax: \[nan, nan\]",
        "e^11 is finite in float16": r"finfo\(torch\.float16\)\.max == 65504 and round\(math\.exp\(11\)\) == 59874",
        "e^x - max": r"weights = torch\.exp\(x\) - x\.max\(\)",
        "the edge from the largest number": r"finfo.*high = math\.log\(info\.max\)",
    },
    "02": {
        "any shift k": r"k = -100\.0: largest difference",
        "a maximum that starts at -1000, logits of -2000": r"\[-2000\.0, -2001\.0\].*start -1000\.0: \[nan, nan\]",
        "-inf is a number, -inf - -inf is none": r"\[1\.0, -inf, 2\.0\] -> \[0\.2689, 0\.0, 0\.7311\].*\[-inf, -inf, -inf\] -> \[nan, nan, nan\]",
    },
    "03": {
        "the sum without and with the correction": r"l = 1\.3679.*l = 2\.3679.*l = 1\.1851.*l = 1\.2034",
        "the row": r"\[3\.0, 2\.0, 5\.0, 1\.0\]",
        "the invariant": r"assert_close\(l, torch\.exp\(seen - seen\.max\(\)\)\.sum\(\)\)",
        "256 logits in blocks of 4": r"256 logits in 64 blocks merge to one pair in six rounds",
        "3N to 2N": r"safe_softmax_steps, 3\),\s.*online_softmax_steps, 2\).*== \(reads \* n_bytes, n_bytes\)",
    },
    "04": {"one query, ten keys": r"B, H, N, D = 2, 1, 10, 4", "K, then V": r"two_pass_attention_steps"},
    "05": {
        "the thread": r"== \"?5\.4329",
        "both forms counted": r"operations\(fl\.one_pass_attention_steps\(\*at, normalised=form\)\)",
        "l is at least 1": r"values\[\"l_i\"\] >= 1\)\.all\(\)",
        "one number for two": r"logsumexp",
    },
    "06": {
        "8 x 4 times 4 x 8, blocks of 4 x 2": r"randn\(8, 4.*randn\(4, 8.*\"block_m\": 4, \"block_n\": 2, \"block_k\": 2",
        "(8, 128) in blocks of 2 rows": r"Q +original \(8, 128\) +block \(2, 128\) +grid of blocks 4 x 1",
        "a maximum for each block": r"blocks of 2: 3\.7311",
    },
    "07": {
        "blocks from 59 elements": r"N, d, M = 5, 3, 59.*need 63 of 59 elements: does not fit.*need 54 of 59 elements: fits",
        "floor loses two rows": r"queries lost with floor: \[3, 4\]",
        "what O holds on the way": r"Q0 x K0: right for keys 0 to 3\..*Q1 x K0: right for keys 0 to 3\.",
        "rows, not columns": r"torch\.diag\(alpha\.squeeze\(\)\) @ X, alpha \* X",
        "bytes of both": r"FlashAttention-1 moves +[\d,]+ B, FlashAttention-2 +[\d,]+ B",
        "it fits from here on": r"8 \* d\*\*2 \+ 12 \* d - 3 == 105 > M",
        "sizes of stages": r"# stage 1, without a mask.*# stage 2, masked",
    },
    "08": {
        "the A100": r"1555 GB/s.*192 KB of SRAM|HBM, 40 GB.*SRAM, 20 MB in all SMs.*1555 GB/s.*19\.5 TB/s.*108 \* 192 \* 1024",
        "the ridge point": r"round\(ridge\) == 201",
        "GPT-2 medium as published": r"66\.6e9, 40\.3e9, 41\.7e-3.*75\.2e9, 4\.4e9, 7\.3e-3",
        "d^2 / M": r"d²/M = 0\.08.*d²/M = 0\.32",
        "placement as a table": r"placement_table",
    },
    "09": {
        "y1, y2, y3": r"y1 = a \* w1.*y2 = y1 \+ b1.*y3 = y2\*\*2",
        "nobody builds the Jacobian": r"= 2\^41: 8 TiB, float32",
        "diag(p) - p p^T": r"torch\.diag\(p\) - torch\.outer\(p, p\)",
        "gradcheck": r"gradcheck: True",
        "W^T for one row alone": r"one row: .*= W\^T;",
    },
    "10": {
        "dV of the first key": r"dV_0 = 0\.75 \[1\.0, 2\.0\] \+ 0\.50 \[2\.0, -1\.0\] = \[1\.75, 1\.0\]",
        "seven products and five": r"products == each \* visits",
    },
    "11": {
        "98432 elements": r"N, BLOCK = 98432, 1024.*programs == 97 and mask\.sum\(\) == 128",
        "strides": r"x\.stride\(\) == \(4 \* 3, 3, 1\) == \(12, 3, 1\)",
        "shape": r"\(2, 4, 3\) \(12, 3, 1\)",
        "prologue and epilogue": r"pipeline_steps\(5, stages\)",
        "tuning": r"the best sizes are [\d.]+ times as fast as the worst",
        "it runs, so it compiles": r"a float becomes a tile: .*float16 becomes float32: ",
    },
    "12": {
        "log2(e) and ln(2)": r"log2\(e\) = 1\.4427, ln\(2\) = 0\.6931",
        "l_i starts at 1": r"l_i = tl\.full\(\(BLOCK_M,\), \{l_start\}",
        "what is loaded, counted": r"visits\.count\(program\)",
    },
    "13": {
        "three kernels and a class": r"dkdv.*dq.*class Attention\(torch\.autograd\.Function\)",
        "gradcheck, and that it can fail": r"gradcheck: \{'Attention': True, 'Forgotten': False\}",
    },
    "14": {"the versions": r"fused.*exp2.*skip.*split.*blocks.*descriptors"},
    "15": {
        "the register split": r"\[240, 24\]",
        "two buffers, then three": r"STAGES = 2: 32 slots.*STAGES = 3: 24 slots.*taken == \[40, 32\]",
        "the missing fence": r"without its fence: slot 8: TMA reads x_smem",
        "a deadlock": r"slot 16: consume 0 waits for phase 1 of full\[0\]",
        "times beside them": r"ns a tile +1 stage +2 stages.*attend +\d+ +\d+.*recorded 20",
    },
}  # fmt: skip


@cache
def shown(number: str) -> str:
    """The code of a notebook, each cell with what it printed."""
    (path,) = FOLDER.glob(f"{number}_*.ipynb")
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            parts.append("".join(cell["source"]))
            for output in cell["outputs"]:
                parts.append("".join(output.get("text") or output.get("data", {}).get("text/plain") or ""))
    return "\n".join(parts)


@pytest.mark.parametrize(("number", "example"), [(n, e) for n, found in EXAMPLES.items() for e in found])
def test_a_seed_example_is_computed_in_its_notebook(number, example):
    assert re.search(EXAMPLES[number][example], shown(number), re.DOTALL), f"notebook {number} does not show it"


def test_what_is_only_told_does_not_count():
    assert "goes through the course as one thread" not in shown("01"), "prose"
    assert not re.search(EXAMPLES["01"]["softmax(x) @ v"], shown("01").replace("5.4329", "5.4328"))
