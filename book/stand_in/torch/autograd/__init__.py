"""Autograd is not part of the page's PyTorch: the course derives its gradients by hand."""

from torch.autograd import forward_ad as forward_ad
from torch.dispatch import MISSING


def __getattr__(name):
    raise AttributeError(MISSING.format(f"torch.autograd.{name}"))
