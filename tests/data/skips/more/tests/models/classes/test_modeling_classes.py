import unittest
from ...test_modeling_common import ModelTesterMixin
from transformers import testing_utils


class Config:
    pass


class OneModelTest(ModelTesterMixin, unittest.TestCase):
    all_model_classes = (Config, Config) if testing_utils.is_torch_available() else ()
    train_class = Config


class NoneModelTest(ModelTesterMixin, unittest.TestCase):
    all_model_classes = (Config,)
    is_composite = True
    has_attentions = False
