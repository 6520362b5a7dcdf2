"""An inbox between threads: order, groups, waiting without spinning, and its end."""

import threading
import time

import pytest

from ramet.ipc.channel import InboxStopped, ThreadInbox
from ramet.ipc.message import Uid
from ramet.ipc.messages import Abort

NUM = 2000


def test_each_senders_messages_arrive_in_its_order_and_groups_stay_together() -> None:
    inbox: ThreadInbox[Abort] = ThreadInbox()

    def send(sender: int) -> None:
        for i in range(NUM):
            inbox.send_all([Abort([Uid(i)], f"{sender}"), Abort([Uid(i)], f"{sender} again")])

    threads = [threading.Thread(target=send, args=(sender,)) for sender in range(4)]
    for thread in threads:
        thread.start()
    got: list[Abort] = []
    while len(got) < 4 * 2 * NUM:
        got += inbox.drain(block=True)
    for thread in threads:
        thread.join()
    assert [second.message for second in got[1::2]] == [f"{first.message} again" for first in got[::2]]
    for sender in range(4):
        assert [m.uids[0] for m in got if m.message == f"{sender}"] == list(range(NUM))


def test_an_empty_inbox_is_read_without_waiting() -> None:
    assert ThreadInbox[Abort]().drain(block=False) == []


def test_a_reader_that_waits_uses_no_cpu_and_wakes_at_a_message() -> None:
    inbox: ThreadInbox[Abort] = ThreadInbox()
    used: list[float] = []

    def read() -> None:
        started = time.thread_time()
        inbox.drain(block=True)
        used.append(time.thread_time() - started)

    reader = threading.Thread(target=read)
    reader.start()
    busy_until = time.thread_time() + 0.2  # this thread's own work, in which the reader could spin as well
    while time.thread_time() < busy_until:
        pass
    inbox.send(Abort([]))
    reader.join()
    assert used[0] < 0.02


@pytest.mark.parametrize("block", [True, False])
def test_a_stopped_inbox_ends_its_reader_whatever_has_arrived(block: bool) -> None:
    inbox: ThreadInbox[Abort] = ThreadInbox()
    inbox.send(Abort([]))
    inbox.stop()
    with pytest.raises(InboxStopped):
        inbox.drain(block)


def test_a_waiting_reader_is_stopped() -> None:
    inbox: ThreadInbox[Abort] = ThreadInbox()
    ended = threading.Event()

    def read() -> None:
        with pytest.raises(InboxStopped):
            inbox.drain(block=True)
        ended.set()

    reader = threading.Thread(target=read)
    reader.start()
    inbox.stop()
    reader.join()
    assert ended.is_set()
