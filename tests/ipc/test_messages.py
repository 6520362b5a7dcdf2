"""The wire: every message survives it, nothing else is accepted, channels block, bound and keep order."""

import threading
from typing import get_args

import msgspec
import pytest
import zmq
from msgspec.structs import replace

from ramet.ipc import control, messages
from ramet.ipc.channel import LARGE, Codec, MemoryChannel, Receiver, Sender, encode
from ramet.ipc.content import Content
from ramet.ipc.messages import (
    Abort,
    Closed,
    Finish,
    FinishKind,
    Generate,
    Opened,
    Render,
    TokenStep,
    pack_ids,
    unpack_ids,
)
from ramet.ipc.paths import SocketFolder
from ramet.ipc.spec import DetokenizeOptions
from tests.fakes.specs import make_spec

EXAMPLES = [
    Generate(
        [1, 2],
        make_spec(stop=("a",), sampling_seed=-5, namespace=("salt",), prefix_lease_s=2.5),
        Content(ids=pack_ids([5, -1, 2**31 - 1])),
        arrival_s=1.5,
    ),
    Abort([7], "gone"),
    control.FlushCache(3, timeout_s=1.0),
    control.PauseGeneration(4, retract=True),
    control.StartProfile(4, "a-b", "/tmp", 5, 10, with_gpu=False, with_stack=True),
    control.StopProfile(5),
    control.ProfileWritten(4, "OSError: no room"),
    control.ContinueGeneration(5),
    control.SetLogLevel(6, "debug"),
    control.ReadWeights(6, "folder"),
    control.HoldRequests(7, after_s=1.5),
    control.HoldRequests(8, after_s=None),
    control.PlaceWeights(9, number=2),
    control.ReleaseMemory(10, [control.MemoryTag.WEIGHTS, control.MemoryTag.KV_CACHE]),
    control.ResumeMemory(11, [control.MemoryTag.CUDA_GRAPH]),
    control.SlowDown(12, 0.5),
    control.SlowDown(13, None),
]


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda m: type(m).__name__)
def test_a_message_survives_the_wire(message: messages.Message):
    assert Codec(messages.ToScheduler).decode(encode(message)) == message


def test_steps_survive_the_wire():
    opened, closed = (
        Opened(1, DetokenizeOptions(stop=("x",)), 10, 5),
        Closed(1, Finish(FinishKind.STOP, matched="x", cut=3)),
    )
    step = TokenStep([1], pack_ids([9]), [opened], [closed], weights=2)
    assert Codec(messages.ToDetokenizer).decode(encode(step)) == step
    text = replace(step, texts=["é"], tails=["tail"])
    assert Codec(messages.ToServer).decode(encode(text)) == text


def test_an_inbox_accepts_its_own_union_only():
    with pytest.raises(msgspec.ValidationError):
        Codec(messages.ToScheduler).decode(encode(TokenStep([1], pack_ids([9]))))


def test_every_message_has_an_inbox():
    unions = [messages.ToTokenizer, messages.ToScheduler, messages.ToServer]
    known = {m for union in unions for m in get_args(union)} | {messages.ToDetokenizer, messages.ToParent}
    assert known == set(messages.Message.__subclasses__())


def test_ids_are_four_bytes_each():
    assert len(pack_ids(range(1000))) == 4000 and unpack_ids(pack_ids([3, 1, 2])) == [3, 1, 2]


def test_messages_cannot_be_changed():
    with pytest.raises(AttributeError):
        EXAMPLES[0].ids = b""  # type: ignore[misc]


@pytest.fixture
def folder():
    made = SocketFolder.create()
    yield made
    made.remove()


def test_order_holds_between_one_sender_and_one_receiver(folder: SocketFolder):
    receiver: Receiver[messages.ToScheduler] = Receiver(folder.address("a"), messages.ToScheduler)
    sender = Sender(folder.address("a"))
    for uid in range(500):
        sender.send(Abort([uid]))
    got: list[int] = []
    while len(got) < 500:
        got += [m.uids[0] for m in receiver.drain(block=True)]
    assert got == list(range(500))
    sender.close()
    receiver.close()


def test_an_empty_inbox_blocks_until_something_comes(folder: SocketFolder):
    receiver: Receiver[messages.ToScheduler] = Receiver(folder.address("b"), messages.ToScheduler)
    assert receiver.drain(block=False) == [] and receiver.recv(timeout_s=0.01) is None
    sender = Sender(folder.address("b"))
    timer = threading.Timer(0.05, lambda: sender.send(Abort([1])))
    timer.start()
    assert receiver.drain(block=True) == [Abort([1])]
    timer.join()
    sender.close()
    receiver.close()


def test_a_memory_channel_can_cross_the_wire_format():
    channel: MemoryChannel[messages.ToScheduler] = MemoryChannel(messages.ToScheduler)
    channel.send(EXAMPLES[0])
    (got,) = channel.drain()
    assert got == EXAMPLES[0] and got is not EXAMPLES[0]


def test_a_wait_for_a_message_ends_without_one_when_its_time_is_over(folder: SocketFolder):
    receiver: Receiver[messages.ToScheduler] = Receiver(folder.address("c"), messages.ToScheduler)
    assert receiver.drain(block=True, timeout_s=0.001) == []
    sender = Sender(folder.address("c"))
    sender.send(Abort([1]))
    assert receiver.drain(block=True, timeout_s=60) == [Abort([1])]
    sender.close()
    receiver.close()


def test_a_chat_is_not_copied_out_of_a_message_nor_a_large_message_out_of_its_inbox(folder: SocketFolder):
    inbox: Receiver[Render] = Receiver(folder.address("x"), Render, large=True)
    sender = Sender(folder.address("x"))
    sender.send(sent := Render(1, memoryview(b"a" * (1 << 20))))
    arrived = inbox.recv()
    assert arrived == sent and isinstance(arrived.chat.obj, zmq.Frame)
    data = encode(sent)
    assert Codec[Render](Render).decode(data).chat.obj is data
    sender.close()
    inbox.close()


@pytest.mark.parametrize(("num_bytes", "copied"), [(100, True), (LARGE, False)])
def test_a_large_message_is_sent_without_a_copy(
    num_bytes: int, copied: bool, folder: SocketFolder, monkeypatch: pytest.MonkeyPatch
):
    receiver: Receiver[Render] = Receiver(folder.address("a"), Render)
    sender, copies = Sender(folder.address("a")), list[bool]()
    send = sender._socket.send
    monkeypatch.setattr(sender._socket, "send", lambda data, copy=True: copies.append(copy) or send(data, copy=copy))
    sender.send(message := Render(1, memoryview(b"a" * num_bytes)))
    assert receiver.recv() == message and copies == [copied]
    sender.close()
    receiver.close()
