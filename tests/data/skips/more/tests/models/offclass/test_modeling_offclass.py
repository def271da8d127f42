import unittest

import pytest

from ...test_modeling_common import ModelTesterMixin


@unittest.skip("outer")
@unittest.skip("inner")
class OffModelTest(ModelTesterMixin, unittest.TestCase):
    @unittest.skip("the class comes first")
    def test_alpha(self):
        pass


class HeirModelTest(OffModelTest):
    pass


class AttributeModelTest(ModelTesterMixin, unittest.TestCase):
    __unittest_skip__ = True
    __unittest_skip_why__ = "by attribute"


class NotRunModelTest(ModelTesterMixin, unittest.TestCase):
    @pytest.mark.xfail(reason="never run", run=False)
    def test_alpha(self):
        self.fail()

    @pytest.mark.xfail(False, reason="no reason to fail")
    def test_beta(self):
        self.assertTrue(True)

    @unittest.expectedFailure
    def test_zeta(self):
        self.fail()


class NotCollectedModelTest(ModelTesterMixin, unittest.TestCase):
    __test__ = False
