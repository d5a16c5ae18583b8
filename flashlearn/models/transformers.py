"""`flash_attention` inside the models of Hugging Face transformers.

    import flashlearn.models.transformers
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="tiled_triton")

Importing this module registers two functions under the name "tiled_triton": the attention itself, and the function that
transformers calls first to make the mask. Other implementations make booleans (B, 1, N_q, N_k). Ours makes what the
kernels take instead, two numbers a sequence and a few for all: see `KernelMask`. Padding on either side becomes
`key_range`, a sliding window `window`, packed sequences `documents`. A cache that is longer than its keys is cut to the
filled part.

A ValueError rejects what the kernels cannot do:

- when the model is built: a family that computes attention itself and never asks transformers for an attention function;
- at the first call: dropout, chunked or sparse attention, padding in the middle, and a mask of the caller's own;
- there too: a keyword that is not in `UNDERSTOOD` or `NEUTRAL`, and any model that computes something from the mask.

`docs/models.md` says for each family of the pinned transformers whether its logits equal those of eager attention.

torch.compile takes all of it. The graph breaks where a mask of a window or of packed sequences is made without an
attention_mask; compiled training without a cache counts as packed. With fullgraph=True that is an error, so pass an
attention_mask, all ones if there is no padding. A compiled one always counts as padding.

Continuous batching has an interface of its own: see `flashlearn.models.continuous`.

transformers is not a dependency of flashlearn: `pip install -c constraints.txt -e .[transformers]`.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Collection
from functools import reduce, wraps
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from flashlearn.core.mask import Window

from flashlearn.fast.api import flash_attention  # isort: skip (before transformers, which imports Triton: see core.target)

try:
    from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel, masking_utils
except ImportError as error:
    raise ImportError(
        "flashlearn.models.transformers needs Hugging Face transformers, which is an optional extra of flashlearn: "
        "run `pip install -c constraints.txt -e .[transformers]`"
    ) from error

NAME = "tiled_triton"  # no "flash" in it: transformers takes such names for the package flash-attn
# keywords of a model that `attention` uses
UNDERSTOOD = ("softcap", "s_aux", "sliding_window", "cu_seq_lens_q", "cu_seq_lens_k")
# keywords that change nothing here: lengths that the offsets imply, positions that q, k and the mask already contain,
# a request for equal bits in every run, and keywords that a model's forward passes to every layer for its other parts
NEUTRAL = (
    "max_length_q", "max_length_k", "position_ids", "deterministic", "use_cache", "num_items_in_batch",
    "output_hidden_states", "output_router_logits", "return_dict",
)  # fmt: skip
# keywords of other mask functions: how to make their tensor, when they may leave it out, and the window again
MASK_NEUTRAL = ("allow_is_causal_skip", "allow_is_bidirectional_skip", "dtype", "config", "use_vmap", "local_size")


def computing(what: str) -> ValueError:
    """The error for a model that computes something from a mask."""
    return ValueError(
        f"expected a model that hands the mask on as it is, got one that calls {what} with it; "
        f"{NAME} cannot run it, use attn_implementation='eager'"
    )


class KernelMask(Tensor):
    """Which keys a query attends to, in place of a mask: a tensor (B or 1, 1, 1, 2) whose numbers are never read.

    causal      whether a query attends to no key behind its own; the last query is at the last key
    window      (left, right), or None
    length      how many keys of the cache are filled; None: all
    key_range   (start, stop) of each sequence's keys, two plain int32 tensors (B,); None: no padding
    documents   (n + 1,) int32 offsets of packed sequences, or None

    It is a tensor of four dimensions because transformers passes no other object as a mask. Every operation on it
    raises, except `to(device)` and `contiguous`: a model that computes attention itself would run without its mask. So
    torch.compile takes no such tensor into a graph, but it takes the plain ones in its fields.
    """

    causal: bool
    window: Window | None
    length: int | None
    key_range: tuple[Tensor, Tensor] | None
    documents: Tensor | None

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in PASSIVE:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        raise computing(getattr(func, "__name__", str(func)))

    def __repr__(self) -> str:  # type: ignore[override]
        return f"KernelMask({self.options()}, length={self.length})"

    def to(  # type: ignore[override]
        self, device: torch.device | str | int | None = None, non_blocking: bool = False, **others
    ) -> KernelMask:
        """The same on another device, where a model is spread over several."""
        if others or not isinstance(device, torch.device | str | int) or not isinstance(non_blocking, bool):
            raise computing("to, with more than a device,")
        start, stop = self.key_range or (None, None)
        start, stop, documents = (
            side if side is None else side.to(device, non_blocking=non_blocking)
            for side in (start, stop, self.documents)
        )
        key_range = None if start is None or stop is None else (start, stop)
        return kernel_mask(device, self.causal, self.window, self.length, key_range, documents)

    def contiguous(self, memory_format: torch.memory_format = torch.contiguous_format) -> KernelMask:
        """The same: generation with a static cache calls it."""
        return self

    def options(self) -> dict[str, Any]:
        """The options of `flash_attention`."""
        return {name: getattr(self, name) for name in ("causal", "window", "documents", "key_range")}


# functions that read properties of a tensor and compute nothing; torch.compile reads the second half of each
READ = "shape ndim dtype device layout requires_grad _base grad is_leaf is_mkldnn is_nested is_quantized is_sparse"
QUERIED = "dim size is_floating_point is_complex stride storage_offset untyped_storage _is_view is_conj is_neg"
PASSIVE = frozenset(
    [getattr(Tensor, name).__get__ for name in READ.split()] + [getattr(Tensor, name) for name in QUERIED.split()]
)


def attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, *,
    scaling: float | None = None, dropout: float = 0.0, is_causal: bool | None = None, **others,
) -> tuple[Tensor, None]:  # fmt: skip
    """query (B, H_q, N_q, D); key, value (B, H_kv, N_k, D) -> (B, N_q, H_q, D), and no weights: none are stored.

    With fewer queries than keys, those before them are in the cache: causal to the bottom right is what is meant. Among
    the `others` are `softcap`, the sinks `s_aux` (H_q,), and `cu_seq_lens_q` and `cu_seq_lens_k` of packed sequences.
    `sliding_window` counts only where no mask was made: else the mask has it. ValueError for any other that is set and
    that is not in `NEUTRAL`.
    """
    check_dropout(dropout)
    check_keywords(others, (*UNDERSTOOD, *NEUTRAL))
    options: dict[str, Any]
    if attention_mask is None:
        causal = is_causal_without_mask(module) if is_causal is None else is_causal
        window = plain_window(others.get("sliding_window"), causal, key.shape[2])
        options = {"causal": causal, "window": window, "documents": None}
    else:
        ours = check_mask(attention_mask, is_causal)
        options = ours.options()
        if ours.length is not None:
            key, value = key[:, :, : ours.length], value[:, :, : ours.length]
    options["documents"] = packed_by(others.get("cu_seq_lens_q"), others.get("cu_seq_lens_k"), options["documents"])
    o = flash_attention(query, key, value, **options, **score_options(others), scale=scaling)
    return o.transpose(1, 2).contiguous(), None


def check_keywords(others: dict[str, Any], known: Collection[str]) -> None:
    """Raise ValueError for an unknown keyword with a value."""
    found = [name for name, value in others.items() if name not in known and value is not None and value is not False]
    if found:
        raise ValueError(
            f"expected keywords that our attention knows, or None, got {', '.join(found)}; "
            "use attn_implementation='eager'"
        )


def is_causal_without_mask(module: nn.Module) -> bool:
    """Whether a module that made no mask is causal."""
    if not isinstance(causal := getattr(module, "is_causal", None), bool):
        raise ValueError(
            f"expected a mask, or a module that says by `is_causal` what it attends to, got {type(module).__name__} "
            "without either: use attn_implementation='eager'"
        )
    return causal


def score_options(others: dict[str, Any]) -> dict[str, Any]:
    """The model's softcap, and its sinks in float32, as the kernels take them."""
    sinks = others.get("s_aux")
    return {"softcap": others.get("softcap"), "sinks": None if sinks is None else sinks.float()}


def check_dropout(dropout: float) -> None:
    """Reject dropout."""
    if dropout:
        raise ValueError(
            f"expected dropout 0, got {dropout}: the kernels have none. Call model.eval(), set the attention dropout of the "
            "config to 0, or use attn_implementation='eager'"
        )


def check_mask(mask: Tensor, is_causal: bool | None = None) -> KernelMask:
    """Reject a mask that is not ours, which may hide any keys, and one that contradicts `is_causal`."""
    if not isinstance(mask, KernelMask):
        raise ValueError(
            f"expected the mask that flashlearn.models.transformers.mask makes, got one of shape {tuple(mask.shape)}: pass an "
            "attention_mask (B, N) of padding, or use attn_implementation='eager'"
        )
    if mask.causal and is_causal is False:
        raise ValueError("expected is_causal to agree with the mask, got is_causal=False and a causal mask")
    return mask


def plain_window(size: int | None, causal: bool, N_k: int) -> Window | None:
    """A sliding window of `size` keys, the query's own among them, where it hides any of N_k."""
    if size is None or size >= N_k:
        return None
    return size - 1, None if causal else size - 1


def packed_by(offsets_q: Tensor | None, offsets_k: Tensor | None, documents: Tensor | None) -> Tensor | None:
    """The offsets of the documents, as FlashAttention takes them: from the caller, or from the mask."""
    if offsets_q is None:
        return documents
    for name, other in (("cu_seq_lens_k", offsets_k), ("the positions", documents)):
        if other is not None and not torch.equal(offsets_q.int(), other.int()):
            raise ValueError(
                f"expected {name} to cut where cu_seq_lens_q do, got {other.tolist()} and {offsets_q.tolist()}"
            )
    return offsets_q.int()


def mask(
    *, q_length: int, kv_length: int, q_offset: int | Tensor = 0, kv_offset: int = 0,
    mask_function: Callable = masking_utils.causal_mask_function, attention_mask: Tensor | None = None,
    batch_size: int = 1, device: torch.device | str = "cpu", **others,
) -> KernelMask:  # fmt: skip
    """To which of the keys kv_offset to kv_offset + kv_length the queries q_offset to q_offset + q_length attend.

    `attention_mask` (B, N) booleans: False is padding, and keys behind N are hidden. ValueError for what neither a range
    of keys nor a window can say. Never None, which a model that computes attention itself takes for "attend to all".
    """
    check_keywords(others, MASK_NEUTRAL)
    plain = mask_function is masking_utils.causal_mask_function and attention_mask is None
    if plain and isinstance(q_offset, int) and kv_offset + kv_length == q_offset + q_length:
        return kernel_mask(device, causal=True)
    if attention_mask is not None and torch.compiler.is_dynamo_compiling():  # then no sequences are packed
        rule, keys = read_once(mask_function), torch.ops.flashlearn.key_ranges(attention_mask, kv_length, kv_offset)
        return kernel_mask_of(Rule(*rule), keys, True, q_length, kv_length, q_offset, kv_offset)
    return uncompiled(mask_function, attention_mask, batch_size, device, q_length, kv_length, q_offset, kv_offset)


@torch.compiler.disable(reason="flashlearn.models.transformers makes masks uncompiled where there is no attention_mask")
def uncompiled(
    mask_function: Callable, attention_mask: Tensor | None, batch_size: int, device: torch.device | str,
    q_length: int, kv_length: int, q_offset: int | Tensor, kv_offset: int,
) -> KernelMask:  # fmt: skip
    """The same without torch.compile, which cannot trace it."""
    keys, padded = key_ranges(attention_mask, batch_size, kv_length, kv_offset, device)
    return kernel_mask_of(read(mask_function), keys, padded, q_length, kv_length, q_offset, kv_offset)


def kernel_mask_of(
    rule: Rule, keys: Tensor, padded: bool, q_length: int, kv_length: int, q_offset: int | Tensor, kv_offset: int
) -> KernelMask:
    """The same, from the rule of the mask function and the keys (B, 2) that are no padding."""
    if q_length == 1 and (isinstance(q_offset, Tensor) or q_offset - kv_offset + 1 < kv_length):
        return decoding(keys, rule, kv_length, q_offset - kv_offset)
    position = int(q_offset) - kv_offset  # of the first query, among the keys
    length = min(kv_length, position + q_length) if rule.right == 0 else kv_length
    if (rule.left, rule.right) != (None, None) and length != position + q_length:
        raise ValueError(f"expected keys up to that of the last query, {position + q_length} of them, got {length}")
    window = None if rule.left is None or rule.left >= length - 1 else (rule.left, rule.right)
    filled = None if length == kv_length else length
    return kernel_mask(
        keys.device, rule.right == 0, window, filled, sides(keys) if padded else None, offsets(rule.packed)
    )


def kernel_mask(
    device: torch.device | str | int, causal: bool, window: Window | None = None, length: int | None = None,
    key_range: tuple[Tensor, Tensor] | None = None, documents: Tensor | None = None,
) -> KernelMask:  # fmt: skip
    """A `KernelMask` with these fields."""
    made = torch.empty(1, 1, 1, 2, dtype=torch.int32, device=device).as_subclass(KernelMask)
    made.causal, made.window, made.length = causal, window, length
    made.key_range, made.documents = key_range, documents
    return made


def sides(keys: Tensor) -> tuple[Tensor, Tensor]:
    """start and stop (B,) of keys (B, 2), each contiguous."""
    start, stop = keys.unbind(1)
    return start.contiguous(), stop.contiguous()


class Rule(NamedTuple):
    """Which keys a query attends to by distance: `left` before it, `right` behind it (None: all), of its own sequence."""

    left: int | None = None
    right: int | None = None
    packed: Tensor | None = None

    def __and__(self, other: Rule) -> Rule:
        """The keys that both rules leave."""
        left, right = (
            min((x for x in pair if x is not None), default=None) for pair in zip(self[:2], other[:2], strict=True)
        )
        return Rule(left, right, self.packed if other.packed is None else other.packed)


def read(function: Callable) -> Rule:
    """The rule of a mask function of transformers. Its factories return closures: the code identifies the factory, and
    the variables of the closure are its arguments."""
    code = getattr(function, "__code__", None)
    if code is None or code not in READERS:
        raise ValueError(
            "expected a mask of causality, padding, sliding windows and packed sequences, as transformers makes them, "
            f"got one of {getattr(function, '__qualname__', function)}"
        )
    values = (cell.cell_contents for cell in function.__closure__ or ())
    return READERS[code](**dict(zip(code.co_freevars, values, strict=True)))


@torch.compiler.assume_constant_result
def read_once(function: Callable) -> tuple:
    """The same as a plain tuple. torch.compile cannot trace closures, but it runs this, if none has tensors."""
    return tuple(read(function))


def code_of(factory: Callable, *arguments):
    """The code of the closures that a factory of mask functions returns."""
    return factory(*arguments).__code__


READERS: dict[object, Callable[..., Rule]] = {
    masking_utils.causal_mask_function.__code__: lambda: Rule(right=0),
    masking_utils.bidirectional_mask_function.__code__: lambda: Rule(),
    code_of(masking_utils.sliding_window_overlay, 1): lambda sliding_window: Rule(left=sliding_window - 1),
    code_of(masking_utils.sliding_window_bidirectional_overlay, 1): lambda sliding_window: Rule(
        sliding_window, sliding_window
    ),
    code_of(masking_utils.and_masks): lambda mask_functions: reduce(Rule.__and__, map(read, mask_functions)),
    code_of(masking_utils.packed_sequence_mask_function, None): lambda packed_sequence_mask: Rule(
        packed=packed_sequence_mask
    ),
    # positions restart with each packed sequence and grow by 1: within one, distances stay the same
    code_of(masking_utils.remap_positions_for_packed_sequence, None, None): lambda mask_function, position_ids: read(
        mask_function
    ),
}


def key_ranges(
    mask: Tensor | None, batch: int, N_k: int, offset: int, device: torch.device | str
) -> tuple[Tensor, bool]:
    """(B, 2) int32, the keys that are no padding (start, stop), and whether any is; ValueError if they are no range."""
    if mask is None:
        return torch.tensor((0, N_k), dtype=torch.int32, device=device).repeat(batch, 1), False
    real = mask[:, offset : offset + N_k].bool()
    real = nn.functional.pad(real, (0, N_k - real.shape[1]))
    position = torch.arange(N_k, device=real.device)
    stop = torch.where(real, position + 1, 0).amax(1)
    start = torch.minimum(torch.where(real, position, N_k).amin(1), stop)
    whole, together = torch.stack((real.all(), (real.sum(1) == stop - start).all())).tolist()  # one wait, not two
    if not together:
        raise ValueError(
            "expected padding before or behind a sequence, got an attention mask that hides tokens between others"
        )
    return torch.stack((start, stop), 1).int(), not whole


# `key_ranges` where torch.compile traces a mask: it waits for numbers, which no CUDA graph may contain
torch.library.define(
    "flashlearn::key_ranges", "(Tensor mask, SymInt N_k, SymInt offset) -> Tensor", tags=torch.Tag.cudagraph_unsafe
)


def _key_ranges(mask, N_k, offset):
    return key_ranges(mask, mask.shape[0], N_k, offset, mask.device)[0]


@torch.library.register_fake("flashlearn::key_ranges")
def _(mask, N_k, offset):
    return mask.new_empty((mask.shape[0], 2), dtype=torch.int32)


torch.library.impl("flashlearn::key_ranges", ("cpu", "cuda"), _key_ranges)


def decoding(keys: Tensor, rule: Rule, N_k: int, position: int | Tensor) -> KernelMask:
    """The same for one query in a cache that is not full: a range of keys.

    A static cache keeps the query's position on the device: the host waits for nothing, and no shape changes.
    """
    start, stop = keys.unbind(1)
    start = start if rule.left is None else start.clamp(min=position - rule.left)
    stop = stop if rule.right is None else stop.clamp(max=position + rule.right + 1)
    keys = torch.stack((torch.minimum(start, stop), stop), 1).int()
    return kernel_mask(keys.device, causal=False, key_range=sides(keys))


def offsets(packed: Tensor | None) -> Tensor | None:
    """(n + 1,) int32 offsets of the documents from the number of each token's, (B, N); one layout for the whole batch."""
    if packed is None:
        return None
    if (packed != packed[0]).any():
        raise ValueError(f"expected sequences packed alike, or a batch of 1, got {packed.shape[0]} that differ")
    lengths = packed[0].unique_consecutive(return_counts=True)[1]
    return nn.functional.pad(lengths.cumsum(0), (1, 0)).int()


def check_family(model: PreTrainedModel) -> None:
    """ValueError for a model whose family never asks transformers for an attention function.

    No flag of transformers says so for all families: the source of the model's module does.
    """
    family = type(model)
    bases = [base for base in family.__mro__ if issubclass(base, PreTrainedModel) and base is not PreTrainedModel]
    source = "".join(map(source_of, bases))
    if OWN_CLASSES.search(source):
        why = "which chooses between attention classes of its own"
    elif ASKS in source:
        return
    elif not source:
        why = "whose source cannot be read: define it in a file"
    elif COMPUTES.search(source):
        why = "which computes attention itself"
    elif bases[-1].__module__.startswith("transformers.") and not model.config.sub_configs:
        why = "which has no attention"
    else:  # made of other models, which are checked when they are built
        return
    raise ValueError(
        f"expected a model that asks transformers for its attention function, got {family.__name__}, {why}; "
        f"{NAME} cannot run it, use attn_implementation='eager'"
    )


ASKS = "ALL_ATTENTION_FUNCTIONS.get_interface("
OWN_CLASSES = re.compile(r"ATTENTION_CLASSES\[")
COMPUTES = re.compile(r"^class \w*Attention\w*\(nn\.Module\):", re.MULTILINE)


def source_of(family: type) -> str:
    """The source of the module that defines a class; empty if there is none, as for a class from a notebook."""
    try:
        return inspect.getsource(sys.modules.get(family.__module__))  # type: ignore[arg-type]
    except (OSError, TypeError):
        return ""


def checking(choose: Callable) -> Callable:
    """The method with which every model, when it is built, checks the name of its attention; ours checks the family, too."""

    @wraps(choose)
    def chosen(model: PreTrainedModel, requested_attention: str | None, *arguments, **options) -> str:
        if requested_attention == NAME:
            check_family(model)
        return choose(model, requested_attention, *arguments, **options)

    return chosen


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, mask)
# transformers accepts a registered name for every family, and offers no hook to say which: so its own check is wrapped
PreTrainedModel.get_correct_attn_implementation = checking(PreTrainedModel.get_correct_attn_implementation)  # type: ignore[method-assign]
