"""`flash_attention` inside the models of Hugging Face transformers.

    import flashlearn.models.transformers
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation=flashlearn.models.transformers.NAME)

Importing this module registers two functions under the name "tiled_triton": the attention itself, and what
transformers asks first, which mask it needs. The answer is none: causality is the kernels' own affair. What they
cannot do (padding, sliding windows, packed sequences, dropout, ...) is refused, never silently left out.

transformers is not a dependency of flashlearn: `pip install -c constraints.txt -e .[transformers]`.
"""

from __future__ import annotations

from torch import Tensor, nn

from flashlearn.kernels.op import flash_attention  # isort: skip (before transformers, which imports Triton: see kernels.target)

try:
    from transformers import AttentionInterface, AttentionMaskInterface
except ImportError as error:
    raise ImportError(
        "flashlearn.models.transformers needs Hugging Face transformers, which is an optional extra of flashlearn: "
        "run `pip install -c constraints.txt -e .[transformers]`"
    ) from error

NAME = "tiled_triton"  # no "flash" in it: transformers takes such names for the package flash-attn
UNSUPPORTED = ("softcap", "s_aux", "position_bias", "cache")  # what some models hand over, and we cannot do


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    **others,
) -> tuple[Tensor, None]:
    """query (B, H_q, N_q, D); key, value (B, H_kv, N_k, D) -> (B, N_q, H_q, D), and no weights: none are stored.

    With fewer queries than keys, those before them are in the cache: causal to the bottom right is what is meant.
    """
    if attention_mask is not None:
        raise ValueError(f"expected no attention mask, got one of shape {tuple(attention_mask.shape)}")
    if dropout:
        raise ValueError(f"expected dropout 0, got {dropout}: the kernels have none")
    found = [name for name in UNSUPPORTED if others.get(name) is not None]
    if found:
        raise ValueError(f"expected plain attention, got {', '.join(found)}")
    causal = module.is_causal if is_causal is None else is_causal
    o = flash_attention(query, key, value, causal=bool(causal), scale=scaling)
    return o.transpose(1, 2).contiguous(), None


def mask(
    *,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    attention_mask: Tensor | None = None,
    local_size: int | None = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    **others,
) -> None:
    """No mask, if causal or full attention over all keys is what is meant; ValueError otherwise."""
    if attention_mask is not None and not attention_mask.all():
        raise ValueError("expected sequences without padding, got an attention mask that hides tokens")
    if local_size is not None and local_size < kv_length:
        raise ValueError(f"expected attention over all {kv_length} keys, got a window of {local_size}")
    if not (allow_is_causal_skip or allow_is_bidirectional_skip):
        raise ValueError("expected causal attention, got a mask of another form, or a static cache")
    if not allow_is_bidirectional_skip and kv_length != q_offset + q_length:
        raise ValueError(f"expected a cache of {q_offset + q_length} tokens, got room for {kv_length} (a static cache)")


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, mask)
