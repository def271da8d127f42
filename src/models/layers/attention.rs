//! Attention and its masks, with the conventions of transformers' `sdpa` implementation: a mask
//! is boolean, `true` where a query may look, and absent where it would change nothing.

use burn::tensor::module::attention;
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Bool, DType, Device, FloatDType, Int, Tensor};

use super::index_dtype;

/// The mask `[batch, 1, queries, keys]` of an encoder, from which padding is left out.
///
/// `attention_mask` is `[batch, sequence]`, nonzero at real tokens. The result is `None` where
/// every token is real.
pub fn bidirectional_mask(attention_mask: Option<&Tensor<2, Int>>) -> Option<Tensor<4, Bool>> {
    let keys = padding(attention_mask?)?;
    let [batch, length] = keys.dims();
    let keys: Tensor<4, Bool> = keys.unsqueeze_dims(&[1, 1]);
    Some(keys.expand([batch, 1, length, length]))
}

/// The mask `[batch, 1, queries, keys]` of a decoder: no key after the query, and no padding.
///
/// `input_ids` is `[batch, queries]`, `seen` the number of positions in the cache, and
/// `attention_mask` `[batch, seen + queries]`. The result is `None` where plain causal attention
/// says the same, which [`scaled_dot_product_attention`] then does by itself.
///
/// # Panics
/// When the mask's length is not `seen + queries`.
pub fn causal_mask(
    input_ids: &Tensor<2, Int>,
    seen: usize,
    attention_mask: Option<&Tensor<2, Int>>,
) -> Option<Tensor<4, Bool>> {
    let [batch, queries] = input_ids.dims();
    let keys = seen + queries;
    let padding = attention_mask.and_then(padding);
    if padding.is_none() && (queries == 1 || seen == 0) {
        return None;
    }
    let shape = [batch, 1, queries, keys];
    let causal = visible(&input_ids.device(), seen, queries).expand(shape);
    Some(match padding {
        None => causal,
        Some(real) => {
            assert_eq!(
                real.dims(),
                [batch, keys],
                "the attention mask must cover every position, cached ones included"
            );
            let real: Tensor<4, Bool> = real.unsqueeze_dims(&[1, 1]);
            causal.bool_and(real.expand(shape))
        }
    })
}

/// Which keys `queries` queries after `seen` positions may look at: those up to their own,
/// `[1, 1, queries, seen + queries]`.
fn visible(device: &Device, seen: usize, queries: usize) -> Tensor<4, Bool> {
    let keys = seen + queries;
    let position = |from: usize| -> Tensor<1, Int> {
        Tensor::arange(from as i64..keys as i64, (device, index_dtype(device)))
    };
    let shape = [1, 1, queries, keys];
    let query = position(seen).reshape([1, 1, queries, 1]).expand(shape);
    let key = position(0).reshape([1, 1, 1, keys]).expand(shape);
    key.lower_equal(query)
}

/// The mask as booleans, or `None` where it masks nothing.
fn padding(attention_mask: &Tensor<2, Int>) -> Option<Tensor<2, Bool>> {
    let real = attention_mask.clone().bool();
    let all_real: bool = real.clone().all().into_scalar();
    (!all_real).then_some(real)
}

/// Repeats each key or value head for the query heads that share it:
/// `[batch, heads, sequence, head_dim]` to `[batch, heads * repeats, sequence, head_dim]`.
pub fn repeat_kv(hidden_states: Tensor<4>, repeats: usize) -> Tensor<4> {
    if repeats == 1 {
        return hidden_states;
    }
    let [batch, heads, length, head_dim] = hidden_states.dims();
    hidden_states
        .unsqueeze_dim::<5>(2)
        .expand([batch, heads, repeats, length, head_dim])
        .reshape([batch, heads * repeats, length, head_dim])
}

/// The most attention scores that are held at once to round them as PyTorch does.
const MAX_ROUNDED_SCORES: usize = 1 << 26;

/// `softmax(query key^T * scale) value` (Vaswani et al., 2017).
///
/// `query` is `[batch, heads, queries, head_dim]`, `key` and `value` the same with their own
/// length, `mask` as the functions above make it. Without a mask, `causal` attention lets a query
/// see no later position. A query that may look nowhere gets zeros, as in PyTorch.
///
/// Half types are computed in float32, the weights rounded to the half type before they meet the
/// values, which is what PyTorch's kernels do; where the scores would take more than 256 MB, the
/// device's own kernel decides where to round.
pub fn scaled_dot_product_attention(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    mask: Option<Tensor<4, Bool>>,
    causal: bool,
    scale: f64,
) -> Tensor<4> {
    let [batch, heads, queries, _] = query.dims();
    let [_, _, keys, _] = key.dims();
    let causal = causal && mask.is_none() && queries > 1;
    // Burn's mask is true where a score is dropped, and not every device broadcasts it.
    let dropped = mask.map(|mask| mask.bool_not().expand([batch, heads, queries, keys]));
    let is_half = matches!(query.dtype(), DType::F16 | DType::BF16);
    if is_half && batch * heads * queries * keys <= MAX_ROUNDED_SCORES {
        let dropped = if causal {
            let visible = visible(&query.device(), keys - queries, queries);
            Some(visible.bool_not().expand([batch, heads, queries, keys]))
        } else {
            dropped
        };
        return rounded_attention(query, key, value, dropped, scale);
    }
    let options = AttentionModuleOptions {
        scale: Some(scale),
        softcap: None,
        is_causal: causal,
    };
    attention(query, key, value, dropped, None, options)
}

/// Attention on half types with PyTorch's roundings: `exp(score - max)` is rounded, its sum is
/// not, and the division comes last.
fn rounded_attention(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    dropped: Option<Tensor<4, Bool>>,
    scale: f64,
) -> Tensor<4> {
    let narrow: FloatDType = query.dtype().into();
    let wide = |tensor: Tensor<4>| tensor.cast(FloatDType::F32);
    let scores = wide(query).matmul(wide(key).swap_dims(2, 3)) * scale;
    let scores = match dropped {
        None => scores,
        Some(dropped) => scores.mask_fill(dropped, f32::NEG_INFINITY),
    };
    // The bounds keep a query that may look nowhere at zero instead of NaN.
    let max = scores.clone().max_dim(3).clamp_min(f32::MIN);
    let weights = (scores - max).exp();
    let sum = weights.clone().sum_dim(3).clamp_min(f32::MIN_POSITIVE);
    let weights = wide(weights.cast(narrow));
    (weights.matmul(wide(value)) / sum).cast(narrow)
}
