"""Close the files that a module of tests leaves open.

Programs that measure keep their files open until they end, and a test ends long before its process:
all tests together would reach the limit of open files.
"""

import gc
import os
from collections.abc import Iterator

import pytest

from kedge.testing import descriptors

FEW = 8
"""A module that leaves no more than these is not worth a garbage collection."""


@pytest.fixture(autouse=True, scope="module")
def _files_are_closed() -> Iterator[None]:
    before = descriptors.regular_files()
    yield
    if len(descriptors.regular_files() - before) > FEW:
        # Objects in cycles close their own files first, so that no number is closed twice.
        gc.collect()
        for each in descriptors.regular_files() - before:
            os.close(each)
