import gc
import mmap
import weakref

import kvferry
import numpy as np
import pytest
from conftest import FORMAT, LAYERS, SETTINGS, cache

ITEM = cache()[0, 0].nbytes


def manager(role, kv, **more):
    return kvferry.KvManager(role, kv, FORMAT, settings=SETTINGS, **more)


class Interface:
    """An array as a library shows it that knows `__array_interface__` alone."""

    def __init__(self, array):
        self.array = array
        self.__array_interface__ = array.__array_interface__


class DlPack:
    """The same for DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **how):
        return self.array.__dlpack__(**how)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def flat(array):
    memory = mmap.mmap(-1, array.nbytes)
    memory[:] = array.tobytes()
    return memory


SHAPES = {
    "array": lambda array: array,
    "array interface": Interface,
    "DLPack": DlPack,
    "memoryview": memoryview,
    "address": lambda array: (array.ctypes.data, array.nbytes, ITEM),
    "region of an object": lambda array: kvferry.Region(array.reshape(-1).view(np.uint8), item_bytes=ITEM),
}


@pytest.mark.parametrize("kind", SHAPES)
def test_memory_of_every_kind_registers(make_pair, kind):
    pair = make_pair()
    target = cache()
    with manager("decode", [SHAPES[kind](layer) for layer in target]) as decode:
        receiver = decode.open_receiver(pair.bootstrap, 1)
        receiver.init([9])
        sender = pair.prefill.open_sender(1)
        sender.init(1)
        sender.send([2])
        receiver.wait(20)
    assert (target[:, 9] == pair.source[:, 2]).all()


def test_plain_buffers_register_with_their_item_size(make_pair):
    pair = make_pair()
    buffers = [flat(layer) for layer in cache()]
    with manager("decode", [kvferry.Region(each, item_bytes=ITEM) for each in buffers]) as decode:
        receiver = decode.open_receiver(pair.bootstrap, 1)
        receiver.init([9])
        sender = pair.prefill.open_sender(1)
        sender.init(1)
        sender.send([2])
        receiver.wait(20)
    for buffer, layer in zip(buffers, pair.source):
        assert bytes(buffer[9 * ITEM:10 * ITEM]) == layer[2].tobytes()


def test_shared_memory_is_an_array_like_any_other(make_pair):
    pair = make_pair()
    shared = kvferry.SharedMemory(cache().nbytes)
    assert len(shared) == cache().nbytes
    target = np.frombuffer(shared, np.float16).reshape(cache().shape)
    del shared  # the array keeps it
    with manager("decode", target) as decode:
        receiver = decode.open_receiver(pair.bootstrap, 1)
        receiver.init([9])
        sender = pair.prefill.open_sender(1)
        sender.init(1)
        sender.send([2])
        receiver.wait(20)
    assert (target[:, 9] == pair.source[:, 2]).all()


def test_the_manager_keeps_its_memory_alive_and_lets_it_go(pair):
    class Array(np.ndarray):
        pass

    array = cache().view(Array)
    gone = weakref.ref(array)
    decode = manager("decode", [array[i] for i in range(2 * LAYERS)])
    del array
    gc.collect()
    receiver = decode.open_receiver(pair.bootstrap, 1)
    del decode
    gc.collect()
    assert gone() is not None  # the room's manager lives
    del receiver
    gc.collect()
    assert gone() is None


def test_a_registered_buffer_cannot_be_resized():
    buffers = [bytearray(ITEM * 4) for _ in range(2 * LAYERS)]
    with manager("decode", [kvferry.Region(each, item_bytes=ITEM) for each in buffers]):
        with pytest.raises(BufferError):
            buffers[0].extend(b"more")
    buffers[0].extend(b"more")


def test_what_cannot_be_registered_is_refused_in_words():
    array = cache()
    with pytest.raises(ValueError, match="not contiguous"):
        manager("decode", list(array[:, ::2]))
    array.setflags(write=False)
    with pytest.raises(ValueError, match="read-only"):
        manager("decode", array)
    manager("prefill", array).close()
    with pytest.raises(TypeError, match="shows no memory"):
        manager("decode", [object()])
    with pytest.raises(TypeError, match="length and item_bytes"):
        manager("decode", [kvferry.Region(12345)])
    with pytest.raises(ValueError, match="memory of"):
        manager("decode", [kvferry.Region(bytearray(10), length=20, item_bytes=10)])
    with pytest.raises(kvferry.Error, match="invalid_argument"):
        manager("decode", [(0, ITEM, ITEM)])
    with pytest.raises(kvferry.Error) as raised:
        manager("decode", [kvferry.Region(cache()[0], kind="cuda")])
    assert raised.value.code == "unsupported"


def test_settings_speak_with_the_words_of_the_environment(monkeypatch):
    def with_settings(**settings):
        kvferry.KvManager("decode", cache(), FORMAT, settings=settings).close()

    with_settings(ping_interval=0.5, allow_public=False, transport="tcp", inline_bytes_max=0)
    with pytest.raises(kvferry.Error, match="KVFERRY_PING_MISSES=\"0\" is not allowed"):
        with_settings(ping_misses=0)
    with pytest.raises(kvferry.Error, match="KVFERRY_PINGS is no setting"):
        with_settings(pings=3)
    monkeypatch.setenv("KVFERRY_VERIFY", "md5")
    with pytest.raises(kvferry.Error, match="KVFERRY_VERIFY"):
        with_settings()
    with_settings(verify="crc32c")


def test_wrong_words_are_refused():
    with pytest.raises(kvferry.Error, match="neither 'prefill' nor 'decode'"):
        manager("both", cache())
    with pytest.raises(kvferry.Error, match="place"):
        manager("decode", cache(), place=kvferry.Place(tp=1))
