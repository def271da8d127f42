import unittest
from ...test_modeling_common import ModelTesterMixin


class ByHandModelTest(ModelTesterMixin, unittest.TestCase):
    train_class = object
    test_alpha = unittest.skip("by hand")(ModelTesterMixin.test_alpha)
    test_own = ModelTesterMixin.test_beta

    def test_zeta(self):
        self.assertTrue(True)

    del test_zeta
    if True:

        @unittest.skip("in a block")
        def test_eta(self):
            pass

    test_delta_static = None


class ShortModelTest(ModelTesterMixin, unittest.TestCase):
    def test_gamma_0_eager(self):
        self.assertTrue(True)

    @unittest.skip("one case by its name")
    def test_gamma_1_lazy(self):
        pass
