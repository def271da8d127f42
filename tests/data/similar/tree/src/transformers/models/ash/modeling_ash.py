"""Ash, the youngest."""

import torch
from torch import nn

from ...activations import ACT2FN
from ...modeling_utils import PreTrainedModel
from .configuration_ash import AshConfig


try:
    import fast_ash
except ImportError:
    fast_ash = None


class AshNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        """AshNorm scales by the root of the mean square."""
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


class AshMLP(nn.Module):
    def __init__(self, config: AshConfig):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self.act_fn = ACT2FN[config.hidden_act]

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class AshLayer(nn.Module):
    def __init__(self, config: AshConfig):
        super().__init__()
        self.mlp = AshMLP(config)
        self.input_norm = AshNorm(config.hidden_size, eps=config.norm_eps)
        self.output_norm = AshNorm(config.hidden_size, eps=config.norm_eps)

    def forward(self, hidden_states, position_embeddings=None):
        residual = hidden_states
        hidden_states = self.mlp(self.input_norm(hidden_states))
        return self.output_norm(hidden_states + residual)

    def extra_repr(self):
        return "ash"


class AshPreTrainedModel(PreTrainedModel):
    config_class = AshConfig
    base_model_prefix = "ash"
    _no_split_modules = ["AshLayer"]


if fast_ash is not None:

    class AshFastNorm(nn.Module):
        def forward(self, hidden_states):
            return fast_ash.norm(hidden_states)


__all__ = ["AshPreTrainedModel"]
