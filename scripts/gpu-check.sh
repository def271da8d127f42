#!/bin/sh
# Checks and measures the CUDA kernels and engine on an NVIDIA GPU and prints one Markdown table.
#
#   scripts/gpu-check.sh build   builds everything; needs the network, but no GPU and no toolkit
#   scripts/gpu-check.sh         runs it; needs a GPU, but no network; under five minutes
#
# compute-sanitizer (memcheck and racecheck) is used where it is found.
set -eu
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target/gpu-check}"
programs="$CARGO_TARGET_DIR/release/examples"

if [ "${1:-}" = build ]; then
    cargo build --release --no-default-features --features cuda-driver --example gpu_check
    # Burn's own build needs LLVM, which it downloads; without it the Llama is left out.
    cargo build --release --no-default-features --features cuda,models --example gpu_llama ||
        echo "the Llama could not be built: its rows will be missing" >&2
    exit
fi

started=$(date +%s)
date -u +%Y-%m-%d
# A sanitized run may take long on a slow machine: it must not eat the whole five minutes.
if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
        timeout 45 compute-sanitizer --tool "$tool" --error-exitcode 9 "$programs/gpu_check" --quick >"$CARGO_TARGET_DIR/$tool.log" 2>&1 &&
            found=clean || found="exit status $?, see $CARGO_TARGET_DIR/$tool.log"
        echo "compute-sanitizer $tool: $found"
    done
else
    echo "compute-sanitizer: not found"
fi
timeout 110 "$programs/gpu_check"
if [ -x "$programs/gpu_llama" ]; then
    # With Burn's fusers and modules traced; then one operation at a time, each of them seen.
    timeout 45 "$programs/gpu_llama"
    timeout 45 "$programs/gpu_llama" --operations
fi
echo
echo "took $(($(date +%s) - started)) s"
