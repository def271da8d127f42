from ..oak.modeling_oak import OakLayer, OakMLP, OakNorm, OakPreTrainedModel, rotate_half


class ElmNorm(OakNorm):
    pass


class ElmMLP(OakMLP):
    def forward(self, x):
        gated = self.act_fn(self.gate_proj(x)) * self.up_proj(x)
        return self.down_proj(gated)


class ElmLayer(OakLayer):
    pass


class ElmPreTrainedModel(OakPreTrainedModel):
    pass
