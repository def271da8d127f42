import unittest
from .test_modeling_one import FirstModelTest as Again
from ...test_modeling_common import ModelTesterMixin


class SecondModelTest(ModelTesterMixin, unittest.TestCase):
    @unittest.skip("second file")
    def test_alpha(self):
        pass
