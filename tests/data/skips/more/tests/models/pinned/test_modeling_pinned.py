import unittest
from ...test_modeling_common import ModelTesterMixin
from ...generation.test_utils import GenerationTesterMixin


class Left(ModelTesterMixin):
    pass


class Right(ModelTesterMixin):
    @unittest.skip("hidden by the copy that Left was given")
    def test_alpha(self):
        pass


class PinnedModelTest(Left, Right, unittest.TestCase):
    pass


class LeftGeneration(GenerationTesterMixin):
    pass


class RightGeneration(GenerationTesterMixin):
    @unittest.skip("found in the usual order")
    def test_greedy(self):
        pass


class PlainModelTest(LeftGeneration, RightGeneration, unittest.TestCase):
    pass
