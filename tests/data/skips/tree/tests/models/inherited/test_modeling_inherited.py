import unittest
from tests.test_modeling_common import ModelTesterMixin

class QuietMixin(ModelTesterMixin):
    has_attentions = False
    @unittest.skip("from the helper mixin")
    def test_alpha(self): pass
class AModelTest(QuietMixin, unittest.TestCase):
    pass
