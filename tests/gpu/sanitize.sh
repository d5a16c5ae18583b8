#!/bin/sh
# Out-of-bounds accesses (memcheck) and races in shared memory (racecheck), on small shapes.
# PyTorch's caching allocator would hide the first, so it is off.
set -e
cd "$(dirname "$0")/../.."
export PYTORCH_NO_CUDA_MEMORY_CACHING=1 PYTHONPATH=.
python3 tests/gpu/sanitize.py  # compiles, so that the tools below find the kernels in Triton's cache
for tool in memcheck racecheck; do
    echo "== $tool"
    compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 5 python3 tests/gpu/sanitize.py
done
