//! Copies elements of a strided tensor, in row-major logical order, into one run of bytes.

use super::TensorView;

/// Reads any range of a tensor's logical elements, without copying where they already lie in a row.
#[derive(Clone, Debug)]
pub(super) struct Walk<'a> {
    bytes: &'a [u8],
    size: usize,
    offset: isize,
    /// Merged dimensions, outermost first, each as length and stride in elements; none has length 1.
    dims: Vec<(usize, isize)>,
}

impl<'a> Walk<'a> {
    /// Merges the dimensions that one stride can describe.
    pub(super) fn new(view: &TensorView<'a>) -> Self {
        let mut dims: Vec<(usize, isize)> = Vec::with_capacity(view.shape().len());
        for (&length, &stride) in view.shape().iter().zip(view.strides()) {
            if length == 1 {
                continue;
            }
            match dims.last_mut() {
                Some((outer, step)) if *step == stride.wrapping_mul(length as isize) => {
                    *outer *= length;
                    *step = stride;
                }
                _ => dims.push((length, stride)),
            }
        }
        Self {
            bytes: view.bytes(),
            // A view's constructor admits only element types of a known size.
            size: view.dtype().size().unwrap_or(1),
            offset: view.offset() as isize,
            dims,
        }
    }

    /// The bytes of `count` elements from logical index `start`, in `buffer` where they must be gathered.
    ///
    /// The range must lie inside the tensor.
    pub(super) fn read<'b>(&self, start: usize, count: usize, buffer: &'b mut Vec<u8>) -> &'b [u8]
    where
        'a: 'b,
    {
        match self.dims[..] {
            [] => return self.run(self.offset, count),
            [(_, 1)] => return self.run(self.offset + start as isize, count),
            _ => {}
        }
        buffer.clear();
        buffer.reserve(count * self.size);
        self.gather(start, count, buffer);
        buffer
    }

    /// `count` elements that lie in a row from element `at`.
    fn run(&self, at: isize, count: usize) -> &'a [u8] {
        let begin = at as usize * self.size;
        &self.bytes[begin..begin + count * self.size]
    }

    fn gather(&self, start: usize, count: usize, out: &mut Vec<u8>) {
        let (&(inner, stride), outer) = self.dims.split_last().unwrap_or((&(1, 1), &[]));
        let mut column = start % inner;
        let mut rest = start / inner;
        // How far each outer dimension has been walked, outermost first.
        let mut index = vec![0usize; outer.len()];
        let mut at = self.offset;
        for (position, &(length, step)) in index.iter_mut().zip(outer).rev() {
            *position = rest % length;
            rest /= length;
            at += *position as isize * step;
        }
        let mut left = count;
        while left > 0 {
            let take = left.min(inner - column);
            let from = at + column as isize * stride;
            match self.size {
                _ if stride == 1 => out.extend_from_slice(self.run(from, take)),
                1 => self.pick::<1>(from, stride, take, out),
                2 => self.pick::<2>(from, stride, take, out),
                4 => self.pick::<4>(from, stride, take, out),
                _ => self.pick::<8>(from, stride, take, out),
            }
            left -= take;
            column = 0;
            for (position, &(length, step)) in index.iter_mut().zip(outer).rev() {
                *position += 1;
                at += step;
                if *position < length {
                    break;
                }
                at -= length as isize * step;
                *position = 0;
            }
        }
    }

    fn pick<const SIZE: usize>(&self, from: isize, stride: isize, take: usize, out: &mut Vec<u8>) {
        let (elements, _) = self.bytes.as_chunks::<SIZE>();
        if stride == 0 {
            let element = elements[from as usize];
            out.extend((0..take).flat_map(|_| element));
        } else {
            for k in 0..take as isize {
                out.extend_from_slice(&elements[(from + k * stride) as usize]);
            }
        }
    }
}
