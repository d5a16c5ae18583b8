"""Python code in a process that compiles kernels: this one interprets them, and Triton decides that once."""

import os
import subprocess
import sys


def compiling(code: str, *arguments: str) -> subprocess.CompletedProcess:
    """Run the code with these arguments, Triton's compiler in place of its interpreter; its output is text."""
    env = {**os.environ, "TRITON_INTERPRET": "0"}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=env, encoding="utf-8"
    )
