"""The worlds of tests that cross apps."""

from tests.support.vllm.fixtures import *  # noqa: F403
from tests.support.vllm.fixtures import _vllm_pair, _vllm_tiered  # noqa: F401
