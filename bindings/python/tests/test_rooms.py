import threading
import time

import kvferry
import numpy as np
import pytest
from conftest import LAYERS, SECONDS
from kvferry import Poll


def test_pages_arrive_where_they_were_granted(pair):
    sender, receiver = pair.open(7)
    assert sender.poll() == receiver.poll() == Poll.bootstrapping == 1
    pages, into = np.array([3, 4, 17], np.int32), np.array([40, 8, 9], np.int32)
    receiver.init(into)
    sender.init(3)
    sender.send(pages[:2])
    sender.send(pages[2:])
    assert receiver.wait(SECONDS) is Poll.success
    assert sender.wait(SECONDS) is Poll.success
    assert (pair.target[:, into] == pair.source[:, pages]).all()
    untouched = np.setdiff1d(np.arange(64), into)
    assert not pair.target[:, untouched].any()
    assert receiver.bytes_received() == pair.source[:, pages].nbytes
    assert receiver.layers_received() == LAYERS
    assert receiver.error() is None and sender.error() is None
    assert receiver.pages_released()


def test_aux_state_prefix_and_layers_go_along(make_pair):
    aux = np.arange(8 * 3, dtype=np.int64).reshape(8, 3), np.zeros((8, 3), np.int64)
    state = np.arange(16, dtype=np.float32).reshape(4, 4), np.zeros((4, 4), np.float32)
    pair = make_pair(aux=([aux[0]], [aux[1]]),
                     state=([kvferry.StateComponent([state[0]], name="mamba")],
                            [kvferry.StateComponent([state[1]], name="mamba")]))
    sender, receiver = pair.open(8)
    receiver.init([10, 11], aux_index=5, prefix_pages=3, state=[[2]])
    sender.init(2, aux_index=1)
    until(lambda: sender.poll() == Poll.waiting_for_input)
    assert sender.prefix_pages() == 3
    sender.send([1, 2], layers=range(0, 1))
    until(lambda: receiver.layers_received() == 1)
    sender.send([1, 2], layers=(1, 2), state=[np.array([3], np.int32)], first_page=0)
    receiver.wait(SECONDS)
    assert (pair.target[:, [10, 11]] == pair.source[:, [1, 2]]).all()
    assert (aux[1][5] == aux[0][1]).all() and not aux[1][4].any()
    assert (state[1][2] == state[0][3]).all()


def until(condition):
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.001)


def test_the_abort_of_one_side_is_the_error_of_the_other(pair):
    sender, receiver = pair.open(9)
    receiver.init([1])
    until(lambda: sender.poll() == Poll.waiting_for_input)
    sender.abort("the client went away")
    with pytest.raises(kvferry.KVTransferError) as raised:
        receiver.wait(SECONDS)
    assert raised.value.bootstrap_room == 9
    assert "the client went away" in raised.value.failure_reason
    assert raised.value.code == "peer_aborted" and raised.value.code is kvferry.Code.peer_aborted
    assert receiver.poll() == Poll.failed
    assert str(receiver.error()) == str(raised.value)
    receiver.wait_pages_released(SECONDS)
    receiver.clear()
    sender.clear()
    pair.hand_over(9, [5], [6])  # the number is free again


def test_calls_that_cannot_be_say_why(pair):
    sender, receiver = pair.open(10)
    with pytest.raises(kvferry.Error, match="room 10: already_exists") as raised:
        pair.prefill.open_sender(10)
    assert raised.value.code == "already_exists" and raised.value.room == 10
    with pytest.raises(kvferry.Error, match="send before init"):
        sender.send([1])
    with pytest.raises(kvferry.Error, match="out_of_range"):
        receiver.init([64])
    with pytest.raises(kvferry.Error, match="out_of_range"):
        receiver.init(np.array([2**40]))
    with pytest.raises(TypeError):
        receiver.init([1.5])
    with pytest.raises(kvferry.Error, match="invalid_argument"):
        pair.decode.open_sender(11)
    with pytest.raises(kvferry.Timeout) as timed_out:
        receiver.wait(0.01)
    assert isinstance(timed_out.value, TimeoutError) and timed_out.value.code == "timeout"


def test_page_lists_of_every_kind_are_the_same_pages(pair):
    many = np.arange(64, dtype=np.int32)
    lists = [[3, 4], (3, 4), np.array([3, 4], np.int32), np.array([3, 4], np.int64), many[3:5], many[3:10:6][:1],
             memoryview(np.array([3, 4], np.int32)), range(3, 5)]
    for room, pages in enumerate(lists, 100):
        pair.target[:] = 0
        pair.hand_over(room, pages, np.arange(20, 20 + len(pages)))
        assert (pair.target[:, 20:20 + len(pages)] == pair.source[:, list(pages)]).all()


def test_changed_names_each_room_once(pair):
    sender, receiver = pair.open(12)
    receiver.init([1])
    sender.init(1)
    sender.send([2])
    receiver.wait(SECONDS)
    (room, state, released), = pair.decode.changed()
    assert (room, state, released) == (12, Poll.success, True)
    assert pair.decode.changed() == []


def test_a_wait_leaves_other_threads_running(pair):
    sender, receiver = pair.open(13)
    receiver.init([1])
    outcome = []
    waiter = threading.Thread(target=lambda: outcome.append(receiver.wait(SECONDS)))
    waiter.start()
    sender.init(1)  # possible only where the waiting thread holds no lock
    sender.send([1])
    waiter.join()
    assert outcome == [Poll.success]


def test_a_closed_manager_ends_its_rooms(pair):
    sender, receiver = pair.open(14)
    pair.decode.close()
    assert receiver.poll() == Poll.failed and receiver.error().code == "closed"
    with pytest.raises(kvferry.Error, match="closed"):
        pair.decode.open_receiver(pair.bootstrap, 15)
    assert pair.decode.closed


def test_stats_count(pair):
    pair.hand_over(16, [1, 2], [3, 4])
    stats = pair.decode.stats()
    assert stats.rooms_succeeded == 1 and stats.bytes == pair.source[:, [1, 2]].nbytes
    assert len(stats.transports) == stats.sessions_live == 1
