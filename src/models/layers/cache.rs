//! The keys and values of the positions a decoder has already seen.

use std::fmt;

use burn::tensor::Tensor;

/// What one layer has seen, each `[batch, key_value_heads, positions, head_dim]`.
#[derive(Clone)]
pub struct CachedLayer {
    /// The keys, rotary embedding applied.
    pub key: Tensor<4>,
    /// The values.
    pub value: Tensor<4>,
}

/// The keys and values of every layer, growing with each call of the model.
///
/// It goes into a decoder's `forward` and comes out of it; each layer adds to it in between. Its
/// `Debug` text is transformers' `repr` of the class of the same name, without tensors.
#[derive(Clone)]
pub struct DynamicCache {
    layers: Vec<Option<CachedLayer>>,
}

impl DynamicCache {
    /// An empty cache for a decoder of `layers` layers.
    pub fn new(layers: usize) -> Self {
        Self {
            layers: vec![None; layers],
        }
    }

    /// The number of positions seen so far.
    pub fn seen(&self) -> usize {
        self.layers
            .first()
            .and_then(Option::as_ref)
            .map_or(0, |layer| layer.key.dims()[2])
    }

    /// What the layers have seen, in order; a layer that has not run yet is left out.
    pub fn layers(&self) -> impl Iterator<Item = &CachedLayer> {
        self.layers.iter().flatten()
    }

    /// Appends new positions to layer `index` and returns everything it has seen.
    ///
    /// # Panics
    /// When the cache was made for fewer layers, or for another batch.
    pub fn update(
        &mut self,
        index: usize,
        key: Tensor<4>,
        value: Tensor<4>,
    ) -> (Tensor<4>, Tensor<4>) {
        let layer = &mut self.layers[index];
        let (key, value) = match layer.take() {
            None => (key, value),
            Some(seen) => (
                Tensor::cat(vec![seen.key, key], 2),
                Tensor::cat(vec![seen.value, value], 2),
            ),
        };
        *layer = Some(CachedLayer {
            key: key.clone(),
            value: value.clone(),
        });
        (key, value)
    }
}

impl fmt::Debug for DynamicCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DynamicCache(layers=[")?;
        for index in 0..self.layers.len() {
            f.write_str(if index == 0 { "" } else { ", " })?;
            f.write_str("DynamicLayer")?;
        }
        f.write_str("])")
    }
}
