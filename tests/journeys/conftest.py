"""Fixtures of the tests that cross apps; each is named after what it builds."""

from tests.support.product.fixtures import *  # noqa: F403
from tests.support.vllm.fixtures import *  # noqa: F403
from tests.support.vllm.fixtures import _vllm_pair, _vllm_tiered  # noqa: F401
