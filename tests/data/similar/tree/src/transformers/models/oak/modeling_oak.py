"""Oak, the oldest model of the grove."""

import torch
from torch import nn

from ...activations import ACT2FN
from ...modeling_utils import PreTrainedModel
from .configuration_oak import OakConfig


try:
    import fast_oak
except ImportError:
    fast_oak = None


class OakNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        """OakNorm scales by the root of the mean square."""
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.eps = eps

    def forward(self, hidden_states):
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        return self.weight * hidden_states * torch.rsqrt(variance + self.eps)


def rotate_half(x):
    """Rotates half the hidden dimensions of the input."""
    x1 = x[..., : x.shape[-1] // 2]
    x2 = x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


class OakMLP(nn.Module):
    def __init__(self, config: OakConfig):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self.act_fn = ACT2FN[config.hidden_act]

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class OakLayer(nn.Module):
    def __init__(self, config: OakConfig):
        super().__init__()
        self.mlp = OakMLP(config)
        self.input_norm = OakNorm(config.hidden_size, eps=config.norm_eps)
        self.output_norm = OakNorm(config.hidden_size, eps=config.norm_eps)

    def forward(self, hidden_states, position_embeddings=None):
        residual = hidden_states
        hidden_states = self.mlp(self.input_norm(hidden_states))
        return self.output_norm(hidden_states + residual)

    def extra_repr(self):
        return "oak"


class OakPreTrainedModel(PreTrainedModel):
    config_class = OakConfig
    base_model_prefix = "oak"
    _no_split_modules = ["OakLayer"]


if fast_oak is not None:

    class OakFastNorm(nn.Module):
        def forward(self, hidden_states):
            return fast_oak.norm(hidden_states)


__all__ = ["OakPreTrainedModel"]
