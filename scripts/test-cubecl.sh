#!/bin/sh
# Tests the engine on CubeCL's real CUDA runtime, and sessions on Burn's CUDA device, over the stand-in
# driver: no GPU, no toolkit.
#
# CubeCL links LLVM, which its build downloads. Where only a package registry can be reached,
# DOCS_RS keeps the download away and the linker is told to leave LLVM's symbols open: with the C++
# code generator chosen, none is called. Own target folder, since the flags rebuild everything.
set -eu
cd "$(dirname "$0")/.."
export DOCS_RS=1
export RUSTFLAGS="-Clink-arg=-Wl,--unresolved-symbols=ignore-all -Crelro-level=off"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target/cubecl}"
exec cargo test --no-default-features --features cuda,cubecl/cuda-cpp --test cubecl "$@"
