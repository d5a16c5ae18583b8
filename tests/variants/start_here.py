"""Wrong answers to the exercise of notebook 00."""

import math

import torch

from tests.variants import variant


@variant("00.scores", "divided by the root of the number of keys", r"sqrt\(D\)|scale|D is|last size")
def root_of_the_number_of_keys(q, k):
    return q @ k.T / math.sqrt(len(k))


@variant("00.scores", "multiplied by sqrt(D) where it must be divided", r"sqrt\(D\)|scale|multipl")
def times_root_of_d(q, k):
    return q @ k.T * math.sqrt(q.shape[-1])


@variant("00.scores", "k is not transposed", r"transpos|k\.T\b|k\.mT")
def not_transposed(q, k):
    return q @ k / math.sqrt(q.shape[-1])


@variant("00.scores", "softmax is applied already", r"softmax|add up to 1|sum to 1|exponential")
def softmax_already(q, k):
    return torch.softmax(q @ k.T / math.sqrt(q.shape[-1]), -1)


@variant("00.scores", "nothing is returned", r"\breturn")
def no_return(q, k):
    s = q @ k.T / math.sqrt(q.shape[-1])  # noqa: F841
