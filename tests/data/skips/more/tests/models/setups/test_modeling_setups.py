import unittest
from ...test_modeling_common import ModelTesterMixin


class SetupModelTest(ModelTesterMixin, unittest.TestCase):
    def setUp(self):
        if not self.has_attentions:
            self.skipTest("set up without attentions")


class QuietSetupModelTest(SetupModelTest):
    has_attentions = False


class FilledModelTest(ModelTesterMixin, unittest.TestCase):
    train_class = None

    def setUp(self):
        self.train_class = object
        self.all_model_classes = (object,)
        self.has_attentions = 1 > 0
