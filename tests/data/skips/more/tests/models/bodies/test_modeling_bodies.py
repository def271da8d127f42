import unittest
from ...test_modeling_common import ModelTesterMixin


class ParentModelTest(ModelTesterMixin, unittest.TestCase):
    @unittest.skip("skipped in the parent")
    def test_alpha(self):
        pass


class ChildModelTest(ParentModelTest):
    def test_alpha(self):
        super().test_alpha()


class BodyModelTest(ModelTesterMixin, unittest.TestCase):
    def test_alpha(self):
        try:
            self.skipTest("caught")
        except unittest.SkipTest:
            pass

    def test_beta(self):
        if self.has_attentions:
            return
        self.skipTest("not reached")

    def test_zeta(self):
        with self.subTest("part"):
            pass
        raise unittest.SkipTest("at the end")

    def test_eta(self):
        while True:
            self.skipTest("in a loop")
