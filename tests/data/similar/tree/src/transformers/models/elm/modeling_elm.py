"""Elm."""

import torch
from torch import nn

from ...activations import ACT2FN
from ...modeling_utils import PreTrainedModel
from .configuration_elm import ElmConfig


class ElmNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        """ElmNorm scales by the root of the mean square."""
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


class ElmMLP(nn.Module):
    def __init__(self, config: ElmConfig):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self.act_fn = ACT2FN[config.hidden_act]

    def forward(self, x):
        gated = self.act_fn(self.gate_proj(x)) * self.up_proj(x)
        return self.down_proj(gated)


class ElmLayer(nn.Module):
    def __init__(self, config: ElmConfig):
        super().__init__()
        self.mlp = ElmMLP(config)
        self.input_norm = ElmNorm(config.hidden_size, eps=config.norm_eps)
        self.output_norm = ElmNorm(config.hidden_size, eps=config.norm_eps)

    def forward(self, hidden_states, position_embeddings=None):
        residual = hidden_states
        hidden_states = self.mlp(self.input_norm(hidden_states))
        return self.output_norm(hidden_states + residual)

    def extra_repr(self):
        return "elm"


class ElmPreTrainedModel(PreTrainedModel):
    config_class = ElmConfig
    base_model_prefix = "elm"
    _no_split_modules = ["ElmLayer"]


__all__ = ["ElmPreTrainedModel"]
