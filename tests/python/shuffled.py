"""A plug-in of pytest that runs the tests in an order drawn from JAXMG_TEST_SEED."""

import os
import random


def pytest_collection_modifyitems(items):
    random.Random(os.environ.get("JAXMG_TEST_SEED", "0")).shuffle(items)
