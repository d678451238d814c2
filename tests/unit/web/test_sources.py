from kedge.web.sources import Sources


def test_one_source_cannot_take_all_connections() -> None:
    sources = Sources(2)
    assert sources.enter("10.0.0.1")
    assert sources.enter("10.0.0.1")
    assert not sources.enter("10.0.0.1")
    assert sources.enter("10.0.0.2")
    sources.leave("10.0.0.1")
    assert sources.enter("10.0.0.1")
