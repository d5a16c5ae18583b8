"""The kernels for Hopper GPUs, in Gluon: warps that load, warps that compute."""
