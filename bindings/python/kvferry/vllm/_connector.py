"""The class that vLLM makes, once in the scheduler's process and once in each worker's."""

from __future__ import annotations

import typing

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorRole

from ._scheduler import SchedulerSide
from ._worker import WorkerSide


class KvferryConnector(KVConnectorBase_V1):
    """Prefill (kv_producer) hands a request's blocks to decode (kv_consumer) in a room of kvferry."""

    def __init__(self, vllm_config: typing.Any, role: KVConnectorRole, kv_cache_config: typing.Any = None) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self.scheduler: SchedulerSide | None = None
        self.worker: WorkerSide | None = None
        if role == KVConnectorRole.SCHEDULER:
            self.scheduler = SchedulerSide(vllm_config)
        else:
            self.worker = WorkerSide(vllm_config, kv_cache_config)

    # In the scheduler's process.

    def get_num_new_matched_tokens(self, request: typing.Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        return self.scheduler.matched_tokens(request, num_computed_tokens)

    def update_state_after_alloc(self, request: typing.Any, blocks: typing.Any, num_external_tokens: int) -> None:
        self.scheduler.allocated(request, blocks, num_external_tokens)

    def build_connector_meta(self, scheduler_output: typing.Any) -> typing.Any:
        return self.scheduler.take_orders()

    def request_finished(self, request: typing.Any, block_ids: list[int]) -> tuple[bool, dict | None]:
        return self.scheduler.finished(request, block_ids)

    def update_connector_output(self, connector_output: typing.Any) -> None:
        self.scheduler.ended(connector_output)

    # In a worker's.

    def register_kv_caches(self, kv_caches: dict[str, typing.Any]) -> None:
        self.worker.register(kv_caches)

    def unregister_kv_caches(self) -> None:
        self.worker.close()

    def restore_kv_caches(self) -> None:
        self.worker.reopen()

    def start_load_kv(self, forward_context: typing.Any, **kwargs: typing.Any) -> None:
        self.worker.obey(self._get_connector_metadata())

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Blocks are loaded between steps: a request is scheduled once all of it is there."""

    def save_kv_layer(
        self, layer_name: str, kv_layer: typing.Any, attn_metadata: typing.Any, **kwargs: typing.Any
    ) -> None:
        """Blocks are sent when the prompt is complete."""

    def wait_for_save(self) -> None:
        """The scheduler keeps the blocks until they are reported as sent."""

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        return self.worker.ended()

    def get_block_ids_with_load_errors(self) -> set[int]:
        return self.worker.failed_blocks()

    # In both.

    def shutdown(self) -> None:
        for side in (self.scheduler, self.worker):
            if side is not None:
                side.close()
