"""The hook on functions."""

from torch.dispatch import TorchFunctionMode as TorchFunctionMode
