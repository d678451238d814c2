"""Two connections that are made to speak with each other."""

import asyncio

from kedge.testing.streams import pair
from kedge.web import tunnel


async def test_bytes_go_both_ways_and_each_end_is_passed_on() -> None:
    left, near = pair()
    right, far = pair()
    joined = asyncio.ensure_future(tunnel.join(near, far))
    left.write(b"question")
    assert await right.read() == b"question"
    left.write_eof()
    assert await right.read() == b""
    right.write(b"answer after the end of the question")
    assert await left.read() == b"answer after the end of the question"
    right.close()
    assert await left.read() == b""
    await joined
    assert near.closed
    assert far.closed


async def test_when_one_peer_vanishes_the_other_is_hung_up_on() -> None:
    left, near = pair()
    right, far = pair()
    joined = asyncio.ensure_future(tunnel.join(near, far))
    left.close()
    assert await right.read() == b""
    right.write(b"into the void")
    right.close()
    await joined
