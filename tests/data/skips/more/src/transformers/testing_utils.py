import os
import unittest
from functools import wraps


def is_torch_available():
    return True


def is_kernels_available():
    return False


def parse_flag_from_env(key, default=False):
    return os.environ.get(key, default)


_run_slow_tests = parse_flag_from_env("RUN_SLOW", default=False)
_run_pipeline_tests = parse_flag_from_env("RUN_PIPELINE_TESTS", default=True)
torch_device = os.environ.get("TEST_DEVICE", "cpu")


class TestCasePlus(unittest.TestCase):
    @property
    def test_file_path(self):
        return __file__


def slow(test_case):
    return unittest.skipUnless(_run_slow_tests, "test is slow")(test_case)


def tooslow(test_case):
    return unittest.skip(reason="test is too slow")(test_case)


def require_torch(test_case):
    return unittest.skipUnless(is_torch_available(), "test requires PyTorch")(test_case)


def require_kernels(test_case):
    available = is_kernels_available()
    return unittest.skipUnless(available, "test requires kernels")(test_case)


def is_pipeline_test(test_case):
    if not _run_pipeline_tests:
        return unittest.skip(reason="test is a pipeline test")(test_case)
    return test_case


def require_version(version):
    def decorator(test_case):
        if not is_torch_available():
            return unittest.skip("test requires PyTorch")(test_case)
        return unittest.skipUnless(torch_device > version, f"test requires version >= {version}")(test_case)

    return decorator


def require_memory(test_case=None, *, memory=20):
    def inner(tc):
        if torch_device not in ("cuda", "xpu"):
            return unittest.skip(f"test requires {memory} GiB")(tc)
        return tc

    return inner if test_case is None else inner(test_case)


def is_flaky(max_attempts=5):
    def decorator(function):
        @wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs)

        return wrapper

    return decorator
