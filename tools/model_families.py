"""Run every model family of Hugging Face transformers, made tiny, with our attention, and write docs/models.md.

python tools/model_families.py                run all, and say what differs from docs/models.md
python tools/model_families.py --write        write it
python tools/model_families.py bloom llama    run these, and print what came; with --write, write their rows

A family is a model type that has a class for causal or masked language modelling. Its default configuration is made small
(`smaller`), its weights are random, and its logits are compared with those of its own eager attention (`judge`).
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from tqdm import tqdm

from flashlearn.models import transformers as ours  # isort: skip (first: it chooses the backend)
import transformers
from transformers import CONFIG_MAPPING, PreTrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto

CAUSAL = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
MASKED = modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
PAGE = Path(__file__).parent.parent / "docs" / "models.md"
N, CHANGED = 13, 8  # tokens of a sequence; the first that changes where causality is tested
FIRST, VOCABULARY = 10, 50  # tokens of the inputs are from here on: those before them are special ones
LARGEST = 50_000_000  # parameters
BOUND = 1e-5  # of an error, compared with the largest logit: both sides compute in float32

# the value of a field of a configuration, where it is larger
SIZES = {
    32: "hidden_size d_model n_embd dim emb_dim embedding_size embed_dim word_embed_proj_dim pooler_hidden_size d_embed "
    "attention_hidden_size input_embedding_size output_embedding_size prediction_head_size true_hidden_size lru_width "
    "hidden_size_global intra_bottleneck_size d_latents",
    2: "num_attention_heads n_head n_heads decoder_attention_heads encoder_attention_heads num_heads attention_heads "
    "swa_num_attention_heads num_decoder_attention_heads num_encoder_attention_heads linear_num_value_heads "
    "linear_num_heads index_n_heads num_hidden_layers n_layer n_layers num_layers decoder_layers encoder_layers "
    "num_decoder_layers num_encoder_layers num_experts_per_tok num_experts_per_token moe_topk moe_k moe_top_k "
    "index_block_size index_topk_blocks num_self_attends_per_block",
    1: "num_key_value_heads num_kv_heads kv_n_heads swa_num_key_value_heads linear_num_key_heads n_group topk_group "
    "num_expert_group first_k_dense_replace n_groups num_hidden_groups pixel_shuffle_factor index_local_blocks",
    16: "head_dim swa_head_dim d_head linear_key_head_dim linear_value_head_dim linear_head_dim index_head_dim "
    "qk_nope_head_dim v_head_dim kv_channels dim_head d_kv attention_head_size q_lora_rank kv_lora_rank o_lora_rank "
    "query_pre_attn_scalar mamba_d_head mamba_head_dim mamba_headdim",
    24: "qk_head_dim",
    8: "qk_rope_head_dim rotary_dim mamba_d_state ssm_state_size state_size mamba_chunk_size chunk_size num_latents "
    "hidden_size_per_layer_input",
    48: "intermediate_size decoder_ffn_dim encoder_ffn_dim moe_intermediate_size shared_expert_intermediate_size ffn_dim "
    "d_inner ffn_hidden_size expert_ffn_hidden_size dff hidden_dim dim_ff d_ff feed_forward_size mlp_dim "
    "shared_intermediate_size intermediate_size_mlp dense_intermediate_size moe_shared_expert_intermediate_size "
    "shared_experts_intermediate_size",
    VOCABULARY: "vocab_size vocab_size_per_layer_input decoder_vocab_size entity_vocab_size shape_vocab_size "
    "pronunciation_vocab_size audio_vocab_size unpadded_vocab_size encoder_hash_byte_group_vocab",
    64: "codebook_size max_position_embeddings n_positions max_seq_len n_ctx model_max_length context_length mamba_d_ssm",
    4: "num_experts n_routed_experts num_local_experts moe_num_experts mamba_n_heads mamba_num_heads mamba_dt_rank "
    "time_step_rank index_topk",
    6: "sliding_window local_attention sliding_window_size attention_window_size",
}
SMALL = {name: size for size, names in SIZES.items() for name in names.split()}
LATENT = {"num_key_value_heads": 2, "head_dim": 8}  # of latent attention: the part that is rotated
EQUAL = {"num_key_value_heads": 2}
INDEXED = {
    "indexer_n_heads": 1, "indexer_kv_heads": 1, "indexer_head_dim": 16, "indexer_budget": 4, "indexer_compress_ratio": 2
}  # fmt: skip
# of a family or a class, where small sizes contradict each other or the default configuration is not complete
FAMILIES: dict[str, dict[str, Any]] = {
    "axk1": LATENT, "axk2": LATENT, "bailing_hybrid": LATENT, "deepseek_v3": LATENT,
    "deepseek_v32": LATENT, "glm4_moe_lite": LATENT, "glm_moe_dsa": LATENT, "kimi_linear": LATENT,
    "longcat_flash": LATENT, "minicpm3": LATENT, "youtu": LATENT,
    "diffllama": EQUAL, "dots3_note": EQUAL, "dots3_note_text": EQUAL, "esmc": EQUAL,
    "bamba": {"attn_layer_indices": [1]},
    "codegen": {"n_head": 4},
    "cohere_compass_text": {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 10000.0}}},
    "dbrx": {"attn_config": {"kv_n_heads": 1, "rope_theta": 10000.0, "clip_qkv": 8.0}},
    "deepseek_v2": LATENT | {"num_experts_per_tok": 2},
    "dots1": {"head_dim": 16, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1},
    "hunyuan_v1_dense": {"head_dim": 16}, "hunyuan_v1_moe": {"head_dim": 16},
    "ministral": {"head_dim": 16}, "nemotron": {"head_dim": 16, "num_key_value_heads": 1},
    "esm": {"vocab_size": VOCABULARY, "pad_token_id": 1, "mask_token_id": 4},
    "falcon_h1": {"mamba_d_head": 16},
    "gemma3n_text": {"num_kv_shared_layers": 0},
    "gemma4": {"global_head_dim": 16}, "gemma4_text": {"global_head_dim": 16},
    "gemma4_unified_text": {"global_head_dim": 16},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 6},
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention"]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "mamba2": {"num_heads": 4},
    "minimax_m3_vl_text": {"layer_types": ["full_attention", "minimax_m3_sparse"]},
    "qwen4_exp_text": INDEXED,
    "recurrent_gemma": {"num_hidden_layers": 3},
    "reformer": {
        "is_decoder": True, "axial_pos_embds": False, "attn_layers": ["local"], "num_hidden_layers": 1,
        "attention_head_size": 16, "local_attn_chunk_length": 4,
    },
    "ReformerForMaskedLM": {"is_decoder": False},
    "xmod": {"default_language": "en_XX"},
    "zamba": {"layers_block_type": ["linear_attention", "hybrid"] * 2, "num_hidden_layers": 4, "attention_head_dim": 32,
              "attention_hidden_size": 64, "num_key_value_heads": 2},
    "zamba2": {"attention_head_dim": 32, "attention_hidden_size": 64, "num_key_value_heads": 2, "n_mamba_heads": 4},
}  # fmt: skip


class NotBuilt(Exception):
    """A tiny model of a family cannot be made, or does not run with its own attention."""


class Row(NamedTuple):
    """The result of one class of a family: "equal", "rejected", "not built" or "WRONG"; and why."""

    family: str
    head: str
    result: str
    why: str = ""


def heads() -> Iterator[tuple[str, str, str]]:
    """(family, "causal" or "masked", the name of its class), in order."""
    for family in sorted({*CAUSAL, *MASKED}):
        for head, classes in (("causal", CAUSAL), ("masked", MASKED)):
            if family in classes:
                found = classes[family]
                yield family, head, found if isinstance(found, str) else found[0]


def smaller(config: PreTrainedConfig) -> dict[str, Any]:
    """Arguments for a small configuration like this one: small sizes, and each kind of layer once."""
    small: dict[str, Any] = {}
    for name, value in vars(config).items():
        if isinstance(value, PreTrainedConfig):
            small[name] = smaller(value) | FAMILIES.get(value.model_type, {}) | {"model_type": value.model_type}
        elif isinstance(value, bool) or name.startswith("_"):
            continue
        elif isinstance(value, int) and name in SMALL:
            small[name] = min(value, SMALL[name])
        elif name.endswith(("token_id", "_token_index")) and value is not None:
            small[name] = (value if isinstance(value, int) else value[0]) % FIRST
    for name in ("layer_types", "layers_block_type"):
        kinds = list(dict.fromkeys(vars(config).get(name) or ()))
        if kinds:
            small[name] = kinds * 2 if len(kinds) == 1 else kinds
            small["num_hidden_layers"] = len(small[name])
    return small


def tiny(family: str, name: str) -> Callable[[str], PreTrainedModel]:
    """A function that makes the class `name` with an attention, always with the same random weights.

    NotBuilt if eager is not possible.
    """
    model_class = getattr(transformers, name)
    config_class = CONFIG_MAPPING[family]
    if not issubclass(config_class, model_class.config_class):  # of a family of several models, the class for text
        config_class = model_class.config_class

    def make(attention: str) -> PreTrainedModel:
        sizes = smaller(config_class()) | FAMILIES.get(config_class.model_type, {}) | FAMILIES.get(name, {})
        sizes["attn_implementation"] = attention
        torch.manual_seed(0)
        model = model_class(config_class(**sizes)).eval()
        draw = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for part, weight in model.named_parameters():
                if weight.ndim > 1 or part.endswith("sinks"):  # as they begin, attention hardly matters
                    weight.normal_(0, 2 if part.endswith("sinks") else 0.2, generator=draw)
        model.config.use_cache = False
        return model

    try:
        with torch.device("meta"):
            count = sum(weight.numel() for weight in make("eager").parameters())
        if count > LARGEST:
            raise NotBuilt(f"has {count:,} parameters, made small")
        logits(make("eager"), batch(None))
    except NotBuilt:
        raise
    except Exception as error:  # any error of a small configuration in foreign code
        raise NotBuilt(f"{type(error).__name__}: {one_line(error)}") from error
    return make


def batch(side: str | None, later: int = 0) -> dict[str, Tensor]:
    """Three sequences of N tokens, the second and third padded on a side; `later` changes tokens from CHANGED on."""
    x = torch.randint(FIRST, VOCABULARY, (3, N), generator=torch.Generator().manual_seed(1))
    x[:, CHANGED:] = FIRST + (x[:, CHANGED:] - FIRST + later) % (VOCABULARY - FIRST)
    if side is None:
        return {"input_ids": x}
    real = torch.ones(3, N, dtype=torch.long)
    for sequence, pads in ((1, 3), (2, N - 2)):
        real[sequence, slice(pads) if side == "left" else slice(N - pads, N)] = 0
    return {"input_ids": x, "attention_mask": real}


@torch.no_grad()
def logits(model: PreTrainedModel, inputs: dict[str, Tensor]) -> Tensor:
    """(tokens that are no padding, vocabulary)."""
    found = model(**inputs).logits
    real = inputs.get("attention_mask")
    return found.flatten(0, 1) if real is None else found[real.bool()]


def judge(family: str, head: str, name: str) -> Row:
    """Build one class tiny, and compare its logits with those of its eager attention."""
    try:
        make = tiny(family, name)
    except NotBuilt as error:
        return Row(family, head, "not built", str(error))
    calls, real = 0, ours.flash_attention

    def counted(*given, **options):
        nonlocal calls
        calls += 1
        return real(*given, **options)

    ours.flash_attention = counted
    try:
        wrong = differences(make("eager"), make(ours.NAME))
    except Exception as error:
        why = reason(error)
        return Row(family, head, "WRONG" if why is None else "rejected", why or f"{type(error).__name__}: {error}")
    finally:
        ours.flash_attention = real
    if not calls:
        wrong.append("our attention is never called")
    return Row(family, head, "WRONG" if wrong else "equal", ", ".join(wrong))


def differences(eager: PreTrainedModel, model: PreTrainedModel) -> list[str]:
    """What differs: logits without padding and with it on each side, and whether earlier tokens attend to later ones."""
    wrong = []
    for side in (None, "left", "right"):
        want, got = (logits(which, batch(side)) for which in (eager, model))
        error = (got - want).abs().max().item() / want.abs().max().item()
        if not error <= BOUND:
            wrong.append(f"padding {side}: error {error:.0e}")
    change, ours_change = (
        (logits(which, batch(None, later=7)) - logits(which, batch(None)))
        .view(3, N, -1)[:, :CHANGED]
        .abs()
        .max()
        .item()
        for which in (eager, model)
    )
    if change == 0 and ours_change > 0:
        wrong.append(f"earlier tokens change by {ours_change:.0e} with later ones")
    return wrong


# our messages on a rejected model: promises, which the walk tests
REASONS = {
    r"expected a model that asks .*, got \w+, which (.*); .*attn_implementation='eager'": "{}",
    r"expected a model that hands the mask on as it is, got one that .*attn_implementation='eager'": "computes from the mask",
    r"expected keywords that our attention knows, or None, got (.*); .*attn_implementation='eager'": "hands over {}",
    r"expected the mask that flashlearn.models.transformers.mask makes, got one": "makes a mask of its own",
    r"expected a mask of causality, padding, .*, got one of (\w+)": "needs a mask by {}",
    r"expected a head dimension D of at most 256, got": "has a head dimension over 256",
    r"expected k and v of one shape, got": "has values and keys of different widths",
}


def reason(error: Exception) -> str | None:
    """Why our words say that a model is rejected; None if they are not ours."""
    for words, why in REASONS.items():
        if isinstance(error, ValueError) and (found := re.match(words, str(error), re.DOTALL)):
            return why.format(*found.groups())
    return None


def one_line(error: Exception) -> str:
    """The beginning of a message."""
    words = " ".join(str(error).replace("|", "/").split())
    return words if len(words) <= 90 else f"{words[:90]}..."


def walk(families: Iterable[str] = ()) -> list[Row]:
    """All rows, or those of some families."""
    chosen = set(families)
    cases = [case for case in heads() if not chosen or case[0] in chosen]
    loud = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()  # it warns of every second tiny configuration
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = [judge(*case) for case in tqdm(cases, disable=None)]
    transformers.logging.set_verbosity(loud)
    return rows


def page(rows: list[Row]) -> str:
    """docs/models.md."""
    counts = Counter(row.result for row in rows)
    numbers = ", ".join(f"{counts[result]} {result}" for result in ("equal", "rejected", "not built"))
    table = "\n".join(f"| {row.family} | {row.head} | {row.result} | {row.why} |" for row in rows)
    return f"""# Models of Hugging Face transformers with our attention

`attn_implementation="tiled_triton"` runs `flash_attention` in a model of transformers {transformers.__version__}, after
`import flashlearn.models.transformers`. The name has no "flash" in it, because transformers reserves such names for
the package flash-attn.

Not every family can use it. This table says which can, for each class for causal or masked language modelling:

- **equal**: our attention runs. The logits equal those of the model's own eager attention up to {BOUND:.0e} of the largest
  logit, without padding and with padding on either side. Where eager attention is causal, ours is, too.
- **rejected**: a ValueError says why, when the model is built or at its first call.
- **not built**: a tiny model could not be made from the default configuration, so nothing is known.

A family that is equal can still be configured so that it is rejected, for example with dropout or with heads wider than 256.

Choose `attn_implementation` when you build the model. On a built model of a family that computes attention itself, such as
Bloom, `model.set_attn_implementation` changes nothing: transformers logs a warning, and the model stays eager.

`tools/model_families.py` made the table; a slow test runs it again. Classes: {numbers}.

| family | head | result | why |
|---|---|---|---|
{table}
"""


def recorded(text: str | None = None) -> list[Row]:
    """The rows of the table in docs/models.md, or in another text."""
    lines = (PAGE.read_text(encoding="utf-8") if text is None else text).splitlines()
    rows = [Row(*(cell.strip() for cell in line.strip("|").split("|"))) for line in lines if line.startswith("| ")]
    return rows[1:]  # after the heading


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", help="model types of transformers; all of them if there is none")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    if unknown := sorted({*options.families} - {*CAUSAL, *MASKED}):
        parser.error(
            f"expected model types with a class for causal or masked language modelling, got {', '.join(unknown)}"
        )
    rows, before = walk(options.families), recorded()
    changed = [row for row in rows if row not in before]
    gone = [] if options.families else [row for row in before if row[:2] not in {one[:2] for one in rows}]
    if options.write:
        again = {row[:2]: row for row in (*(before if options.families else ()), *rows)}
        PAGE.write_text(page([again[case[:2]] for case in heads() if case[:2] in again]), encoding="utf-8")
    print(*(rows if options.families else changed), Counter(row.result for row in rows), sep="\n")
    for row in gone:
        print(f"in the page, but not in transformers {transformers.__version__}: {row.family}, {row.head}")
    return bool(changed or gone) or any(row.result == "WRONG" for row in rows)


if __name__ == "__main__":
    sys.exit(main())
