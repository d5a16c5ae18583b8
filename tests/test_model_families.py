"""docs/models.md: which families of transformers run with our attention as with their own, and which are rejected."""

from __future__ import annotations

import importlib.util
from collections import Counter

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: families of models are not tested", allow_module_level=True)
if importlib.util.find_spec("transformers") is None:
    pytest.skip("transformers is not installed here: its families are not tested", allow_module_level=True)

from flashlearn.core.target import INTERPRETED  # isort: skip (first: it chooses the backend)

from tests.slow import slow

NAME = "tiled_triton"
# asks without a mask of its own; its decoder says nothing of `is_causal`; each way of being rejected
QUICK = (
    "gpt2", slow("bigbird_pegasus"), "bloom", "gptj", slow("mpt"), "mamba", slow("doge"), "minimax_m3_vl_text",
    slow("layoutlm"), slow("llama4_text"),
)  # fmt: skip
NOT_BUILT = 5  # classes: more than this is a defect of the walk

pytestmark = pytest.mark.skipif(not INTERPRETED, reason="the tiny models are on the CPU")


@pytest.fixture(scope="module")
def walk():
    """tools.model_families, which imports transformers: seconds, and not for every worker that collects this file."""
    from tools import model_families

    return model_families


@pytest.fixture
def unchecked(monkeypatch):
    """Every family is accepted when it is built, as transformers does by itself."""
    from flashlearn.models import transformers as ours

    monkeypatch.setattr(ours, "check_family", lambda model: None)


def test_the_table_has_every_class_once(walk):
    rows = walk.recorded()
    assert [(row.family, row.head) for row in rows] == [case[:2] for case in walk.heads()]
    assert {row.result for row in rows} == {"equal", "rejected", "not built"}
    counts = Counter(row.result for row in rows)
    assert counts["not built"] <= NOT_BUILT and counts["equal"] > 100
    assert f"{counts['equal']} equal, {counts['rejected']} rejected, {counts['not built']} not built" in (
        walk.PAGE.read_text(encoding="utf-8")
    )


def test_a_family_that_does_not_exist_is_an_error(walk, capsys):
    with pytest.raises(SystemExit):
        walk.main(["bloom", "blom"])
    assert "got blom" in capsys.readouterr().err


def test_a_row_that_is_in_the_page_alone_is_reported(walk, monkeypatch, capsys):
    rows = walk.recorded()
    monkeypatch.setattr(walk, "walk", lambda families: rows[1:])
    assert walk.main([]) and f": {rows[0].family}, {rows[0].head}" in capsys.readouterr().out
    monkeypatch.setattr(walk, "walk", lambda families: rows)
    assert not walk.main([])


@pytest.mark.parametrize("family", QUICK)
def test_a_family_is_what_the_table_says(walk, family):
    rows = walk.walk([family])
    assert rows and rows == [row for row in walk.recorded() if row.family == family]


@pytest.mark.slow  # about 240 tiny models, each with two kinds of attention
def test_every_family_is_what_the_table_says(walk, capsys):
    rows = walk.walk()
    with capsys.disabled():
        print(Counter(row.result for row in rows), *(row for row in rows if row.result == "not built"), sep="\n")
    assert [row for row in rows if row.result == "WRONG"] == []
    assert rows == walk.recorded()


def test_the_page_and_its_rows_are_one(walk):
    rows = [walk.Row("a", "causal", "equal"), walk.Row("b", "masked", "rejected", "computes from the mask")]
    assert walk.recorded(walk.page(rows)) == rows


@pytest.mark.parametrize("family", ("bloom", slow("codegen"), slow("gpt_neox_japanese"), slow("roformer"), slow("mpt")))
def test_a_mask_is_never_lost_on_a_model_that_computes_attention_itself(walk, unchecked, family):
    """The second guard: without the first, these ran without their mask."""
    for row in walk.walk([family]):
        assert (row.result, row.why) == ("rejected", "computes from the mask")


def test_the_walk_notices_a_model_that_never_asks(walk, unchecked):
    (row,) = walk.walk(["cpmant"])
    assert row.result == "WRONG" and "our attention is never called" in row.why


@pytest.mark.parametrize(("option", "without"), (("key_range", None), ("causal", False)))
def test_the_walk_notices_what_is_left_out(walk, monkeypatch, option, without):
    from flashlearn.models import transformers as ours

    real = ours.flash_attention
    monkeypatch.setattr(ours, "flash_attention", lambda *given, **options: real(*given, **options | {option: without}))
    (row,) = walk.walk(["gpt2"])
    assert row.result == "WRONG" and "padding left: error" in row.why
    assert ("earlier tokens change" in row.why) == (option == "causal")


def test_the_walk_notices_an_error_in_other_words(walk, monkeypatch):
    from flashlearn.models import transformers as ours

    def fail(*given, **options):
        raise ValueError("something else")

    monkeypatch.setattr(ours, "flash_attention", fail)
    (row,) = walk.walk(["gpt2"])
    assert row.result == "WRONG" and row.why == "ValueError: something else"


def sizes(**more):
    return {"hidden_size": 32, "n_layer": 1, "n_head": 2, "vocab_size": 50} | more


def test_a_family_that_computes_attention_itself_is_rejected_when_it_is_built():
    from transformers import BloomConfig, BloomForCausalLM

    import flashlearn.models.transformers  # noqa: F401

    config = BloomConfig(**sizes(), attn_implementation=NAME)
    with pytest.raises(
        ValueError, match="expected a model that asks .*, got Bloom.*, which computes attention itself; .*eager"
    ):
        BloomForCausalLM(config)
    BloomForCausalLM(BloomConfig(**sizes(), attn_implementation="eager"))


def test_a_class_of_a_user_that_is_made_of_a_known_one_is_accepted():
    from transformers import GPT2Config, GPT2LMHeadModel

    import flashlearn.models.transformers  # noqa: F401

    class Mine(GPT2LMHeadModel):
        """Its module does not ask; that of the class it is made of does."""

    Mine(GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=50, attn_implementation=NAME))


def test_a_class_whose_source_cannot_be_read_is_rejected():
    from transformers import PreTrainedConfig, PreTrainedModel

    import flashlearn.models.transformers  # noqa: F401

    family = type("Typed", (PreTrainedModel,), {"__module__": "nowhere", "config_class": PreTrainedConfig})
    with pytest.raises(ValueError, match="got Typed, whose source cannot be read: define it in a file"):
        family(PreTrainedConfig(attn_implementation=NAME))


def test_attention_may_be_changed_in_a_model_that_asks():
    from transformers import GPT2Config, GPT2LMHeadModel

    import flashlearn.models.transformers  # noqa: F401

    model = GPT2LMHeadModel(
        GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=50, attn_implementation="eager")
    ).eval()
    x = torch.arange(7)[None]
    with torch.no_grad():
        want = model(x).logits
        model.set_attn_implementation(NAME)
        assert model.config._attn_implementation == NAME
        torch.testing.assert_close(model(x).logits, want, atol=1e-5, rtol=1e-4)
