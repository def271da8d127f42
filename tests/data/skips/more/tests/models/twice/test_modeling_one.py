import unittest
from ...test_modeling_common import ModelTesterMixin


class FirstModelTest(ModelTesterMixin, unittest.TestCase):
    @unittest.skip("first file")
    def test_alpha(self):
        pass

    @unittest.skip("first file")
    def test_beta(self):
        pass
