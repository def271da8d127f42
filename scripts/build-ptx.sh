#!/bin/sh
# Rebuilds kernels/ptx from the CUDA sources with NVIDIA's compiler library from PyPI.
#
# Needs python3 with pip; no GPU, no CUDA toolkit. The library is an old one on purpose: its PTX
# is taken by every driver for CUDA 12.0 and newer. With --check nothing is written: the exit
# status tells whether the PTX in the repository is what the sources give.
set -eu
cd "$(dirname "$0")/.."
wheel=nvidia-cuda-nvrtc-cu12==12.0.140
cache=${NVRTC_DIR:-target/nvrtc}
if [ ! -d "$cache/nvidia" ]; then
    python3 -m pip install --quiet --no-deps --target "$cache" "$wheel"
fi
exec python3 scripts/build_ptx.py "$cache/nvidia/cuda_nvrtc/lib" "$@"
