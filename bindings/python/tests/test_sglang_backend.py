"""kvferry under SGLang's own queues: PrefillBootstrapQueue, DecodePreallocQueue, DecodeTransferQueue and the prefill
scheduler's mixin, as the package from PyPI has them (sglang_harness.py says what is stood in for)."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

if importlib.util.find_spec("sglang") is None:
    pytest.skip("sglang is not installed", allow_module_level=True)
import sglang_harness as harness  # noqa: E402
from sglang_cases import both, engines, pair, until  # noqa: E402, F401
from sglang_harness import DecodeEngine, KVPoll, PrefillEngine, request  # noqa: E402

import kvferry  # noqa: E402
from kvferry.sglang import KvferryKVBootstrapServer, KvferryKVReceiver, KvferryKVSender, KVTransferError  # noqa: E402


@pytest.mark.parametrize("tokens", [1, 4, 5, 33, 64])
def test_a_request_goes_through_both_engines(engines, tokens):
    prefill, decode = pair(engines)
    _, target = both(engines, prefill, decode, 7, tokens)
    until(lambda: prefill.finished and decode.done, prefill.step, decode.step)
    assert decode.is_right(target)
    assert prefill.events == ["send 7", "free 7"]
    assert prefill.finished[0].finished_reason.__class__.__name__ == "FINISH_LENGTH"


def test_pages_are_allocated_and_init_called_after_waiting_for_input(engines, monkeypatch):
    calls = []
    for kind in (KvferryKVSender, KvferryKVReceiver):
        for name in ("poll", "init", "send_metadata", "send"):
            if (real := getattr(kind, name, None)) is None:
                continue

            def spy(self, *args, _real=real, _name=f"{kind.__name__[-6:]}.{name}", **kwargs):
                answer = _real(self, *args, **kwargs)
                calls.append((_name, answer))
                return answer

            monkeypatch.setattr(kind, name, spy)
    prefill, decode = pair(engines)
    # Decode alone: its side is linked and granted before prefill has heard of the request, and the other way round.
    for room, first, second in ((1, decode, prefill), (2, prefill, decode)):
        calls.clear()
        requests = {engine: request(room, 20, engines.port) for engine in (first, second)}
        first.add(requests[first])
        for _ in range(20):
            first.step()
        second.add(requests[second])
        until(lambda: len(prefill.finished) == room and len(decode.done) == room, prefill.step, decode.step)
        assert decode.is_right(requests[decode])
        names = [name for name, _ in calls]
        assert names.index("Sender.init") > calls.index(("Sender.poll", KVPoll.WaitingForInput))
        assert names.index("ceiver.send_metadata") > calls.index(("ceiver.poll", KVPoll.WaitingForInput))
        assert names.index("Sender.init") > names.index("ceiver.send_metadata")


def test_many_requests_at_once_share_the_caches(engines):
    prefill, decode = pair(engines, pages=128)
    rng = np.random.default_rng(1)
    for room in range(1, 151):
        both(engines, prefill, decode, room, int(rng.integers(1, 60)))
    checked = 0

    def check():
        nonlocal checked
        for target in decode.done:
            assert decode.is_right(target), target.rid
            checked += 1
            decode.release(target)
        decode.done.clear()

    until(lambda: checked == 150, prefill.step, decode.step, check, seconds=60)


def test_a_failed_request_says_why_and_its_number_works_again(engines):
    prefill, decode = pair(engines)
    source, target = both(engines, prefill, decode, 7, 10)
    decode.abort(7)
    decode_receiver = decode.queue.queue[0].kv_receiver
    until(lambda: target.finished_reason is not None, decode.step)
    assert "Aborted by AbortReq." in target.finished_reason.message
    assert decode_receiver.poll() == KVPoll.Failed
    source.disagg_kv_sender.abort()
    until(lambda: source.finished_reason is not None, prefill.step)
    assert source.disagg_kv_sender.poll() == KVPoll.Failed
    with pytest.raises(KVTransferError, match="bootstrap_room=7"):
        source.disagg_kv_sender.failure_exception()
    _, target = both(engines, prefill, decode, 7, 10)
    until(lambda: decode.done, prefill.step, decode.step)
    assert decode.is_right(target)


def test_the_first_reason_stays(engines):
    prefill, _ = pair(engines)
    sender = KvferryKVSender(prefill.manager, f"127.0.0.1:{engines.port}", 3)
    again = KvferryKVSender(prefill.manager, f"127.0.0.1:{engines.port}", 3)
    assert again.poll() == KVPoll.Failed
    with pytest.raises(KVTransferError, match="already_exists"):
        again.failure_exception()
    assert sender.poll() == KVPoll.Bootstrapping, "the second use of the number did not hurt the first"
    sender.init(2, 0)
    sender.send(np.asarray([1, 99999], np.int32))
    until(lambda: sender.poll() == KVPoll.Failed)
    sender.abort()
    with pytest.raises(KVTransferError, match="out_of_range"):
        sender.failure_exception()


def test_decode_has_a_prefix(engines):
    prefill, decode = pair(engines)
    address = f"127.0.0.1:{engines.port}"
    sender = KvferryKVSender(
        mgr=prefill.manager, bootstrap_addr=address, bootstrap_room=4, req_has_disagg_prefill_dp_rank=False
    )
    receiver = KvferryKVReceiver(mgr=decode.manager, bootstrap_addr=address, bootstrap_room=4)
    until(lambda: decode.manager.try_ensure_parallel_info(address))
    receiver.init(0)
    until(lambda: receiver.poll() == KVPoll.WaitingForInput)
    receiver.send_metadata(np.asarray([20, 21], np.int32), 1, [], decode_prefix_len=12)
    until(lambda: sender.poll() == KVPoll.WaitingForInput)
    assert sender.pop_decode_prefix_len() == 12
    assert sender.should_send_kv_chunk(0, last_chunk=True) and not sender.should_send_kv_chunk(0, last_chunk=False)
    for page in (5, 6):
        prefill.pool.pattern(page, page)
    sender.init(2, 0)
    sender.send(np.asarray([5], np.int32), None, num_kv_tokens=4)
    sender.send(np.asarray([6], np.int32), [], num_kv_tokens=4)
    until(lambda: sender.poll() == KVPoll.Success and receiver.poll() == KVPoll.Success)
    assert np.array_equal(decode.pool.buffers[:, [20, 21]], prefill.pool.buffers[:, [5, 6]])
    metric = sender.get_transfer_metric()
    assert metric.transfer_total_bytes == 2 * 4 * prefill.pool.page_bytes
    assert 0 < metric.transfer_latency_s < 30
    sender.clear()
    receiver.clear()
    assert sender.poll() == receiver.poll() == KVPoll.Success


def test_a_prefix_of_all_sends_one_empty_chunk(engines):
    prefill, decode = pair(engines)
    address = f"127.0.0.1:{engines.port}"
    sender = KvferryKVSender(prefill.manager, address, 4)
    receiver = KvferryKVReceiver(decode.manager, address, 4)
    receiver.init(0)
    receiver.send_metadata(np.asarray([], np.int32), 1, [], decode_prefix_len=12)
    until(lambda: sender.poll() == KVPoll.WaitingForInput)
    sender.init(0, 0)
    sender.send(np.asarray([], np.int32), [])
    until(lambda: sender.poll() == KVPoll.Success and receiver.poll() == KVPoll.Success)


@pytest.mark.parametrize("prefill_tp,decode_tp", [(2, 1), (1, 2), (2, 2)])
def test_tensor_parallel_sizes_may_differ(engines, prefill_tp, decode_tp):
    sides = [engines(PrefillEngine, tp=prefill_tp, tp_rank=rank) for rank in range(prefill_tp)]
    targets = [engines(DecodeEngine, tp=decode_tp, tp_rank=rank) for rank in range(decode_tp)]
    for side in sides:
        side.add(request(7, 10, engines.port))
    requests = [request(7, 10, engines.port) for _ in targets]
    for target, req in zip(targets, requests):
        target.add(req)
    until(
        lambda: all(s.finished for s in sides) and all(t.done for t in targets),
        *[each.step for each in [*sides, *targets]],
    )

    # What the pattern of a page looks like once the heads of all ranks of a side stand beside each other.
    def whole(ranks, reqs):
        pages = [r.pool.buffers[:, q.pages].reshape(4, 3, 4, r.pool.head_num, 16) for r, q in zip(ranks, reqs)]
        return np.concatenate(pages, axis=3)

    expected = []
    for side in sides:
        pool = harness.Pool(side.model, 3, 4, prefill_tp)
        for number in range(3):
            pool.pattern(number, 7 * 1009 + number)
        expected.append(pool.buffers.reshape(4, 3, 4, pool.head_num, 16))
    got, want = whole(targets, requests), np.concatenate(expected, axis=3)
    assert np.array_equal(got[:, :2], want[:, :2])
    assert np.array_equal(got[:, 2, :2], want[:, 2, :2]), "the last page holds two tokens"


def test_state_and_draft_layers_go_with_the_last_chunk(engines, monkeypatch):
    from sglang.srt.disaggregation.base.conn import StateType

    extras = {}

    def with_extras(engine_args):
        state, draft = np.zeros((3, 8, 40), np.uint8), np.zeros((2, 64, 24), np.uint8)
        engine_args.kv_data_ptrs = [*engine_args.kv_data_ptrs, *[d.ctypes.data for d in draft]]
        engine_args.kv_data_lens = [*engine_args.kv_data_lens, *[d.nbytes for d in draft]]
        engine_args.kv_item_lens = [*engine_args.kv_item_lens, 24, 24]
        engine_args.num_draft_entries = 2
        engine_args.state_types = [StateType.MAMBA, StateType.SWA]
        engine_args.state_data_ptrs = [[s.ctypes.data for s in state], []]
        engine_args.state_data_lens = [[s.nbytes for s in state], []]
        engine_args.state_item_lens = [[40] * 3, []]
        return state, draft

    real = harness.prefill.setup_state_kv_args
    for module in (harness.prefill, harness.decode):

        def setup(args, *a, _name=module.__name__, **k):
            real(args, *a, **k)
            extras[_name.rpartition(".")[2]] = with_extras(args)

        monkeypatch.setattr(module, "setup_state_kv_args", setup)
    prefill, decode = pair(engines)
    address = f"127.0.0.1:{engines.port}"
    sender = KvferryKVSender(prefill.manager, address, 4)
    receiver = KvferryKVReceiver(decode.manager, address, 4)
    receiver.init(0)
    receiver.send_metadata(np.asarray([20, 21, 22], np.int32), 1, [np.asarray([3], np.int32), None])
    until(lambda: sender.poll() == KVPoll.WaitingForInput)
    state, draft = extras["prefill"]
    state[:, 5] = 77
    draft[:, [1, 2, 9]] = 55
    sender.init(3, 0)
    sender.send(np.asarray([1, 2], np.int32))
    sender.send(np.asarray([9], np.int32), [np.asarray([5], np.int32), None])
    until(lambda: sender.poll() == KVPoll.Success and receiver.poll() == KVPoll.Success)
    state, draft = extras["decode"]
    assert (state[:, 3] == 77).all() and state.sum() == 77 * 3 * 40
    assert (draft[:, [20, 21, 22]] == 55).all() and draft.sum() == 55 * 2 * 3 * 24
    assert sender.get_transfer_metric().transfer_total_bytes == 3 * (4 * prefill.pool.page_bytes + 48) + 120


def test_data_parallel_groups_are_found_by_number_or_by_question(engines):
    for balance in ("follow_bootstrap_room", "round_robin"):
        sizes = dict(attn_dp_size=2, num_dp_ranks=2, load_balance_method=balance, dp_size=1)
        groups = [engines(PrefillEngine, attn_dp_rank=rank, **sizes) for rank in range(2)]
        decode = engines(DecodeEngine)
        address = f"127.0.0.1:{engines.port}"
        until(
            lambda: (
                decode.manager.try_ensure_parallel_info(address)
                and decode.manager.prefill_info_table[address].follow_bootstrap_room == (balance != "round_robin")
            ),
            lambda: decode.manager.prefill_info_table.clear(),
        )
        # Room 6 would be group 0's; the balancer that does not go by numbers gave it to group 1.
        room, group = (7, 1) if balance == "follow_bootstrap_room" else (6, 1)
        groups[group].add(request(room, 10, engines.port))
        target = request(room, 10, engines.port)
        decode.add(target)
        until(lambda: groups[group].finished and decode.done, groups[group].step, decode.step)
        assert decode.is_right(target)
        wrong = KvferryKVSender(groups[0].manager, address, 9)
        assert wrong.poll() == (KVPoll.Failed if balance == "follow_bootstrap_room" else KVPoll.Bootstrapping)
        for each in [*groups, decode]:
            each.manager.teardown()


def test_no_bootstrap_server_is_said_after_sglangs_own_tries(engines):
    decode = engines(DecodeEngine)
    decode.queue._ensure_retry_interval = 0.0
    target = request(7, 10, 1)
    decode.add(target)
    until(lambda: target.finished_reason is not None, decode.step)
    assert decode.finished == [target]


def test_memory_is_given_back_and_taken_again(engines):
    prefill, decode = pair(engines)
    for engine in (prefill, decode):
        engine.queue.release_memory_occupation()
        engine.queue.resume_memory_occupation()
    _, target = both(engines, prefill, decode, 7, 10)
    until(lambda: decode.done, prefill.step, decode.step)
    assert decode.is_right(target)


def test_what_is_not_supported_is_refused_in_words(engines, monkeypatch):
    with pytest.raises(NotImplementedError, match="--pp-size"):
        engines(PrefillEngine, pp_size=2)
    monkeypatch.setenv("SGLANG_DISAGG_STAGING_BUFFER", "1")
    with pytest.raises(NotImplementedError, match="SGLANG_DISAGG_STAGING_BUFFER"):
        engines(DecodeEngine)


def test_context_parallel_ranks_but_the_first_only_keep_step(engines):
    prefill = engines(PrefillEngine, attn_cp_size=2, attn_cp_rank=0)
    dummy = engines(PrefillEngine, attn_cp_size=2, attn_cp_rank=1)
    decode = engines(DecodeEngine)
    both(engines, prefill, decode, 7, 10)
    dummy.add(request(7, 10, engines.port))
    until(lambda: decode.done and prefill.finished and dummy.finished, prefill.step, dummy.step, decode.step)
    assert decode.is_right(decode.done[0])


def test_settings_come_from_sglangs_names(monkeypatch):
    monkeypatch.setenv("SGLANG_DISAGGREGATION_QUEUE_SIZE", "0")
    with pytest.raises(kvferry.Error, match="SGLANG_DISAGGREGATION_QUEUE_SIZE"):
        KvferryKVBootstrapServer("127.0.0.1", 0)
