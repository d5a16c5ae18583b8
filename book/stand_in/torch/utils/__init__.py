"""The hook on operations is in `_python_dispatch`."""
