//! The sum of a tensor in the very order in which PyTorch adds its elements on a CPU.
//!
//! After `multi_row_sum`, `row_sum` and `vectorized_inner_sum` of
//! `aten/src/ATen/native/cpu/SumKernel.cpp`, with the vectors of AVX2 and one thread, for a
//! row-major tensor. PyTorch splits sums of more than 32768 elements over its threads, which
//! changes their last digits; with one thread (as in its own reproducible runs) they are these.

/// The element types that PyTorch sums as they are; every half type is first converted to `f32`.
pub(super) trait Addend: Copy + Default + std::ops::AddAssign {
    /// Elements of one 256-bit vector.
    const VECTOR: usize;
}

impl Addend for f32 {
    const VECTOR: usize = 8;
}

impl Addend for f64 {
    const VECTOR: usize = 4;
}

/// Vectors that PyTorch adds side by side.
const ROWS: usize = 4;

/// Room for `ROWS` vectors of the widest kind.
const WIDEST: usize = 32;

/// The elements that one accumulator of every lane takes in: `ROWS` vectors.
type Group<T> = [T; WIDEST];

/// How many groups each level adds before it hands its sum to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// All elements of the tensor.
    count: usize,
    /// Groups per first-level sum, and sums per level after that.
    step: usize,
}

impl Plan {
    /// The plan for a tensor of that many elements.
    pub(super) fn new<T: Addend>(count: usize) -> Self {
        let groups = count / (T::VECTOR * ROWS);
        let power = (ceil_log2(groups) / 4).max(4);
        Self {
            count,
            step: 1usize << power,
        }
    }

    /// Elements of one second-level sum: blocks that are a multiple of it can be summed apart.
    pub(super) fn unit<T: Addend>(self) -> usize {
        self.step
            .saturating_mul(self.step)
            .saturating_mul(T::VECTOR * ROWS)
    }
}

/// `utils::CeilLog2` of ATen.
fn ceil_log2(x: usize) -> u32 {
    if x <= 2 {
        1
    } else {
        usize::BITS - (x - 1).leading_zeros()
    }
}

/// The first two levels over one block, fed in order.
#[derive(Clone, Debug)]
pub(super) struct BlockSum<T> {
    plan: Plan,
    /// Groups taken in since the last full first-level sum.
    groups: usize,
    /// First-level sums taken in since the last full second-level sum.
    sums: usize,
    level0: Group<T>,
    level1: Group<T>,
    /// Full second-level sums.
    units: Vec<Group<T>>,
    /// The elements after the last full group; only the tensor's last block has any.
    tail: Vec<T>,
}

impl<T: Addend> BlockSum<T> {
    /// An empty block.
    pub(super) fn new(plan: Plan) -> Self {
        Self {
            plan,
            groups: 0,
            sums: 0,
            level0: [T::default(); WIDEST],
            level1: [T::default(); WIDEST],
            units: Vec::new(),
            tail: Vec::new(),
        }
    }

    /// Takes in the next elements: whole groups, except at the end of the tensor.
    #[inline(always)]
    pub(super) fn push<const LANES: usize>(&mut self, mut values: &[T]) {
        while values.len() >= LANES {
            let groups = (self.plan.step - self.groups).min(values.len() / LANES);
            let (now, later) = values.split_at(groups * LANES);
            let mut sum = [T::default(); LANES];
            sum.copy_from_slice(&self.level0[..LANES]);
            for group in now.as_chunks::<LANES>().0 {
                for lane in 0..LANES {
                    sum[lane] += group[lane];
                }
            }
            self.level0[..LANES].copy_from_slice(&sum);
            self.groups += groups;
            if self.groups == self.plan.step {
                self.carry::<LANES>();
            }
            values = later;
        }
        self.tail.extend_from_slice(values);
    }

    #[inline(always)]
    fn carry<const LANES: usize>(&mut self) {
        self.groups = 0;
        for lane in 0..LANES {
            self.level1[lane] += self.level0[lane];
            self.level0[lane] = T::default();
        }
        self.sums += 1;
        if self.sums == self.plan.step {
            self.sums = 0;
            self.units.push(self.level1);
            self.level1 = [T::default(); WIDEST];
        }
    }
}

/// Adds the blocks of one tensor, given in order.
pub(super) fn total<T: Addend>(plan: Plan, blocks: &[BlockSum<T>]) -> T {
    let Some(last) = blocks.last() else {
        return T::default();
    };
    if plan.count < T::VECTOR {
        return few(&last.tail);
    }
    let lanes = T::VECTOR * ROWS;
    let (mut level2, mut level3) = ([T::default(); WIDEST], [T::default(); WIDEST]);
    for (index, unit) in blocks.iter().flat_map(|block| &block.units).enumerate() {
        add(&mut level2, unit);
        if (index + 1) % plan.step == 0 {
            add(&mut level3, &level2);
            level2 = [T::default(); WIDEST];
        }
    }
    let mut rows = last.level0;
    for level in [&last.level1, &level2, &level3] {
        add(&mut rows, level);
    }

    let (vectors, scalars) = last.tail.split_at(last.tail.len() / T::VECTOR * T::VECTOR);
    for vector in vectors.chunks_exact(T::VECTOR) {
        add(&mut rows[..T::VECTOR], vector);
    }
    for row in (T::VECTOR..lanes).step_by(T::VECTOR) {
        for lane in 0..T::VECTOR {
            let value = rows[row + lane];
            rows[lane] += value;
        }
    }
    let mut sum = T::default();
    for &value in scalars.iter().chain(&rows[..T::VECTOR]) {
        sum += value;
    }
    sum
}

fn add<T: Addend>(sums: &mut [T], values: &[T]) {
    for (sum, &value) in sums.iter_mut().zip(values) {
        *sum += value;
    }
}

/// `row_sum` of fewer elements than a vector holds, one at a time.
fn few<T: Addend>(values: &[T]) -> T {
    let mut rows = [T::default(); ROWS];
    let (full, rest) = values.as_chunks::<ROWS>();
    for group in full {
        add(&mut rows, group);
    }
    for &value in rest {
        rows[0] += value;
    }
    let mut sum = T::default();
    for value in rows {
        sum += value;
    }
    sum
}
