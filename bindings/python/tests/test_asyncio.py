import asyncio
import threading

import kvferry
import pytest
from conftest import SECONDS
from kvferry import Poll


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, SECONDS))


def start(pair, room):
    sender, receiver = pair.open(room)
    receiver.init([room % 64])
    sender.init(1)
    return sender, receiver


def test_many_rooms_are_awaited_at_once(pair):
    async def main():
        rooms = [start(pair, room) for room in range(50)]
        for number, (sender, _) in enumerate(rooms):
            asyncio.get_running_loop().call_later(0.0001 * number, sender.send, [number])
        handles = [handle for both in rooms for handle in both]
        return await asyncio.gather(*handles)

    assert run(main()) == [Poll.success] * 100
    assert (pair.target[:, :50] == pair.source[:, :50]).all()


def test_a_failed_room_raises_where_it_is_awaited(pair):
    async def main():
        sender, receiver = pair.open(1)
        receiver.init([1])
        asyncio.get_running_loop().call_later(0.01, sender.abort, "gone")
        with pytest.raises(kvferry.KVTransferError, match="gone"):
            await receiver
        await kvferry.released(receiver)
        assert receiver.pages_released()

    run(main())


def test_a_cancelled_wait_takes_nothing_from_the_others(pair):
    async def main():
        sender, receiver = start(pair, 2)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(wrapped(receiver), 0.01)
        others = [asyncio.ensure_future(wrapped(receiver)) for _ in range(2)]
        sender.send([3])
        assert await asyncio.gather(*others) == [Poll.success] * 2
        assert await receiver is Poll.success  # concluded already

    run(main())


async def wrapped(room):
    return await room


def test_a_closed_manager_wakes_who_waits(pair):
    async def main():
        _, receiver = start(pair, 3)
        asyncio.get_running_loop().call_later(0.01, pair.decode.close)
        with pytest.raises(kvferry.KVTransferError) as raised:
            await receiver
        assert raised.value.code == "closed"

    run(main())


def test_two_loops_wait_on_one_manager(pair):
    rooms = [start(pair, room) for room in range(40)]
    waiting = threading.Barrier(3)
    outcomes = []

    async def main(mine):
        tasks = [asyncio.ensure_future(wrapped(receiver)) for _, receiver in mine]
        await asyncio.get_running_loop().run_in_executor(None, waiting.wait)
        outcomes.extend(await asyncio.gather(*tasks))

    loops = [threading.Thread(target=run, args=(main(rooms[i::2]),)) for i in range(2)]
    for loop in loops:
        loop.start()
    waiting.wait()
    for number, (sender, _) in enumerate(rooms):
        sender.send([number])
    for loop in loops:
        loop.join()
    assert outcomes == [Poll.success] * 40
