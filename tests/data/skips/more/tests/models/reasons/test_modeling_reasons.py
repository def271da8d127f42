import unittest

import pytest

from ...test_modeling_common import ModelTesterMixin
from ..shared_reasons import COUNT, WHY

NAMES = ["a", "b"]


class ReasonsModelTest(ModelTesterMixin, unittest.TestCase):
    @unittest.skip(WHY)
    def test_alpha(self):
        pass

    @unittest.skip("%s: %d of %s" % ("why", COUNT, "/".join(NAMES)))
    def test_beta(self):
        pass

    @pytest.mark.skip(reason="{} {}".format(WHY, COUNT + 1))
    def test_zeta(self):
        pass

    @unittest.skip(
        reason="one "
        f"two {COUNT!r} "
        'three "quoted"'
    )
    def test_eta(self):
        pass
