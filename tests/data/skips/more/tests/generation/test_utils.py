class GenerationTesterMixin:
    def test_greedy(self):
        self.assertTrue(True)

    def test_sample(self):
        self.assertTrue(True)
