"""The mutation lab: every planted bug can be killed, no bug is killed for nothing, wrong tests are reported."""

import importlib.util
import time

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: no mutant can run", allow_module_level=True)

from flashlearn.course.triton_forward import mutation_lab, solutions
from flashlearn.course.triton_forward.mutation_lab import MUTANTS, Mutant, build, diff, right, run_lab

NAMES = [mutant.name for mutant in MUTANTS]
TESTS = [function for name, function in vars(solutions).items() if name.startswith("test_")]
KILLERS = {  # the test of the solution that is meant for each mutant
    "no rescale": "test_no_mask",
    "strict mask": "test_causal",
    "no tail mask": "test_no_mask",
    "lse without log": "test_no_mask",
    "no delta": "test_gradients",
    "stage splitting": "test_causal",
    "scale ignored": "test_scale",
    "top left": "test_more_keys_than_queries",
    "empty rows": "test_more_queries_than_keys",
    "shared heads": "test_heads_that_share_keys",
}


def killers(report):
    return {verdict.mutant.name: verdict.killer for verdict in report.verdicts}


@pytest.mark.slow
def test_the_solution_kills_every_mutant_by_the_test_meant_for_it_in_time():
    start = time.process_time()
    report = run_lab(*TESTS)
    assert killers(report) == KILLERS
    assert not report.survivors and not report.rejected
    assert report.headline == "Exercise 12.mutants: 10 of 10 mutants killed"
    assert time.process_time() - start < 20, "it takes 4 s of an idle laptop"


def test_no_tests_and_a_test_that_always_passes_kill_nothing():
    report = run_lab()
    assert list(report.survivors) == NAMES
    assert all(f"hint: {mutant.hint}" in repr(report) for mutant in MUTANTS)
    assert list(run_lab(lambda attention: True).survivors) == NAMES
    assert list(run_lab(lambda attention: None).survivors) == NAMES


def test_stubs_are_not_attempted():
    def stub(attention):
        raise NotImplementedError("your turn")

    assert repr(run_lab(stub, stub)) == "Exercise 12.mutants: not attempted"
    assert "not attempted" in run_lab(stub)._repr_html_()
    assert len(run_lab(stub, lambda attention: True).survivors) == len(MUTANTS)


def test_a_test_that_fails_the_right_kernel_is_reported_and_kills_nothing():
    def test_wrong(attention):
        q = torch.randn(1, 1, 4, 16)
        assert torch.equal(attention(q, q, q), q), "o is\nnot q"

    def test_crash(attention):
        attention(torch.zeros(3), torch.zeros(3), torch.zeros(3))

    report = run_lab(test_wrong, test_crash, lambda attention: False)
    assert list(report.survivors) == NAMES
    assert [name for name, _ in report.rejected] == ["test_wrong", "test_crash", "<lambda>"]
    assert "WRONG TEST  test_wrong" in repr(report) and "AssertionError: o is\n" in repr(report)
    assert "ValueError" in repr(report) and "it returned False" in repr(report)
    assert "! WRONG TEST" in report._repr_html_() and "&lt;lambda&gt;" in report._repr_html_()


def test_a_test_that_remembers_its_calls_is_reported_and_kills_nothing():
    calls = []

    def test_once(attention):
        calls.append(attention)
        assert len(calls) == 1

    report = run_lab(test_once, lambda attention: True)
    assert list(report.survivors) == NAMES
    ((name, how),) = report.rejected
    assert name == "test_once" and how.startswith("when asked again: AssertionError")


@pytest.mark.slow
def test_one_question_at_a_time():
    """A test of o alone does not see a wrong lse, one without a mask does not see the mask."""

    def close(attention, N, causal):
        q, k, v = torch.randn(3, 1, 2, N, 16)
        expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return torch.allclose(attention(q, k, v, causal=causal), expected, atol=1e-4)

    report = run_lab(lambda attention: close(attention, 40, False))
    assert set(report.survivors) == set(NAMES) - {"no rescale", "no tail mask"}
    report = run_lab(lambda attention: close(attention, 40, True))
    assert set(report.survivors) == set(NAMES) - {"no rescale", "strict mask", "stage splitting"}


def test_random_numbers_are_the_same_for_all_and_the_notebooks_stay():
    seen = []
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    run_lab(lambda attention: seen.append(torch.rand(1).item()))
    assert len(seen) == 1 + len(MUTANTS) + 1 and len(set(seen)) == 1
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize("mutant", MUTANTS, ids=NAMES)
def test_mutants_differ_in_few_lines_and_differ_in_results_only_where_they_should(mutant):
    lines = diff(mutant.name).splitlines()
    assert lines[0] == f"flashlearn/kernels/{mutant.module}.py"
    assert len(lines) == 1 + 2 * len(mutant.changes) <= 7
    q, k, v = (torch.randn(1, 1, 16, 16) for _ in range(3))  # one full block: all but the mask is right
    o = build(mutant)(q, k, v)
    if mutant.name != "stage splitting":
        torch.testing.assert_close(o, right()(q, k, v))


def test_reading_past_the_end_stays_in_memory_of_our_own():
    """The mutant of the split reads whole blocks of keys: what it finds there is the same every time."""
    q, k, v = (torch.randn(1, 1, 16, 16) for _ in range(3))
    mutant = next(mutant for mutant in MUTANTS if mutant.name == "stage splitting")
    assert torch.equal(build(mutant)(q, k, v), build(mutant)(q, k, v))
    assert max(max(mutant.blocks) for mutant in MUTANTS) <= mutation_lab.GUARD


def test_gradients_reach_the_inputs_through_o_and_lse():
    inputs = [torch.randn(1, 1, 20, 16, requires_grad=True) for _ in range(3)]
    o, lse = right()(*inputs, return_lse=True)
    ours = torch.autograd.grad(o.sum() + lse.sum(), inputs)
    q, k, v = inputs
    S = q @ k.mT / 4
    theirs = torch.autograd.grad((torch.softmax(S, -1) @ v).sum() + torch.logsumexp(S, -1).sum(), inputs)
    for ours_, theirs_ in zip(ours, theirs, strict=True):
        torch.testing.assert_close(ours_, theirs_, rtol=0, atol=1e-4)


def test_a_change_that_no_longer_fits_the_kernel_is_reported():
    with pytest.raises(RuntimeError, match="expected 'no such line' once in forward.py, got it 0 times"):
        build(Mutant("x", "", "", (("no such line", ""),)))


def test_unknown_mutant_and_not_a_test():
    with pytest.raises(ValueError, match="one of no rescale, .*got 'y'"):
        diff("y")
    with pytest.raises(TypeError, match=r"run_lab\(test_one, test_two\), got list"):
        run_lab([])
