import unittest

from parameterized import parameterized

from transformers.testing_utils import is_pipeline_test, require_torch, slow

DTYPES = [("fp%d" % bits, kernels) for bits in (16, 32) for kernels in [True, False] if bits + kernels != 33]
NAMED = parameterized.expand([(False,), (True,)], name_func=lambda f, _, p: f"{f.__name__}_{'dynamic' if p.args[0] else 'static'}")


def check_attention(self, kind):
    if not self.has_attentions:
        self.skipTest(f"{kind}: no attentions")
    if kind == "lazy":
        self.skipTest("lazy is off")


@require_torch
class ModelTesterMixin:
    all_model_classes = ()
    has_attentions = True
    test_resize = True
    is_composite = False

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        for name in dir(cls):
            if name.startswith("test_"):
                attribute = getattr(cls, name)
                if callable(attribute):
                    setattr(cls, name, attribute)

    def test_alpha(self):
        for model_class in self.all_model_classes:
            if not self.is_composite:
                self.skipTest("not composite")

    def test_beta(self):
        if getattr(self, "train_class", None) is None:
            self.skipTest("no train class")

    @parameterized.expand([("eager",), ("lazy",)])
    def test_gamma(self, kind):
        check_attention(self, kind)

    @NAMED
    def test_delta(self, dynamic):
        pass

    @parameterized.expand(DTYPES)
    def test_epsilon(self, dtype, kernels):
        self.assertTrue(dtype)

    @slow
    def test_zeta(self):
        pass

    @is_pipeline_test
    def test_eta(self):
        for choice in self.choices():
            if choice:
                break
        else:
            self.skipTest("no choice")

    def choices(self):
        return [1]
