"""Serving: a batch that requests join and leave at every step, with their keys and values in pages of one pool."""

from flashlearn.serving.batch import Batch, Request
from flashlearn.serving.model import gathered_attention, greedy
from flashlearn.serving.pool import OutOfPages, PagedSequence, PagePool, Ragged
from flashlearn.serving.recorded import batch_steps

__all__ = [
    "Batch",
    "OutOfPages",
    "PagePool",
    "PagedSequence",
    "Ragged",
    "Request",
    "batch_steps",
    "gathered_attention",
    "greedy",
]
