import torch
from torch import nn


class SamaraDownsample(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.downsamara = nn.Conv2d(config.channels, config.channels, kernel_size=2, stride=2)
        self.samara_scale = config.samara_scale

    def forward(self, sample):
        return self.downsamara(sample) * self.samara_scale


@torch.no_grad()
@torch.compile
def samara_mask(mask, size):
    return nn.functional.interpolate(mask, size=size)
