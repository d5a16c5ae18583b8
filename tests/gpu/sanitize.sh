#!/bin/sh
# Out-of-bounds accesses (memcheck) and races in shared memory (racecheck), on small shapes.
# PyTorch's caching allocator would hide the first, so it is off.
#
# The Hopper kernels are left out of racecheck, which reports two things in them. One is the word in shared memory
# through which Triton tells its groups of warps what to run, behind the named barrier 1. The other is lse and
# delta on their way from the loading warp to the computing ones (backward): the PTX has store, bar.warp.sync,
# mbarrier.arrive on one side, and a wait on that mbarrier before the load on the other. Both are judged to be
# ordered, by reading the PTX and SASS; racecheck itself does not clear them.
set -e
cd "$(dirname "$0")/../.."
export PYTORCH_NO_CUDA_MEMORY_CACHING=1 PYTHONPATH=.
python3 tests/gpu/sanitize.py  # compiles, so that the tools below find the kernels in Triton's cache
check() { compute-sanitizer --tool "$1" --error-exitcode 9 --print-limit 5 python3 tests/gpu/sanitize.py "$2"; }
echo "== memcheck, all kernels"
check memcheck all
echo "== racecheck, teaching kernels"
check racecheck teaching
