"""What `kvferry.sglang.install()` changes in SGLang, and what it leaves alone."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import sys

import pytest

if importlib.util.find_spec("sglang") is None:
    pytest.skip("sglang is not installed", allow_module_level=True)
import sglang_harness as harness  # noqa: E402

import kvferry.sglang  # noqa: E402


def test_the_backend_is_known_everywhere_after_modules_were_imported_by_name():
    from sglang.srt.arg_groups.choices import DISAGG_TRANSFER_BACKEND_CHOICES
    from sglang.srt.disaggregation import base, decode, prefill, utils
    from sglang.srt.managers import disagg_service

    kvferry.sglang.install()
    kvferry.sglang.install()
    backend = utils.TransferBackend("kvferry")
    assert backend is utils.TransferBackend.KVFERRY is utils.TransferBackend["KVFERRY"]
    assert backend in list(utils.TransferBackend) and backend.value == "kvferry"
    assert DISAGG_TRANSFER_BACKEND_CHOICES.count("kvferry") == 1
    for module in (utils, prefill, decode, disagg_service):
        kinds = {kind: module.get_kv_class(backend, kind) for kind in utils.KVClassType}
        assert kinds[utils.KVClassType.SENDER] is kvferry.sglang.KvferryKVSender
        assert issubclass(kinds[utils.KVClassType.MANAGER], base.BaseKVManager)
        assert None not in kinds.values()


def test_other_backends_are_as_before():
    utils = harness.utils
    assert utils.TransferBackend("nixl") is utils.TransferBackend.NIXL
    fake = utils.get_kv_class(utils.TransferBackend.FAKE, utils.KVClassType.SENDER)
    assert fake.__name__ == "FakeKVSender"
    with pytest.raises(ValueError):
        utils.TransferBackend("nothing")


def test_the_rust_server_does_not_stand_in_for_our_bootstrap_server():
    from sglang.srt.managers.disagg_service import rust_server_serves_kv_bootstrap

    assert rust_server_serves_kv_bootstrap("mooncake") and not rust_server_serves_kv_bootstrap("kvferry")


def test_the_classes_are_complete():
    """Everything abstract is there, and everything that SGLang's own senders and receivers offer its schedulers."""
    from sglang.srt.disaggregation.common.conn import CommonKVReceiver, CommonKVSender

    schedulers_use = {
        "abort",
        "clear",
        "failure_exception",
        "get_max_transfer_tokens",
        "get_transfer_metric",
        "init",
        "mark_prefill_complete",
        "poll",
        "pop_decode_prefix_len",
        "send",
        "should_send_kv_chunk",
        "ensure_abort_notified",
        "is_abort_release_safe",
        "query_prefill_dp_ranks",
        "send_metadata",
        "supports_host_destination",
        "require_staging",
    }
    for theirs, ours in (
        (CommonKVSender, kvferry.sglang.KvferryKVSender),
        (CommonKVReceiver, kvferry.sglang.KvferryKVReceiver),
    ):
        assert not ours.__abstractmethods__
        missing = {name for name in schedulers_use & set(dir(theirs)) if not hasattr(ours, name)}
        assert not missing


def test_sglang_finds_it_by_itself():
    entries = importlib.metadata.entry_points(group="sglang.srt.plugins", name="kvferry")
    if not entries:
        pytest.skip("kvferry runs from its sources here, not installed")
    assert next(iter(entries)).load() is kvferry.sglang.install


def test_kvferry_alone_does_not_import_sglang():
    code = "import kvferry, kvferry.sglang, sys; assert not any(m.partition('.')[0] == 'sglang' for m in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
