"""This machine's versions and devices, and how the Triton kernels of part V will run on it."""

from __future__ import annotations

import importlib.metadata
import os
import platform

import torch


def environment() -> dict[str, str]:
    """Versions, device, and the way Triton kernels run here; nothing is imported or started to find out."""
    return {
        "Python": platform.python_version(),
        "PyTorch": torch.__version__,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU (no CUDA GPU found)",
        "Triton": _version("triton") or "not installed",
        "kernels run": triton_backend(),
        "JupyterLab": _version("jupyterlab") or "not installed",
        "ipywidgets": _version("ipywidgets") or "not installed",
    }


def triton_backend() -> str:
    """How Triton kernels run here: on the GPU, in the CPU interpreter, or not at all and why."""
    if _version("triton") is None:
        return "not at all: Triton has wheels for Linux only; use the dev container (see README)"
    if torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
        return "on the GPU"
    return "on the CPU, in Triton's interpreter: same code, same results up to rounding, slowly"


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
