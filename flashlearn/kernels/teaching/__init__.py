"""The kernels that the notebooks read: one variant each, masked pointer arithmetic, any shape."""
