"""The kernels for every GPU that Triton compiles for: plain Triton, without any one architecture's own instructions."""
