"""`torch.nn`: of it the page has `functional` alone."""

from torch.dispatch import MISSING
from torch.nn import functional as functional


def __getattr__(name):
    raise AttributeError(MISSING.format(f"torch.nn.{name}"))
