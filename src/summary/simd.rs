//! Runs a loop compiled for the widest vectors that this CPU has; it knows nothing of what the loop does.
//!
//! Nothing here uses fused multiply-add, so a loop gives the same bits on every CPU.

/// A loop to be compiled once per instruction set.
///
/// `run` and all that it calls must be `#[inline(always)]`, or they keep the baseline's vectors.
pub(super) trait Kernel {
    /// What the loop returns.
    type Output;

    /// The loop.
    fn run(self) -> Self::Output;
}

/// Runs the kernel with the widest vectors there are.
#[cfg(target_arch = "x86_64")]
pub(super) fn vectorised<K: Kernel>(kernel: K) -> K::Output {
    if is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
    {
        // SAFETY: the four features that the function is compiled for were just detected.
        unsafe { avx512(kernel) }
    } else if is_x86_feature_detected!("avx2") {
        // SAFETY: the feature that the function is compiled for was just detected.
        unsafe { avx2(kernel) }
    } else {
        kernel.run()
    }
}

/// Runs the kernel as it was compiled for the target.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn vectorised<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn avx512<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}

/// Runs the kernel in every way that this CPU can.
#[cfg(all(test, target_arch = "x86_64"))]
pub(super) fn every_way<K: Kernel>(kernel: impl Fn() -> K) -> Vec<K::Output> {
    let mut outputs = vec![kernel().run(), vectorised(kernel())];
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the feature that the function is compiled for was just detected.
        outputs.push(unsafe { avx2(kernel()) });
    }
    outputs
}

/// Bytes that are asked for ahead of those that are read: a strip takes about as long as memory.
const AHEAD: usize = 4096;

/// Asks for the memory that follows some elements by [`AHEAD`] bytes: a hint, of no other effect.
///
/// The loops read each strip several times, in bursts that the CPU's own prefetching misjudges.
#[inline(always)]
pub(super) fn prefetch<T>(values: &[T]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start = values.as_ptr().cast::<i8>();
        for line in (0..size_of_val(values)).step_by(64) {
            // SAFETY: prefetching reads nothing and never faults, whatever the address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(AHEAD + line)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = values;
}
