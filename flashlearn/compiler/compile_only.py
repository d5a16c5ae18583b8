"""A GPU that is not there: kernels are compiled for it, their launches are noted, and nothing runs.

    launches = compile_for(90)                   from now on this process has a GPU of compute capability 9.0
    attention_forward(q, k, v)               on the CPU; o and lse hold whatever memory held
    launches[0]                              Launched("attention_forward_kernel", (4, 8, 1), {...}, 49152, 64, 0)

It notes what a user's GPU would get: the launcher's choice of constants, grid and options, and the compiler's result. A
launch that needs more shared memory than that GPU has raises Triton's own error. Use it in a separate process, in which
kernels are compiled, not interpreted (TRITON_INTERPRET=0).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

from flashlearn.compiler.process import resources

# Bytes of shared memory that one program may have, by compute capability (CUDA C++ Programming Guide, "Technical
# Specifications per Compute Capability")
SHARED = {75: 65536, 80: 166912, 86: 101376, 89: 101376, 90: 232448, 100: 232448, 120: 101376}


class Launched(NamedTuple):
    """One launch: the kernel, its grid and its constants, bytes of shared memory of a program, and of a thread the
    registers and the bytes that found no register."""

    kernel: str
    grid: tuple[int, int, int]
    constants: dict
    shared: int
    registers: int
    spilled: int


def compile_for(capability: int) -> list[Launched]:
    """Give this process a GPU that is not there; return the list to which every launch is added."""
    import triton

    if capability not in SHARED:
        raise ValueError(f"expected a compute capability of {list(SHARED)}, times ten, got {capability!r}")
    driver = CompileOnlyDriver(capability)
    triton.runtime.driver.set_active(driver)
    return driver.launches


class CompileOnlyDriver:
    """Triton's driver, without a GPU."""

    def __init__(self, capability: int):
        from triton.backends.compiler import GPUTarget

        self.target = GPUTarget("cuda", capability, 32)
        self.launches: list[Launched] = []
        self.utils = SimpleNamespace(
            # a module, a function, registers, spilled bytes, most threads; the "function" comes back at the launch
            load_binary=lambda name, cubin, shared, device: (None, resources(cubin), 0, 0, 1024),
            get_device_properties=lambda device: {"max_shared_mem": SHARED[capability]},
        )

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self):
        return self.target

    def launcher_cls(self, source, metadata):
        """The launcher of a kernel, which records the launch here. `source` was compiled to `metadata`."""
        names = source.fn.arg_names
        constants = {names[at[0]]: value for at, value in source.constants.items() if len(at) == 1}  # not within tuples

        def launch(x, y, z, stream, function, *rest):
            self.launches.append(Launched(metadata.name, (x, y, z), constants, metadata.shared, *function))

        return launch
