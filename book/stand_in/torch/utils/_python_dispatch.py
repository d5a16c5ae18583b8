"""The hook on operations."""

from torch.dispatch import TorchDispatchMode as TorchDispatchMode
