"""Run by test_sglang_bootstrap.py with SGLang 0.4.7 on the path: its own bootstrap server beside kvferry's, and the
four classes with the signatures of that time."""

from __future__ import annotations

import sys
import time
import types

import numpy as np
import stand_ins

stand_ins.install()

from sglang.srt.disaggregation.base.conn import BaseKVReceiver, BaseKVSender, KVArgs, KVPoll  # noqa: E402
from sglang.srt.disaggregation.utils import DisaggregationMode, KVClassType, TransferBackend, get_kv_class  # noqa: E402
from test_sglang_bootstrap import ask  # noqa: E402

import kvferry.sglang  # noqa: E402


def until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.001)


def servers_answer_alike() -> None:
    from sglang.srt.disaggregation.mooncake.conn import MooncakeKVBootstrapServer

    theirs = MooncakeKVBootstrapServer(0)
    until(lambda: getattr(theirs, "_runner", None) and theirs._runner.addresses)
    ours = classes["BOOTSTRAP_SERVER"](0)
    port = next(address[1] for address in theirs._runner.addresses if address[0] == "0.0.0.0")
    bases = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{ours.port}"

    def same(*call):
        answers = [ask(base, *call) for base in bases]
        # Later fields, which an older engine does not look at.
        if isinstance(answers[1][1], dict):
            mine = {name: answers[1][1][name] for name in answers[0][1]}
            answers[1] = answers[1][0], mine
        assert answers[0] == answers[1], (call, answers)
        return answers[1]

    for rank in range(4):
        body = {
            "role": "Prefill",
            "tp_size": 4,
            "dp_size": 2,
            "rank_ip": "10.0.0.7",
            "rank_port": 5000 + rank,
            "engine_rank": rank,
        }
        assert same("PUT", "/route", body) == (200, "OK")
    assert same("GET", "/route?engine_rank=-1&target_dp_group=-1")[1] == {"prefill_tp_size": 4, "prefill_dp_size": 2}
    for group in range(2):
        for rank in range(2):
            found = same("GET", f"/route?engine_rank={rank}&target_dp_group={group}")
            assert found == (200, {"rank_ip": "10.0.0.7", "rank_port": 5000 + 2 * group + rank})
    for target in ("/route", "/route?engine_rank=0", "/route?engine_rank=&target_dp_group=0"):
        assert same("GET", target)[0] == 400
    assert same("POST", "/route", {})[0] == 405
    assert same("GET", "/health")[1] == "OK"
    ours.close()
    theirs.close()


def args_of(memory: np.ndarray, aux: np.ndarray) -> KVArgs:
    args = KVArgs()
    args.engine_rank, args.gpu_id, args.ib_device = 0, 0, ""
    args.decode_tp_size, args.prefill_pp_size = 1, 1
    args.kv_data_ptrs = [layer.ctypes.data for layer in memory]
    args.kv_data_lens = [layer.nbytes for layer in memory]
    args.kv_item_lens = [layer[0].nbytes for layer in memory]
    args.aux_data_ptrs, args.aux_data_lens, args.aux_item_lens = [aux.ctypes.data], [aux.nbytes], [aux[0].nbytes]
    return args


def a_room_goes_through() -> None:
    server = classes["BOOTSTRAP_SERVER"](port=0)
    server_args = types.SimpleNamespace(
        tp_size=1,
        dp_size=1,
        host="127.0.0.1",
        port=30000,
        dist_init_addr=None,
        enable_dp_attention=False,
        device="cpu",
        disaggregation_bootstrap_port=server.port,
    )
    source, target = np.random.default_rng(1).integers(0, 255, (4, 16, 64), np.uint8), np.zeros((4, 16, 64), np.uint8)
    aux = [np.full((4, 32), fill, np.uint8) for fill in (9, 0)]
    prefill = classes["MANAGER"](args_of(source, aux[0]), DisaggregationMode.PREFILL, server_args, False)
    decode = classes["MANAGER"](args_of(target, aux[1]), DisaggregationMode.DECODE, server_args, False)
    address = f"127.0.0.1:{server.port}"
    sender = classes["SENDER"](mgr=prefill, bootstrap_addr=address, bootstrap_room=3, dest_tp_ranks=[0], pp_rank=0)
    receiver = classes["RECEIVER"](mgr=decode, bootstrap_addr=address, bootstrap_room=3, data_parallel_rank=None)
    assert isinstance(sender, BaseKVSender) and isinstance(receiver, BaseKVReceiver)
    assert sender.poll() == KVPoll.Bootstrapping
    until(lambda: receiver.poll() == KVPoll.WaitingForInput)
    receiver.init(np.asarray([7, 8, 9], np.int64), 2)
    until(lambda: sender.poll() == KVPoll.WaitingForInput)
    sender.init(3, 1)
    sender.send(np.asarray([1, 2], np.int32))
    sender.send(np.asarray([5], np.int32))
    until(lambda: sender.poll() == KVPoll.Success and receiver.poll() == KVPoll.Success)
    assert np.array_equal(target[:, [7, 8, 9]], source[:, [1, 2, 5]])
    assert (aux[1][2] == 9).all() and aux[1].sum() == 9 * 32
    sender.clear()
    receiver.clear()
    lost = classes["SENDER"](prefill, address, 4, [0], 0)
    lost.abort()
    try:
        lost.failure_exception()
    except Exception as error:
        assert "bootstrap_room=4" in str(error)
    for each in (prefill, decode):
        each.teardown()
    server.close()


def the_parser_knows_it() -> None:
    import argparse

    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    args = parser.parse_args(["--model-path", "x", "--disaggregation-transfer-backend", "kvferry"])
    assert args.disaggregation_transfer_backend == "kvferry"


kvferry.sglang.install()
kvferry.sglang.install()
backend = TransferBackend("kvferry")
from sglang.srt.disaggregation import utils  # noqa: E402

classes = {kind.name: utils.get_kv_class(backend, kind) for kind in KVClassType if kind.name != "KVARGS"}
assert utils.get_kv_class(TransferBackend.FAKE, KVClassType.SENDER) is get_kv_class(
    TransferBackend.FAKE, KVClassType.SENDER
)

if __name__ == "__main__":
    servers_answer_alike()
    a_room_goes_through()
    the_parser_knows_it()
    print("all is as there")
    sys.stdout.flush()
