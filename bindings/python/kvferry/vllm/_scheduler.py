"""The half in vLLM's scheduler: which requests are handed over, and which blocks."""

from __future__ import annotations

import logging
import typing

from .._kvferry import BootstrapServer
from ._orders import Orders, Receive, address_of, room_of

logger = logging.getLogger("kvferry.vllm")

REMOTE = ("remote_bootstrap_addr", "transfer_id")


class SchedulerSide:
    """Called by the scheduler's thread alone."""

    def __init__(self, vllm_config: typing.Any) -> None:
        transfer = vllm_config.kv_transfer_config
        self.block_size: int = vllm_config.cache_config.block_size
        self._orders = Orders()
        self._receiving: set[str] = set()
        self._opened: set[str] = set()
        self._server: BootstrapServer | None = None
        address = transfer.get_from_extra_config("bootstrap", "")
        starts = transfer.get_from_extra_config("start_bootstrap", True)
        if transfer.is_kv_producer and starts and vllm_config.parallel_config.data_parallel_rank == 0:
            if not address:
                raise ValueError('prefill needs kv_connector_extra_config: {"bootstrap": "HOST:PORT"}')
            host, _, port = address.rpartition(":")
            self._server = BootstrapServer(host.strip("[]"), int(port))
            logger.info("bootstrap server at %s", self._server.address)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    def pages(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def matched_tokens(self, request: typing.Any, num_computed_tokens: int) -> tuple[int, bool]:
        """All of the prompt that is not here comes from prefill, between steps."""
        params = request.kv_transfer_params or {}
        if not params.get("do_remote_prefill") or not all(params.get(name) for name in REMOTE):
            return 0, False
        missing = request.num_prompt_tokens - num_computed_tokens
        return (missing, True) if missing > 0 else (0, False)

    def allocated(self, request: typing.Any, blocks: typing.Any, num_external_tokens: int) -> None:
        params = request.kv_transfer_params or {}
        if params.get("do_remote_decode") and params.get("transfer_id") and request.request_id not in self._opened:
            self._opened.add(request.request_id)
            self._orders.open[request.request_id] = room_of(params["transfer_id"])
        if not params.get("do_remote_prefill"):
            return
        if not all(params.get(name) for name in REMOTE):
            logger.warning(
                "request %s is to be prefilled elsewhere, but not said where: %s", request.request_id, params
            )
            return
        params["do_remote_prefill"] = False  # asked for once
        total, missing = self.pages(request.num_prompt_tokens), self.pages(num_external_tokens)
        order = Receive(
            room_of(params["transfer_id"]),
            address_of(params["remote_bootstrap_addr"]),
            list(blocks.get_block_ids()[0][total - missing : total]),
            total - missing,
        )
        if missing == 0:  # all of it is here: prefill may let go, and nobody waits for it
            self._orders.decline[request.request_id] = order
        else:
            self._receiving.add(request.request_id)
            self._orders.receive[request.request_id] = order

    def finished(self, request: typing.Any, block_ids: list[int]) -> tuple[bool, dict | None]:
        """Whether the blocks must stay until they are reported as sent."""
        params, name = request.kv_transfer_params or {}, request.request_id
        if params.get("do_remote_prefill") and all(params.get(each) for each in REMOTE):
            params["do_remote_prefill"] = False
            total = self.pages(request.num_prompt_tokens)
            self._orders.decline[name] = Receive(
                room_of(params["transfer_id"]), address_of(params["remote_bootstrap_addr"]), [], total
            )
        elif name in self._receiving:
            self._orders.abort.add(name)  # its blocks stay until that is reported
        elif name in self._opened:
            self._opened.discard(name)
            if _is_complete(request) and block_ids:
                self._orders.send[name] = list(block_ids[: self.pages(request.num_prompt_tokens)])
                return True, None
            self._orders.abort.add(name)
        return False, None

    def ended(self, connector_output: typing.Any) -> None:
        self._receiving -= set(connector_output.finished_recving or ())

    def take_orders(self) -> Orders:
        orders, self._orders = self._orders, Orders()
        return orders


def _is_complete(request: typing.Any) -> bool:
    """A prefill engine is asked for one token: a request that got it ends because of its length."""
    return getattr(request.status, "name", "") == "FINISHED_LENGTH_CAPPED"
