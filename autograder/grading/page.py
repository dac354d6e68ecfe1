"""nbconvert's HTML page, without doing again for each student what is the same for all."""

from __future__ import annotations

import re
from typing import Any

from jinja2 import BytecodeCache, Environment
from jinja2.bccache import Bucket
from nbconvert.exporters import HTMLExporter
from nbconvert.filters.widgetsdatatypefilter import WidgetsDataTypeFilter
from nbformat import NotebookNode

NO_ALT = re.compile(r"<img\b(?![^>]*\salt=)")


class QuickPage(HTMLExporter):
    """The same page: templates are compiled once, and it is not parsed again when it is done."""

    def _create_environment(self) -> Environment:
        environment = super()._create_environment()
        environment.bytecode_cache = COMPILED
        return environment

    def from_notebook_node(  # type: ignore[override]
        self, nb: NotebookNode, resources: dict[str, Any] | None = None, **kw: Any
    ) -> tuple[str, dict[str, Any]]:
        # What HTMLExporter does, but for its BeautifulSoup. That takes longer than all the rest,
        # to give images an alternative text and to mark parts that nbgrader's page hasn't got.
        resources = self._init_resources(resources)
        data_type = WidgetsDataTypeFilter(
            notebook_metadata=self._nb_metadata, parent=self, resources=resources
        )
        self.register_filter("filter_data_type", data_type)
        page, resources = super(HTMLExporter, self).from_notebook_node(nb, resources, **kw)
        return NO_ALT.sub('<img alt="An image without a description"', page), resources


class _Compiled(BytecodeCache):
    """Templates that were compiled, for as long as this process lives."""

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        if bucket.key in self._known:
            bucket.bytecode_from_string(self._known[bucket.key])

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._known[bucket.key] = bucket.bytecode_to_string()


COMPILED = _Compiled()
