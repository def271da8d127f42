import unittest

import pytest

from transformers.testing_utils import (
    TestCasePlus,
    is_flaky,
    require_kernels,
    require_memory,
    require_version,
    slow,
    tooslow,
    torch_device,
)

from ...test_modeling_common import ModelTesterMixin


class RequiresModelTest(ModelTesterMixin, TestCasePlus):
    @require_kernels
    def test_alpha(self):
        self.assertTrue(True)

    @unittest.skipIf(torch_device == "cpu", "not on CPU")
    def test_beta(self):
        self.assertTrue(True)

    @tooslow
    def test_zeta(self):
        self.assertTrue(True)

    @is_flaky(max_attempts=2)
    def test_eta(self):
        self.assertTrue(True)

    @require_version("z2.0")
    def test_own_version(self):
        self.assertTrue(True)

    @require_memory(memory=40)
    def test_own_memory(self):
        self.assertTrue(True)

    @require_memory
    def test_own_default_memory(self):
        self.assertTrue(True)

    @pytest.mark.skipif(True, reason="always")
    def test_own_always(self):
        self.assertTrue(True)

    @unittest.skipIf(False, "never")
    def test_own_never(self):
        self.assertTrue(True)

    @unittest.skip("whatever the machine")
    @slow
    def test_own_slow(self):
        self.assertTrue(True)


@require_kernels
class KernelsModelTest(ModelTesterMixin, unittest.TestCase):
    pass
