//! The reading of Burn's tensors: their bytes, their layout, and whether two of them are the same.
//!
//! The only file beside `fusion/handle` that looks inside Burn's tensor types.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use burn::tensor::{self, Bytes, Tensor, TensorData, kind::Basic};

#[cfg(feature = "flex")]
use burn::backend::{BackendTensor, DispatchTensorKind, flex::FlexTensor};

#[cfg(feature = "fusion")]
use super::fusion;
use super::settings::Options;
use crate::{
    format::torch_repr,
    summary::{self, DType, TensorView, torch::Statistics},
    trace::{Printed, TensorRecord, TensorValue},
};

/// A Burn tensor that was looked at.
pub(crate) enum Seen {
    /// Its elements can be read here and now.
    Host(HostTensor),
    /// It is, or will be, on a device that is asked about it and answers later.
    #[cfg(feature = "fusion")]
    Device(DeviceTensor),
}

impl Seen {
    pub(crate) fn look<const D: usize, K: Basic>(tensor: &Tensor<D, K>) -> Self {
        #[cfg(feature = "fusion")]
        if let Some(primitive) = fusion::fusion_tensor(tensor) {
            return Self::Device(DeviceTensor {
                dtype: dtype(primitive.dtype),
                shape: primitive.shape.iter().copied().collect(),
                device: fusion::device_name(primitive.client.device()),
                primitive,
            });
        }
        Self::Host(HostTensor::look(tensor))
    }
}

/// A tensor's record with its summary and its elements in row-major order, read here and now from
/// wherever it is, and whether that is a device where Burn may fuse operations.
pub(crate) fn read<const D: usize, K: Basic>(
    tensor: &Tensor<D, K>,
) -> (TensorRecord, Option<Vec<u8>>, bool) {
    #[cfg(feature = "fusion")]
    let fusion = fusion::fusion_tensor(tensor).is_some();
    #[cfg(not(feature = "fusion"))]
    let fusion = false;
    let host = HostTensor::look(tensor);
    let record = describe(&host, 0, &Options::default());
    (record, host.row_major_bytes(), fusion)
}

/// A tensor on a device.
#[cfg(feature = "fusion")]
pub(crate) struct DeviceTensor {
    pub(crate) primitive: fusion::FusionTensor,
    dtype: DType,
    shape: Vec<usize>,
    device: String,
}

#[cfg(feature = "fusion")]
impl DeviceTensor {
    /// Its record, without the numbers that the device has yet to give.
    pub(crate) fn record(&self, id: u64) -> TensorRecord {
        TensorRecord {
            shape: self.shape.clone(),
            dtype: self.dtype.clone(),
            device: Some(self.device.clone()),
            id: Some(id),
            summary: None,
            not_summarised: None,
            printed: None,
            value: None,
        }
    }
}

/// A Burn tensor whose elements can be read on the host.
pub(crate) struct HostTensor {
    /// The type to record; differs from the stored one for a quantised tensor.
    dtype: DType,
    shape: Vec<usize>,
    device: String,
    storage: Storage,
}

enum Storage {
    /// The tensor's own memory, borrowed for as long as this lives.
    #[cfg(feature = "flex")]
    Shared { tensor: FlexTensor, dtype: DType },
    /// A copy of the elements, row-major.
    Copied { data: TensorData, dtype: DType },
}

impl HostTensor {
    fn look<const D: usize, K: Basic>(tensor: &Tensor<D, K>) -> Self {
        let device = device_name(&tensor.device());
        let shape: Vec<usize> = tensor.shape().iter().copied().collect();
        let dtype = dtype(tensor.dtype());
        #[cfg(feature = "flex")]
        if let Some(flex) = flex(tensor)
            && dtype.size().is_some()
        {
            return Self {
                dtype: dtype.clone(),
                shape,
                device,
                storage: Storage::Shared {
                    tensor: flex,
                    dtype,
                },
            };
        }
        let data = match dtype {
            // The numbers of a quantised tensor are those of the values it stands for.
            DType::Quantized(_) => dequantized(tensor),
            _ => tensor.to_data(),
        };
        let data = plain(data);
        let stored = self::dtype(data.dtype());
        Self {
            dtype,
            shape,
            device,
            storage: Storage::Copied {
                data,
                dtype: stored,
            },
        }
    }

    /// The elements where they lie.
    fn view(&self) -> Result<TensorView<'_>, summary::ViewError> {
        match &self.storage {
            #[cfg(feature = "flex")]
            Storage::Shared { tensor, dtype } => {
                let layout = tensor.layout();
                TensorView::strided(
                    dtype.clone(),
                    &self.shape,
                    layout.strides(),
                    layout.start_offset(),
                    tensor.bytes(),
                )
            }
            Storage::Copied { data, dtype } => {
                TensorView::contiguous(dtype.clone(), &self.shape, data.as_bytes())
            }
        }
    }

    /// A copy of the elements in row-major order; `None` where they cannot be read.
    pub(crate) fn row_major_bytes(&self) -> Option<Vec<u8>> {
        let view = self.view().ok()?;
        Some(view.to_row_major_bytes().into_owned())
    }

    /// How many bytes its elements take.
    pub(crate) fn bytes(&self) -> usize {
        self.view()
            .map_or(0, |view| view.count() * view.dtype().size().unwrap_or(0))
    }

    fn identity(&self) -> Option<(Identity, Weak<Bytes>)> {
        match &self.storage {
            #[cfg(feature = "flex")]
            Storage::Shared { tensor, .. } => {
                let data = tensor.data_arc();
                let layout = tensor.layout();
                let identity = Identity {
                    allocation: Arc::as_ptr(&data).addr(),
                    offset: layout.start_offset(),
                    shape: self.shape.clone(),
                    strides: layout.strides().to_vec(),
                    dtype: self.dtype.clone(),
                };
                Some((identity, Arc::downgrade(&data)))
            }
            Storage::Copied { .. } => None,
        }
    }
}

/// What makes two Flex tensors the same: the same elements of the same allocation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    allocation: usize,
    offset: usize,
    shape: Vec<usize>,
    strides: Vec<isize>,
    dtype: DType,
}

/// The tensors that a session has seen, so that each is summarised once.
///
/// Each entry holds a weak reference to the tensor's `Arc`, whose address is part of its identity. As
/// long as the weak reference exists that address is not given to another `Arc`. And as long as a
/// strong one exists beside it, the elements do not change: burn-flex 0.22.1 writes through
/// `Arc::make_mut` alone, which copies the elements if there are other owners, and moves them into a
/// new `Arc`, leaving this one without owners, if there are only weak references; `Arc::get_mut`
/// refuses. So an entry whose `Arc` has an owner describes exactly the elements that were summarised.
#[derive(Default)]
pub(crate) struct TensorCache {
    entries: HashMap<Identity, (Weak<Bytes>, Arc<TensorRecord>)>,
    /// When to look for dead entries next.
    sweep_at: usize,
}

impl TensorCache {
    /// Describes a tensor, or finds that it was described before.
    ///
    /// The lock is not held while the elements are read: that runs on a thread pool whose threads may
    /// be in sessions, too.
    ///
    /// `ids` gives out the session's numbers of tensors.
    pub(crate) fn record(
        cache: &Mutex<Self>,
        seen: &HostTensor,
        ids: &AtomicU64,
        options: &Options,
    ) -> Arc<TensorRecord> {
        // A panic cannot leave the cache inconsistent: every entry is whole when it is inserted.
        let lock = || cache.lock().unwrap_or_else(PoisonError::into_inner);
        let identity = seen.identity();
        let id = {
            let cache = lock();
            if let Some((key, _)) = &identity
                && let Some((alive, record)) = cache.entries.get(key)
                && alive.strong_count() > 0
            {
                return record.clone();
            }
            ids.fetch_add(1, Ordering::Relaxed)
        };
        let record = Arc::new(describe(seen, id, options));
        if let Some((key, weak)) = identity {
            let mut cache = lock();
            // Another thread may have described the same tensor meanwhile.
            if let Some((alive, known)) = cache.entries.get(&key)
                && alive.strong_count() > 0
            {
                return known.clone();
            }
            if cache.entries.len() >= cache.sweep_at {
                cache
                    .entries
                    .retain(|_, (alive, _)| alive.strong_count() > 0);
                cache.sweep_at = (cache.entries.len() * 2).max(256);
            }
            cache.entries.insert(key, (weak, record.clone()));
        }
        record
    }
}

fn describe(seen: &HostTensor, id: u64, options: &Options) -> TensorRecord {
    let mut record = TensorRecord {
        shape: seen.shape.clone(),
        dtype: seen.dtype.clone(),
        device: Some(seen.device.clone()),
        id: Some(id),
        summary: None,
        not_summarised: None,
        printed: None,
        value: None,
    };
    match seen.view() {
        Ok(view) => {
            // The device is part of PyTorch's text of a tensor, unless it is the CPU.
            let device = (seen.device != "cpu").then_some(seen.device.as_str());
            let (summary, statistics) = summary::torch::summarise(&view);
            // Its files have statistics for these three types and no other.
            if matches!(seen.dtype, DType::F32 | DType::F16 | DType::BF16) {
                record.printed =
                    statistics.and_then(|statistics| printed(&statistics, &seen.dtype, device));
            }
            if options.dump == super::Dump::Repr {
                record.value = Some(TensorValue::Lines(torch_repr::lines(&view, device)));
            }
            record.summary = Some(summary);
        }
        Err(error) => record.not_summarised = Some(error.to_string()),
    }
    record
}

/// Completes a device's record with the numbers that it gave and the file of the elements, as far as
/// there are any.
#[cfg(feature = "fusion")]
pub(crate) fn complete(
    record: &mut TensorRecord,
    numbers: Option<&fusion::Numbers>,
    file: Option<&String>,
) {
    if record.summary.is_none()
        && let Some(numbers) = numbers
    {
        complete_numbers(record, numbers);
    }
    if record.value.is_none() {
        record.value = file.map(|file| TensorValue::File(file.clone()));
    }
}

#[cfg(feature = "fusion")]
fn complete_numbers(record: &mut TensorRecord, numbers: &fusion::Numbers) {
    let device = record.device.clone().filter(|device| device != "cpu");
    let device = device.as_deref();
    record.summary.clone_from(&numbers.summary);
    if record.summary.is_none() {
        record.not_summarised.clone_from(&numbers.refused);
    }
    if let Some(summary) = &record.summary
        && matches!(record.dtype, DType::F32 | DType::F16 | DType::BF16)
        && let Some(statistics) = Statistics::from_summary(summary, &record.dtype)
    {
        record.printed = printed(&statistics, &record.dtype, device);
    }
    if let (None, Some(edges)) = (&record.value, &numbers.edges) {
        record.value = Some(TensorValue::Lines(torch_repr::edge_lines(edges, device)));
    }
}

/// `None` for an empty tensor, of which PyTorch has no minimum.
fn printed(statistics: &Statistics, dtype: &DType, device: Option<&str>) -> Option<Printed> {
    let text = |value| torch_repr::scalar(value, dtype, device);
    Some(Printed {
        mean: text(statistics.mean),
        std: text(statistics.std),
        min: text(statistics.min?),
        max: text(statistics.max?),
    })
}

pub(crate) fn dtype(dtype: tensor::DType) -> DType {
    match dtype {
        tensor::DType::F64 => DType::F64,
        tensor::DType::F32 | tensor::DType::Flex32 => DType::F32,
        tensor::DType::F16 => DType::F16,
        tensor::DType::BF16 => DType::BF16,
        tensor::DType::I64 => DType::I64,
        tensor::DType::I32 => DType::I32,
        tensor::DType::I16 => DType::I16,
        tensor::DType::I8 => DType::I8,
        tensor::DType::U64 => DType::U64,
        tensor::DType::U32 => DType::U32,
        tensor::DType::U16 => DType::U16,
        tensor::DType::U8 => DType::U8,
        tensor::DType::Bool(_) => DType::Bool,
        tensor::DType::QFloat(scheme) => DType::Quantized(match scheme.block_size() {
            Some(size) => format!("{:?}.block{:?}", scheme.value, size.as_slice()),
            None => format!("{:?}.tensor", scheme.value),
        }),
    }
}

/// PyTorch's name for the place: `cpu`, `cuda:0`; for a device PyTorch has no name for, Burn's.
fn device_name(device: &tensor::Device) -> String {
    let text = format!("{:?}", device.as_dispatch());
    if text.contains("Flex") || text.contains("NdArray") {
        return "cpu".to_owned();
    }
    // `Autodiff(…)` and `Cube(…)` say how Burn reaches the device, not which one it is.
    let inner = text
        .trim_end_matches(')')
        .rsplit_once("Cube(")
        .map_or(text.as_str(), |(_, inner)| inner);
    inner.to_lowercase()
}

#[cfg(feature = "flex")]
fn flex<const D: usize, K: Basic>(tensor: &Tensor<D, K>) -> Option<FlexTensor> {
    fn primitive(tensor: BackendTensor<burn::backend::Flex>) -> Option<FlexTensor> {
        match tensor {
            BackendTensor::Float(tensor)
            | BackendTensor::Int(tensor)
            | BackendTensor::Bool(tensor) => Some(tensor),
            #[cfg(feature = "autodiff")]
            BackendTensor::Autodiff(tensor) => Some(tensor.into_primitive()),
            _ => None,
        }
    }
    match tensor.clone().into_dispatch().kind {
        DispatchTensorKind::Flex(tensor) => primitive(tensor),
        #[cfg(feature = "autodiff")]
        DispatchTensorKind::Autodiff(inner) => match *inner {
            DispatchTensorKind::Flex(tensor) => primitive(tensor),
            _ => None,
        },
        #[allow(unreachable_patterns)]
        _ => None,
    }
}

fn dequantized<const D: usize, K: Basic>(tensor: &Tensor<D, K>) -> TensorData {
    Tensor::<D>::from_dispatch(tensor.clone().into_dispatch())
        .dequantize()
        .into_data()
}

/// With one byte per truth value, however the device stores them.
fn plain(data: TensorData) -> TensorData {
    match data.dtype() {
        tensor::DType::Bool(store) if store != tensor::BoolStore::Native => {
            data.convert_dtype(tensor::DType::Bool(tensor::BoolStore::Native))
        }
        _ => data,
    }
}
