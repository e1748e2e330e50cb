"""Parts of the page: what a browser gets at first, after a change, after an absence, and at the end."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

from loopscale.live.board import Board


def read(event: str) -> tuple[str, dict[str, Any]]:
    """Name and data of one server-sent event."""
    assert event.endswith("\n\n")
    assert event.count("\n\n") == 1
    fields = dict(line.split(": ", 1) for line in event.strip().split("\n"))
    return fields.get("event", "message"), json.loads(fields["data"])


async def following(events: AsyncIterator[str]) -> tuple[str, dict[str, Any]]:
    return read(await anext(events))


def test_a_browser_gets_the_whole_state_first_and_then_only_what_has_changed():
    async def browse() -> None:
        board = Board()
        board.update({"header": {"work": 0.1}, "cells": []})
        events = board.events()
        assert await following(events) == ("state", {"header": {"work": 0.1}, "cells": []})
        assert board.update({"header": {"work": 0.2}, "cells": []})
        assert await following(events) == ("message", {"header": {"work": 0.2}})
        board.update({"curve a": None, "cells": None})
        assert await following(events) == ("message", {"cells": None})
        board.update({"last": "line\nbreak </script> \u2028"})
        board.close()
        assert await following(events) == ("end", {"last": "line\nbreak </script> \u2028"})
        assert [event async for event in events] == []

    asyncio.run(browse())


def test_an_equal_state_is_no_change():
    board = Board()
    assert board.update({"a": 1})
    assert not board.update({"a": 1, "absent": None})
    assert board.since(0) == (1, '{"a":1}')
    assert board.since(1) == (1, "{}")


def test_a_slow_browser_gets_the_newest_state_once_and_holds_up_nobody():
    async def browse() -> None:
        board = Board()
        slow, fast = board.events(), board.events()
        assert (await following(slow))[0] == (await following(fast))[0] == "state"
        for number in range(1000):
            board.update({"number": number})
        assert await following(fast) == ("message", {"number": 999})
        board.update({"other": True})
        assert await following(slow) == ("message", {"number": 999, "other": True})
        assert await following(fast) == ("message", {"other": True})

    asyncio.run(browse())


def test_a_reader_that_is_woken_after_it_has_sent_a_change_waits_for_the_next_change():
    async def browse() -> None:
        board = Board()
        events = board.events()
        await following(events)
        board.update({"number": 1})
        assert await following(events) == ("message", {"number": 1})
        board._wake()
        waiting = asyncio.ensure_future(following(events))
        for _ in range(5):
            await asyncio.sleep(0)
        board.update({"number": 2})
        assert await waiting == ("message", {"number": 2})

    asyncio.run(browse())


def test_a_browser_that_goes_away_leaves_nothing_behind():
    async def browse() -> None:
        board = Board()
        leaving, staying = board.events(), board.events()
        await following(leaving)
        await following(staying)
        await leaving.aclose()  # pyright: ignore[reportAttributeAccessIssue]: the server closes a generator
        board.update({"a": 1})
        assert await following(staying) == ("message", {"a": 1})
        assert len(board._readers) == 1
        await staying.aclose()  # pyright: ignore[reportAttributeAccessIssue]
        assert not board._readers

    asyncio.run(browse())


def test_changes_from_other_threads_reach_a_waiting_browser():
    async def browse() -> list[int]:
        board, numbers = Board(), list[int]()
        events = board.events()
        await following(events)

        def write() -> None:
            for number in range(200):
                board.update({"number": number})
            board.close()

        writer = threading.Thread(target=write)
        writer.start()
        async for event in events:
            if event.startswith(":"):  # the writer has made no progress for long
                continue
            name, data = read(event)
            numbers += [data["number"]] if "number" in data else []
            if name == "end":
                break
        writer.join()
        return numbers

    numbers = asyncio.run(browse())
    assert numbers == sorted(numbers)
    assert numbers[-1] == 199
