"""A mixin for tests of the standard library's unittest."""

import unittest
from collections.abc import Mapping
from typing import Any, ClassVar

from kedge.cluster.cluster import Cluster
from kedge.cluster.namespace import ClusterNamespace


class ClusterTestMixin(unittest.TestCase):
    """A cluster for the tests of a class, and a namespace for each test.

    class TestMine(kedge.ClusterTestMixin):
        cluster_settings = {"nodes": 0}

        def test_something(self):
            self.namespace.apply(...)
    """

    cluster_settings: ClassVar[Mapping[str, Any]] = {}
    cluster: ClassVar[Cluster]
    namespace: ClusterNamespace

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.cluster = cls.enterClassContext(Cluster(**cls.cluster_settings))

    def setUp(self) -> None:
        super().setUp()
        self.namespace = self.enterContext(self.cluster.new_namespace())
