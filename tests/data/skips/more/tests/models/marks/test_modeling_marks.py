import unittest

import pytest

from ...test_modeling_common import ModelTesterMixin

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.skip(reason="the whole file")]


class MarksModelTest(ModelTesterMixin, unittest.TestCase):
    @pytest.mark.skip("the mark of the function comes first")
    def test_alpha(self):
        pass

    @unittest.skip("comes after marks")
    def test_beta(self):
        pass
