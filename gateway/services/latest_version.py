"""Each run of a deployed project takes the latest version of its time, where its schedule names none."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.domain.errors import InvalidRequestError
from gateway.domain.schedule import Schedule
from gateway.services.slot_orders import SlotOrder, SlotOrders
from gateway.services.spider_catalog import SpiderCatalog


class LatestVersions:
    """A job names its version: all its attempts run the same one, whatever is deployed meanwhile."""

    def __init__(self, orders: SlotOrders, catalog: SpiderCatalog) -> None:
        self._orders = orders
        self._catalog = catalog

    def orders(self, schedules: Sequence[Schedule]) -> dict[str, SlotOrder]:
        return {name: self._pinned(order) for name, order in self._orders.orders(schedules).items()}

    def _pinned(self, order: SlotOrder) -> SlotOrder:
        try:
            return order._replace(spec=self._catalog.pin(order.spec))
        except InvalidRequestError as error:
            # no node has the project, or that version of it, any more
            return order._replace(skip=order.skip or error.message)
