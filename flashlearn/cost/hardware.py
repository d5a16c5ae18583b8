"""GPUs as their data sheets describe them: peak rates, bandwidth, sizes of memory, each with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch

fp16, bf16, fp32, fp64 = torch.float16, torch.bfloat16, torch.float32, torch.float64


@dataclass(frozen=True)
class Hardware:
    """A GPU as a data sheet describes it.

    peak            FLOP/s of dense matrix products by dtype (tensor cores with float32 sums if there are any)
    bandwidth       HBM (or GDDR) bytes/s;  memory   its bytes
    l2              bytes of the cache that all SMs share
    sram_per_sm     bytes of L1 cache and shared memory of a streaming SM (SM), one memory for both
    shared_per_sm   bytes of that, at most, that its programs can have as shared memory
    registers_per_sm  bytes of its registers, not part of that memory
    sms             how many SMs there are
    sram_bandwidth  bytes/s between SRAM and the arithmetic, of all SMs together
    source          where each of these figures comes from
    """

    name: str
    peak: Mapping[torch.dtype, float] = field(hash=False)
    bandwidth: float
    memory: int
    l2: int
    sram_per_sm: int
    shared_per_sm: int
    registers_per_sm: int
    sms: int
    sram_bandwidth: float
    source: Mapping[str, str] = field(hash=False, repr=False)

    def peak_of(self, dtype: torch.dtype) -> float:
        """FLOP/s of dense matrix products in one dtype. TypeError for a dtype whose peak is not known."""
        if dtype not in self.peak:
            raise TypeError(f"expected dtype to be one of {', '.join(map(str, self.peak))}, got {dtype!r}")
        return self.peak[dtype]

    def ridge(self, dtype: torch.dtype = fp16) -> float:
        """FLOP per byte from which on compute, and not memory, is the limit."""
        return self.peak_of(dtype) / self.bandwidth

    def attainable(self, intensity: float, dtype: torch.dtype = fp16) -> float:
        """The roofline: FLOP/s that an algorithm of this intensity can reach at most."""
        return min(self.peak_of(dtype), intensity * self.bandwidth)

    @property
    def sram(self) -> int:
        """Bytes of SRAM in all."""
        return self.sram_per_sm * self.sms


KB = 1024
MB = 1024 * KB
_REGISTERS = 65536 * 4  # bytes of the registers of one SM, of all GPUs here: 65536 of 32 bits
_BANKS = 32 * 4  # bytes per cycle of one SM's shared memory: 32 banks of 4 bytes
_BANKS_SOURCE = "computed: 32 banks of 4 bytes per cycle and SM, CUDA C++ Programming Guide"
_AMPERE = "NVIDIA A100 Tensor Core GPU Architecture whitepaper, 2020"
_A100 = "NVIDIA A100 data sheet, 40 GB SXM4; dense"
_HOPPER = "NVIDIA H100 Tensor Core GPU Architecture whitepaper, 2022"
_H100 = "NVIDIA H100 data sheet, SXM5"
_H200 = "NVIDIA H200 data sheet, SXM5"
_ADA = "NVIDIA Ada GPU Architecture whitepaper, 2022"
_LAPTOP = "NVIDIA GeForce RTX 40 laptop comparison table: 3072 CUDA cores, 128-bit GDDR6, up to 2370 MHz"

A100_40GB = Hardware(
    name="A100-40GB",
    peak={fp16: 312e12, bf16: 312e12, fp32: 19.5e12, fp64: 19.5e12},
    bandwidth=1555e9,
    memory=40 * 10**9,
    l2=40 * MB,
    sram_per_sm=192 * KB,
    shared_per_sm=164 * KB,
    registers_per_sm=_REGISTERS,
    sms=108,
    sram_bandwidth=_BANKS * 108 * 1.41e9,
    source={
        "peak": f"{_A100} (float32 without TF32, float64 on tensor cores)",
        "bandwidth": _A100,
        "memory": _A100,
        "l2": _AMPERE,
        "sram_per_sm": _AMPERE,
        "shared_per_sm": _AMPERE,
        "registers_per_sm": _AMPERE,
        "sms": _AMPERE,
        "sram_bandwidth": f"{_BANKS_SOURCE}; 1410 MHz, {_AMPERE}",
    },
)
_HOPPER_PEAK = {fp16: 989.4e12, bf16: 989.4e12, fp32: 66.9e12, fp64: 66.9e12}
_HOPPER_SOURCE = {
    "peak": f"{_HOPPER}, H100 SXM5, dense (float32 without TF32, float64 on tensor cores)",
    "l2": _HOPPER,
    "sram_per_sm": _HOPPER,
    "shared_per_sm": _HOPPER,
    "registers_per_sm": _HOPPER,
    "sms": _HOPPER,
    "sram_bandwidth": f"{_BANKS_SOURCE}; 1830 MHz, the clock of the float16 peak, {_HOPPER}",
}
H100_SXM = Hardware(
    name="H100 SXM",
    peak=_HOPPER_PEAK,
    bandwidth=3.35e12,
    memory=80 * 10**9,
    l2=50 * MB,
    sram_per_sm=256 * KB,
    shared_per_sm=228 * KB,
    registers_per_sm=_REGISTERS,
    sms=132,
    sram_bandwidth=_BANKS * 132 * 1.83e9,
    source={**_HOPPER_SOURCE, "bandwidth": _H100, "memory": _H100},
)
H200_SXM = replace(
    H100_SXM,
    name="H200 SXM",
    bandwidth=4.8e12,
    memory=141 * 10**9,
    source={
        **{figure: f"{source}; same GPU" for figure, source in _HOPPER_SOURCE.items()},
        "bandwidth": _H200,
        "memory": _H200,
    },
)
_RTX_4060_SMS, _RTX_4060_HZ = 24, 2.37e9
RTX_4060_LAPTOP = Hardware(
    name="RTX 4060 Laptop",
    peak={
        fp16: 512 * _RTX_4060_SMS * _RTX_4060_HZ,
        bf16: 512 * _RTX_4060_SMS * _RTX_4060_HZ,
        fp32: 256 * _RTX_4060_SMS * _RTX_4060_HZ,
        fp64: 4 * _RTX_4060_SMS * _RTX_4060_HZ,
    },
    bandwidth=256e9,
    memory=8 * 10**9,
    l2=32 * MB,
    sram_per_sm=128 * KB,
    shared_per_sm=100 * KB,
    registers_per_sm=_REGISTERS,
    sms=_RTX_4060_SMS,
    sram_bandwidth=_BANKS * _RTX_4060_SMS * _RTX_4060_HZ,
    source={
        "peak": f"computed: FLOP per cycle and SM (512 with float32 sums, 256, 4) from {_ADA}; SMs and"
        f" clock from {_LAPTOP}, reached at 115 W only",
        "bandwidth": f"computed: 128 bit at 16 Gbit/s, {_LAPTOP}",
        "memory": _LAPTOP,
        "l2": f"{_ADA}, AD107",
        "sram_per_sm": _ADA,
        "shared_per_sm": f"{_ADA}, as CUDA lets a program have it",
        "registers_per_sm": _ADA,
        "sms": f"computed: 3072 / 128, {_LAPTOP}",
        "sram_bandwidth": f"{_BANKS_SOURCE}; {_LAPTOP}",
    },
)
HARDWARE = {hardware.name: hardware for hardware in (A100_40GB, H100_SXM, H200_SXM, RTX_4060_LAPTOP)}
