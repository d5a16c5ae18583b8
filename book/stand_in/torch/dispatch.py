"""Operations by PyTorch's names for them, and the two hooks by which an exercise watches them.

class Watch(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        print(func._schema.name)                                          "aten::exp"
        return func(*args, **(kwargs or {}))

Views are no operations here, since they make no numbers.
"""

from types import MethodType, SimpleNamespace

MISSING = "{} is not part of the page's PyTorch; install the course to use it"
DISPATCH_MODES, FUNCTION_MODES = [], []


class Operation:
    """A function that makes a tensor, or with `writes` changes its first argument; the innermost mode gets the call."""

    def __init__(self, name, kernel, writes=False):
        self.kernel, self.__name__, self.__doc__ = kernel, name, kernel.__doc__
        alias = SimpleNamespace(is_write=True) if writes else None
        self._schema = SimpleNamespace(name=f"aten::{name}", returns=(SimpleNamespace(alias_info=alias),))

    def __call__(self, *args, **kwargs):
        if not DISPATCH_MODES:
            return self.kernel(*args, **kwargs)
        mode = DISPATCH_MODES.pop()  # what the mode does is not watched by it
        try:
            return mode.__torch_dispatch__(self, (), args, kwargs)
        finally:
            DISPATCH_MODES.append(mode)

    def __get__(self, tensor, _=None):
        return self if tensor is None else MethodType(self, tensor)


def operation(name, writes=False):
    """Make an operation of a function."""
    return lambda kernel: Operation(name, kernel, writes)


def function(name, call, needs=None):
    """A function of `torch`: a class with `__torch_function__` takes it over; one argument must be of the class `needs`."""

    def public(*args, **kwargs):
        if FUNCTION_MODES:
            mode = FUNCTION_MODES.pop()
            try:
                return mode.__torch_function__(public, (), args, kwargs)
            finally:
                FUNCTION_MODES.append(mode)
        for value in args:
            if hasattr(type(value), "__torch_function__"):
                return type(value).__torch_function__(public, (), args, kwargs)
        if needs and args and not any(isinstance(value, needs) for value in args[:2]):
            kind = f"must be Tensor, not {type(args[0]).__name__}"
            raise TypeError(f"{name}(): argument 'input' (position 1) {kind}")
        return call(*args, **kwargs) if "input" not in kwargs else call(kwargs.pop("input"), *args, **kwargs)

    public.__name__ = public.__qualname__ = name
    return public


class TorchDispatchMode:
    """In its `with` block, `__torch_dispatch__` is called in place of every operation."""

    stack = DISPATCH_MODES

    def __enter__(self):
        self.stack.append(self)
        return self

    def __exit__(self, *_):
        self.stack.remove(self)


class TorchFunctionMode(TorchDispatchMode):
    """In its `with` block, `__torch_function__` is called in place of every function of `torch`."""

    stack = FUNCTION_MODES
