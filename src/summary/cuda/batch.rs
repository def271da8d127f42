//! What one launch of a kernel is told: the structures of `kernels/batch.cuh` and how they are filled.
//!
//! It plans on the host alone; nothing here touches a device.

use super::{
    CudaError, DevicePointer, DeviceTensor, Elements, QuantCode, Quantization, ScaleFormat,
    layout::{MAX_RANK, Walk},
};
use crate::summary::DType;

/// Threads per block, `THREADS` of the kernels.
pub(super) const THREADS: u32 = 256;
/// Bytes that a block reads at once: 256 threads, four loads of 16 bytes.
const CHUNK_BYTES: u64 = THREADS as u64 * 64;
/// Chunks in the smallest tile of a tensor that has more than one.
const CHUNKS_PER_TILE: u64 = 4;
/// Most tiles of one tensor.
const MAX_TILES: u64 = 4096;
/// Most tiles of one launch: how many parts the scratch memory holds.
pub(super) const MAX_LAUNCH_TILES: u32 = 8192;
/// Most tensors of one launch, whatever their layout.
pub(super) const MAX_LAUNCH_TENSORS: usize = DENSE_CAPACITY;

const DENSE_CAPACITY: usize = 80;
const STRIDED_CAPACITY: usize = 16;
const QUANTIZED_CAPACITY: usize = 12;

/// Bytes of a tile's statistics, the kernels' `Part`.
pub(super) const PART_BYTES: usize = 88;

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Work {
    data: DevicePointer,
    count: u64,
    tile_elements: u64,
    sequence: u64,
    first_tile: u32,
    tiles: u32,
    slot: u32,
    reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct DenseTensor {
    work: Work,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct StridedTensor {
    work: Work,
    rank: u32,
    whole_vectors: u32,
    size: [u64; MAX_RANK],
    stride: [i64; MAX_RANK],
    weight: [u64; MAX_RANK],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct QuantizedTensor {
    work: Work,
    scales: DevicePointer,
    global: DevicePointer,
    rank: u32,
    code: u32,
    code_bits: u32,
    word_bytes: u32,
    packed_dim: u32,
    scale_format: u32,
    size: [u64; MAX_RANK],
    word_stride: [i64; MAX_RANK],
    scale_stride: [i64; MAX_RANK],
    block: [u32; MAX_RANK],
}

#[repr(C)]
pub(super) struct Batch<T, const CAPACITY: usize> {
    count: u32,
    reserved: u32,
    parts: DevicePointer,
    tickets: DevicePointer,
    slots: DevicePointer,
    tensor: [T; CAPACITY],
}

/// What `gather_*` is told, `Gather` of `kernels/gather.cu`.
#[repr(C)]
pub(super) struct Gather {
    pub source: DevicePointer,
    pub target: DevicePointer,
    pub first: u64,
    pub count: u64,
    rank: u32,
    reserved: u32,
    size: [u64; MAX_RANK],
    stride: [i64; MAX_RANK],
}

const _: () = {
    assert!(size_of::<DenseTensor>() == 48 && size_of::<StridedTensor>() == 248);
    assert!(size_of::<QuantizedTensor>() == 312 && size_of::<Gather>() == 168);
    assert!(size_of::<Batch<DenseTensor, DENSE_CAPACITY>>() <= 4096);
    assert!(size_of::<Batch<StridedTensor, STRIDED_CAPACITY>>() <= 4096);
    assert!(size_of::<Batch<QuantizedTensor, QUANTIZED_CAPACITY>>() <= 4096);
};

impl Gather {
    /// A copy of all of `walk`, in logical order, to nowhere yet.
    pub fn new(source: DevicePointer, walk: &Walk, bytes: u64) -> Self {
        let mut gather = Self {
            source,
            target: 0,
            first: 0,
            count: 0,
            rank: walk.dims.len() as u32,
            reserved: 0,
            size: [0; MAX_RANK],
            stride: [0; MAX_RANK],
        };
        for (d, dim) in walk.dims.iter().enumerate() {
            gather.size[d] = dim.size;
            gather.stride[d] = dim.stride * bytes as i64;
        }
        gather
    }
}

/// One tensor made ready for a kernel: which one, and its descriptor but for what a launch adds.
pub(super) struct Planned {
    pub kernel: Kernel,
    pub count: u64,
    descriptor: Descriptor,
}

/// A kernel by the module that holds it and its name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Kernel {
    pub module: String,
    pub function: String,
}

enum Descriptor {
    Dense(DenseTensor),
    Strided(Box<StridedTensor>),
    Quantized(Box<QuantizedTensor>),
}

impl Planned {
    /// Checks a tensor and chooses its kernel.
    pub fn new(tensor: &DeviceTensor) -> Result<Self, CudaError> {
        let format = match &tensor.elements {
            Elements::Plain(DType::Bool) => DType::U8.to_string(),
            Elements::Plain(dtype) if dtype.size().is_some() => dtype.to_string(),
            Elements::Plain(dtype) => return Err(CudaError::Unsupported(dtype.to_string())),
            Elements::WideBool => DType::U32.to_string(),
            Elements::Quantized(quantization) => return Self::quantized(tensor, quantization),
        };
        let bytes = element_bytes(&tensor.elements);
        let walk = Walk::memory(&tensor.shape, &tensor.strides)?;
        let work = Work::new(tensor.data, walk.count, bytes);
        let module = format!("summary_{format}");
        let dense = walk.is_contiguous() && tensor.data.is_multiple_of(16);
        let function = format!("{module}_{}", if dense { "dense" } else { "strided" });
        let descriptor = if dense {
            Descriptor::Dense(DenseTensor { work })
        } else {
            let mut strided = StridedTensor {
                work,
                rank: walk.dims.len() as u32,
                whole_vectors: walk.has_whole_vectors(tensor.data, bytes).into(),
                ..Default::default()
            };
            for (d, dim) in walk.dims.iter().enumerate() {
                strided.size[d] = dim.size;
                strided.stride[d] = dim.stride * bytes as i64;
                strided.weight[d] = dim.weight;
            }
            // A scalar is a row of one.
            if walk.dims.is_empty() {
                strided.rank = 1;
                strided.size[0] = 1;
            }
            Descriptor::Strided(Box::new(strided))
        };
        Ok(Self {
            kernel: Kernel { module, function },
            count: walk.count,
            descriptor,
        })
    }

    fn quantized(tensor: &DeviceTensor, quantization: &Quantization) -> Result<Self, CudaError> {
        let rank = tensor.shape.len();
        if rank > MAX_RANK {
            return Err(CudaError::TooManyDimensions { rank });
        }
        let bits = quantization.code.bits();
        let word_bits = 8 * quantization.word.bytes();
        if !matches!(bits, 2 | 4 | 8) || !word_bits.is_multiple_of(bits) {
            return Err(CudaError::Quantization(
                "codes of a width other than 2, 4 or 8 bits",
            ));
        }
        if quantization.block.len() != rank || quantization.scale_strides.len() != rank {
            return Err(CudaError::Quantization("blocks of another rank"));
        }
        if quantization.block.contains(&0) {
            return Err(CudaError::Quantization("blocks of no elements"));
        }
        if quantization.packed_dim >= rank.max(1) {
            return Err(CudaError::Quantization(
                "codes packed along a dimension that it lacks",
            ));
        }
        // Checks sizes and steps; the walk itself stays in logical order, dimension by dimension.
        let count = Walk::memory(&tensor.shape, &tensor.strides)?.count;
        let mut descriptor = QuantizedTensor {
            work: Work::new(tensor.data, count, size_of::<f32>() as u64),
            scales: quantization.scales,
            global: quantization.global.unwrap_or(0),
            rank: rank as u32,
            code: match quantization.code {
                QuantCode::Int(_) => 0,
                QuantCode::E4M3 => 1,
                QuantCode::E5M2 => 2,
                QuantCode::E2M1 => 3,
            },
            code_bits: bits,
            word_bytes: quantization.word.bytes(),
            packed_dim: quantization.packed_dim as u32,
            scale_format: match quantization.scale_format {
                ScaleFormat::F32 => 0,
                ScaleFormat::F16 => 1,
                ScaleFormat::BF16 => 2,
                ScaleFormat::UE8M0 => 3,
                ScaleFormat::UE4M3 => 4,
            },
            ..Default::default()
        };
        for d in 0..rank {
            let logical = rank - 1 - d;
            descriptor.size[d] = tensor.shape[logical] as u64;
            descriptor.word_stride[d] =
                tensor.strides[logical] as i64 * i64::from(quantization.word.bytes());
            descriptor.scale_stride[d] = quantization.scale_strides[logical] as i64;
            descriptor.block[d] = quantization.block[logical];
        }
        Ok(Self {
            kernel: Kernel {
                module: "summary_quantized".to_owned(),
                function: "summary_quantized".to_owned(),
            },
            count,
            descriptor: Descriptor::Quantized(Box::new(descriptor)),
        })
    }

    fn tiles(&self) -> u32 {
        match &self.descriptor {
            Descriptor::Dense(tensor) => tensor.work.tiles,
            Descriptor::Strided(tensor) => tensor.work.tiles,
            Descriptor::Quantized(tensor) => tensor.work.tiles,
        }
    }

    fn work_mut(&mut self) -> &mut Work {
        match &mut self.descriptor {
            Descriptor::Dense(tensor) => &mut tensor.work,
            Descriptor::Strided(tensor) => &mut tensor.work,
            Descriptor::Quantized(tensor) => &mut tensor.work,
        }
    }

    fn capacity(&self) -> usize {
        match self.descriptor {
            Descriptor::Dense(_) => DENSE_CAPACITY,
            Descriptor::Strided(_) => STRIDED_CAPACITY,
            Descriptor::Quantized(_) => QUANTIZED_CAPACITY,
        }
    }
}

impl Work {
    /// Cuts a tensor into tiles; how depends on nothing but its size, so results do not either.
    fn new(data: DevicePointer, count: u64, bytes: u64) -> Self {
        let chunk = CHUNK_BYTES / bytes;
        let tiles = count.div_ceil(CHUNKS_PER_TILE * chunk).clamp(1, MAX_TILES);
        let tile_elements = count.div_ceil(tiles).next_multiple_of(chunk);
        Self {
            data,
            count,
            tile_elements,
            tiles: count.div_ceil(tile_elements.max(1)).max(1) as u32,
            ..Default::default()
        }
    }
}

/// Bytes of one stored element; of the f32 it stands for if quantised.
pub(super) fn element_bytes(elements: &Elements) -> u64 {
    match elements {
        Elements::Plain(dtype) => dtype.size().unwrap_or(1) as u64,
        Elements::WideBool | Elements::Quantized(_) => 4,
    }
}

/// How many of `planned`, from the first on, fit in one launch of the first one's kernel.
pub(super) fn launch_length(planned: &[Planned]) -> usize {
    let Some(first) = planned.first() else {
        return 0;
    };
    let (kernel, capacity) = (first.kernel.clone(), first.capacity());
    let mut tiles = 0;
    planned
        .iter()
        .take(capacity)
        .take_while(|tensor| {
            tiles += tensor.tiles();
            tensor.kernel == kernel && tiles <= MAX_LAUNCH_TILES
        })
        .count()
}

/// Where a launch keeps its intermediate and final results.
#[derive(Clone, Copy)]
pub(super) struct Destination {
    pub parts: DevicePointer,
    pub tickets: DevicePointer,
    pub slots: DevicePointer,
    /// Slot of the first tensor; the others follow.
    pub first_slot: u32,
    /// Sequence number of the first tensor; the others follow.
    pub first_sequence: u64,
}

/// A launch's one kernel argument, and its number of blocks.
pub(super) enum Argument {
    Dense(Box<Batch<DenseTensor, DENSE_CAPACITY>>),
    Strided(Box<Batch<StridedTensor, STRIDED_CAPACITY>>),
    Quantized(Box<Batch<QuantizedTensor, QUANTIZED_CAPACITY>>),
}

/// Completes a launch of tensors that [`launch_length`] found to go together.
pub(super) fn launch(planned: &mut [Planned], to: Destination) -> (Argument, u32) {
    let mut tiles = 0;
    for (i, tensor) in planned.iter_mut().enumerate() {
        let work = tensor.work_mut();
        work.first_tile = tiles;
        work.slot = to.first_slot + i as u32;
        work.sequence = to.first_sequence + i as u64;
        tiles += work.tiles;
    }
    let dense = |tensor: &Planned| match &tensor.descriptor {
        Descriptor::Dense(dense) => Some(*dense),
        _ => None,
    };
    let strided = |tensor: &Planned| match &tensor.descriptor {
        Descriptor::Strided(strided) => Some(**strided),
        _ => None,
    };
    let quantized = |tensor: &Planned| match &tensor.descriptor {
        Descriptor::Quantized(quantized) => Some(**quantized),
        _ => None,
    };
    let argument = match planned[0].descriptor {
        Descriptor::Dense(_) => Argument::Dense(batch(planned.iter().filter_map(dense), to)),
        Descriptor::Strided(_) => Argument::Strided(batch(planned.iter().filter_map(strided), to)),
        Descriptor::Quantized(_) => {
            Argument::Quantized(batch(planned.iter().filter_map(quantized), to))
        }
    };
    (argument, tiles)
}

fn batch<T: Copy + Default, const CAPACITY: usize>(
    tensors: impl Iterator<Item = T>,
    to: Destination,
) -> Box<Batch<T, CAPACITY>> {
    let mut batch = Box::new(Batch {
        count: 0,
        reserved: 0,
        parts: to.parts,
        tickets: to.tickets,
        slots: to.slots,
        tensor: [T::default(); CAPACITY],
    });
    for (place, tensor) in batch.tensor.iter_mut().zip(tensors) {
        *place = tensor;
        batch.count += 1;
    }
    batch
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(dtype: DType, shape: Vec<usize>, strides: Vec<isize>) -> Planned {
        let tensor = DeviceTensor {
            data: 4096,
            elements: Elements::Plain(dtype),
            shape,
            strides,
        };
        Planned::new(&tensor).unwrap()
    }

    #[test]
    fn tiles_cover_every_element_once_up_to_the_largest_tensors() {
        for (dtype, bytes) in [(DType::U8, 1), (DType::F32, 4), (DType::F64, 8)] {
            for count in [1, 65_536, 65_537, 1 << 28, 10_000_000_000, 1 << 40] {
                let mut planned = plan(dtype.clone(), vec![count], vec![1]);
                let work = planned.work_mut();
                let (tiles, tile) = (u64::from(work.tiles), work.tile_elements);
                assert!(tiles <= MAX_TILES && tile.is_multiple_of(CHUNK_BYTES / bytes));
                assert!((tiles - 1) * tile < count as u64 && count as u64 <= tiles * tile);
            }
        }
    }

    #[test]
    fn launches_are_bounded_by_tiles_and_by_descriptors() {
        let many = |count: usize, shape: &[usize], strides: &[isize]| -> Vec<Planned> {
            (0..count)
                .map(|_| plan(DType::F32, shape.to_vec(), strides.to_vec()))
                .collect()
        };
        assert_eq!(launch_length(&many(100, &[10], &[1])), DENSE_CAPACITY);
        assert_eq!(
            launch_length(&many(100, &[10, 3], &[4, 1])),
            STRIDED_CAPACITY
        );
        // 4096 tiles each: two fill the scratch memory.
        assert_eq!(launch_length(&many(5, &[1 << 30], &[1])), 2);
        assert_eq!(launch_length(&[]), 0);
    }

    #[test]
    fn a_launch_holds_one_kernel_s_tensors_only() {
        let mut planned = vec![
            plan(DType::F32, vec![10], vec![1]),
            plan(DType::F32, vec![10], vec![1]),
            plan(DType::F16, vec![10], vec![1]),
        ];
        assert_eq!(launch_length(&planned), 2);
        planned.remove(0);
        assert_eq!(launch_length(&planned), 1);
    }

    #[test]
    fn a_quantised_tensor_that_contradicts_itself_is_refused() {
        let good = Quantization {
            code: QuantCode::Int(4),
            word: super::super::QuantWord::U32,
            packed_dim: 1,
            block: vec![1, 32],
            scales: 4096,
            scale_format: ScaleFormat::F32,
            scale_strides: vec![2, 1],
            global: None,
        };
        let refused = |quantization: Quantization| {
            let tensor = DeviceTensor {
                data: 4096,
                elements: Elements::Quantized(Box::new(quantization)),
                shape: vec![8, 64],
                strides: vec![8, 1],
            };
            matches!(Planned::new(&tensor), Err(CudaError::Quantization(_)))
        };
        assert!(!refused(good.clone()));
        let mut bad = good.clone();
        bad.code = QuantCode::Int(3);
        assert!(refused(bad));
        let mut bad = good.clone();
        bad.block = vec![32];
        assert!(refused(bad));
        let mut bad = good.clone();
        bad.block = vec![0, 32];
        assert!(refused(bad));
        let mut bad = good;
        bad.packed_dim = 2;
        assert!(refused(bad));
    }
}
