"""kvferry's bootstrap server beside SGLang's own, asked the same things: every status and every field."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

if importlib.util.find_spec("sglang") is None:
    pytest.skip("sglang is not installed", allow_module_level=True)
import stand_ins  # noqa: E402

stand_ins.install()

HERE = pathlib.Path(__file__).parent


def ask(base: str, method: str, target: str, body=None):
    """Status, and the answer where it is a good one: what SGLang's clients look at."""
    data = None if body is None else json.dumps(body).encode()
    call = urllib.request.Request(base + target, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(call, timeout=10) as answer:
            text = answer.read().decode()
            return answer.status, json.loads(text) if text.startswith("{") else text
    except urllib.error.HTTPError as error:
        return error.code, None


@pytest.fixture
def servers():
    from sglang.srt.disaggregation.common.conn import CommonKVBootstrapServer

    from kvferry.sglang import KvferryKVBootstrapServer

    theirs, ours = CommonKVBootstrapServer("127.0.0.1", 0), KvferryKVBootstrapServer("127.0.0.1", 0)
    deadline = time.monotonic() + 30
    while not (getattr(theirs, "_runner", None) and theirs._runner.addresses):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    yield f"http://127.0.0.1:{theirs._runner.addresses[0][1]}", f"http://127.0.0.1:{ours.port}"
    theirs.close()
    ours.close()


def registration(**fields):
    """As CommonKVManager.register_to_bootstrap sends it."""
    return {
        "attn_tp_size": 2,
        "attn_tp_rank": 0,
        "attn_cp_size": 1,
        "attn_cp_rank": 0,
        "attn_dp_size": 1,
        "attn_dp_rank": 0,
        "pp_size": 1,
        "pp_rank": 0,
        "system_dp_size": 1,
        "system_dp_rank": 0,
        "rank_ip": "10.0.0.7",
        "rank_port": 4711,
        "page_size": 64,
        "kv_cache_dtype": "bfloat16",
        "kv_layout": None,
        "dsv41_spec_layout": None,
        "load_balance_method": "follow_bootstrap_room",
        "enable_dsa_cache_layer_split": False,
        "enable_kv_cache_sharding": False,
        "prefill_http_port": 30000,
        "decode_allocation_policy": "early",
        **fields,
    }


def route(dp, cp, tp, pp):
    return f"/route?prefill_dp_rank={dp}&prefill_cp_rank={cp}&target_tp_rank={tp}&target_pp_rank={pp}"


SIZES = route(-1, -1, -1, -1)


def same(servers, method, target, body=None):
    theirs, ours = (ask(base, method, target, body) for base in servers)
    assert ours == theirs, f"{method} {target} {body}"
    return ours


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"load_balance_method": "round_robin", "prefill_http_port": 1},
        {"kv_layout": "nhd", "page_size": 1, "kv_cache_dtype": "fp8_e4m3"},
        {"enable_dsa_cache_layer_split": True, "enable_kv_cache_sharding": True},
        {"decode_allocation_policy": "prefill_complete"},
        {"dsv41_spec_layout": {"num_draft_tokens": 3, "compression_ratios": [0, 2]}},
        {"kv_cache_dtype": None, "prefill_http_port": None},
    ],
)
def test_sizes_and_what_the_engine_says_of_itself(servers, fields):
    assert same(servers, "GET", SIZES)[0] == 503
    for rank in range(2):
        assert same(servers, "GET", SIZES)[0] == 503
        assert same(servers, "PUT", "/route", registration(attn_tp_rank=rank, **fields)) == (200, "OK")
    status, answer = same(servers, "GET", SIZES)
    assert status == 200 and answer["attn_tp_size"] == 2


@pytest.mark.parametrize("dp", [{"attn_dp_size": 2}, {"system_dp_size": 2}])
def test_every_rank_is_found(servers, dp):
    name = next(iter(dp)).removesuffix("_size") + "_rank"
    places = list(itertools.product(range(2), repeat=4))
    for port, (group, cp, tp, pp) in enumerate(places, 5000):
        same(
            servers,
            "PUT",
            "/route",
            registration(
                attn_tp_rank=tp,
                attn_cp_size=2,
                attn_cp_rank=cp,
                pp_size=2,
                pp_rank=pp,
                rank_port=port,
                **dp,
                **{name: group},
            ),
        )
    for port, place in enumerate(places, 5000):
        assert same(servers, "GET", route(*place)) == (200, {"rank_ip": "10.0.0.7", "rank_port": port})
    for place in [(2, 0, 0, 0), (0, 2, 0, 0), (0, 0, 2, 0), (0, 0, 0, 2)]:
        assert same(servers, "GET", route(*place))[0] == 404
    assert same(servers, "GET", SIZES)[1]["dp_size"] == 2


def test_incomplete_questions_and_other_methods(servers):
    for target in ("/route", "/route?prefill_dp_rank=0", route(0, 0, 0, "")):
        assert same(servers, "GET", target)[0] == 400
    for method in ("POST", "PATCH"):
        assert same(servers, method, "/route", {})[0] == 405
    assert same(servers, "GET", "/health") == (200, "OK")


def test_rooms_and_their_groups(servers):
    for room, group in ((7, 1), (8, 0), ((1 << 63) - 1, 3), (7, 2)):
        assert same(servers, "POST", "/register_dp_rank", {"bootstrap_room": room, "dp_rank": group}) == (200, "OK")
    rooms = {"bootstrap_rooms": [7, 8, 9, (1 << 63) - 1]}
    assert same(servers, "POST", "/query_dp_ranks", rooms)[1] == {"7": 2, "8": 0, str((1 << 63) - 1): 3}


def test_ranks_of_kvferry_answer_as_sglangs_would(servers):
    """What a decode engine of SGLang reads of a prefill instance, from what both managers register."""
    import sglang_harness as harness
    from sglang.srt.disaggregation.common.conn import PrefillServerInfo

    theirs, ours = servers
    engine = harness.PrefillEngine(int(ours.rpartition(":")[2]), page_size=16)
    try:
        deadline = time.monotonic() + 30
        while ask(ours, "GET", SIZES)[0] != 200:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        ask(theirs, "PUT", "/route", registration(attn_tp_size=1, page_size=16))
        assert ask(ours, "GET", SIZES) == ask(theirs, "GET", SIZES)
        PrefillServerInfo(**ask(ours, "GET", SIZES)[1])
        status, answer = ask(ours, "GET", route(0, 0, 0, 0))
        assert status == 200 and f"{answer['rank_ip']}:{answer['rank_port']}" == engine.manager.manager.address
    finally:
        engine.manager.teardown()


def test_the_server_and_the_classes_of_sglang_0_4_7():
    """In a process of its own: the older package has the same module names."""
    older = os.environ.get("KVFERRY_TEST_SGLANG_047")
    if not older:
        pytest.skip("KVFERRY_TEST_SGLANG_047 does not say where SGLang 0.4.7 is")
    path = os.pathsep.join([older, *sys.path])
    done = subprocess.run(
        [sys.executable, str(HERE / "sglang_047.py")],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0 and "all is as there" in done.stdout, done.stdout + done.stderr
