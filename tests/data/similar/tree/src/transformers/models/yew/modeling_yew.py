"""Yew, a model that repeats most of the grove."""

import torch
from torch import nn

from ...activations import ACT2FN
from ...modeling_utils import PreTrainedModel
from .configuration_yew import YewConfig


class YewTextNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        """
        YewTextNorm is another text for the same code.
        """
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.eps = eps  # as everywhere

    def forward(self, hidden_states):
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        return self.weight * hidden_states * torch.rsqrt(variance + self.eps)


def rotate_half(x):
    x1 = x[..., : x.shape[-1] // 2]
    x2 = x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


class YewMLP(nn.Module):
    def __init__(self, config: YewConfig):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self.act_fn = ACT2FN[config.hidden_act]

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class YewLayer(nn.Module):
    def __init__(self, config: YewConfig):
        super().__init__()
        self.mlp = YewMLP(config)
        self.input_norm = YewTextNorm(config.hidden_size, eps=config.norm_eps)
        self.output_norm = YewTextNorm(config.hidden_size, eps=config.norm_eps)

    def forward(self, hidden_states, position_embeddings=None):
        residual = hidden_states
        hidden_states = self.mlp(self.input_norm(hidden_states))
        return self.output_norm(hidden_states) + residual

    def reset(self):
        self.mlp = None


class YewPreTrainedModel(PreTrainedModel):
    config_class = YewConfig
    base_model_prefix = "yew"
    _no_split_modules = ["YewLayer"]


__all__ = ["YewPreTrainedModel"]
