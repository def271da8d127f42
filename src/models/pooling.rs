//! One vector for a whole text, from a model's hidden states: what sentence-transformers does
//! after the model.

use burn::tensor::{FloatDType, Int, Tensor};

use super::layers::index_dtype;

/// How the tokens' vectors become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooling {
    /// Their mean, padding left out.
    Mean,
    /// The last real token's, wherever the padding is.
    LastToken,
    /// The first real token's, wherever the padding is.
    Cls,
}

impl Pooling {
    /// The texts' vectors `[batch, hidden]`, in float32.
    ///
    /// `last_hidden_state` is `[batch, sequence, hidden]`, `attention_mask` `[batch, sequence]`
    /// with 1 at real tokens and 0 at padding. A text without a real token gets zeros from
    /// [`Mean`](Self::Mean) and its first position from the others.
    pub fn pool(
        self,
        last_hidden_state: Tensor<3>,
        attention_mask: Option<Tensor<2, Int>>,
    ) -> Tensor<2> {
        let hidden = last_hidden_state.cast(FloatDType::F32);
        let [batch, length, width] = hidden.dims();
        let device = hidden.device();
        let mask = attention_mask
            .unwrap_or_else(|| Tensor::ones([batch, length], (&device, index_dtype(&device))));
        if self == Self::Mean {
            let mask: Tensor<3> = mask.cast(FloatDType::F32).unsqueeze_dim(2);
            let sum = (hidden * mask.clone()).sum_dim(1);
            // The smallest count is sentence-transformers' own guard against a division by zero.
            let count = mask.sum_dim(1).clamp_min(1e-9);
            return (sum / count).squeeze_dim(1);
        }
        // A score that is greatest at the token wanted: real positions count up from 1 to find
        // the last, down from the length to find the first, and padding is 0.
        let positions = Tensor::<1, Int>::arange(0..length as i64, (&device, mask.dtype()));
        let score = match self {
            Self::LastToken => positions + 1,
            _ => positions.neg() + length as i64,
        };
        let index = (mask * score.unsqueeze()).argmax(1);
        let index = index.unsqueeze_dim::<3>(2).expand([batch, 1, width]);
        hidden.gather(1, index).squeeze_dim(1)
    }
}

/// Scales every row `[batch, hidden]` to Euclidean length 1; a row of zeros stays.
pub fn normalize(embeddings: Tensor<2>) -> Tensor<2> {
    let length = embeddings.clone().square().sum_dim(1).sqrt();
    // The smallest length is that of `torch.nn.functional.normalize`.
    embeddings / length.clamp_min(1e-12)
}
