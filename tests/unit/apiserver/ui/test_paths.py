"""Which paths belong to the dashboard."""

import pytest

from kedge.apiserver.ui.paths import is_open, is_page


@pytest.mark.parametrize("path", ["/ui", "/ui/", "/ui/main.js", "/ui/session", "/ui/a/b"])
def test_files_and_sessions_need_no_credentials(path: str) -> None:
    assert is_page(path)
    assert is_open(path)


def test_codes_need_credentials() -> None:
    assert is_page("/ui/codes")
    assert not is_open("/ui/codes")


@pytest.mark.parametrize("path", ["/", "/u", "/uix", "/ui-codes", "/api/ui", "//ui"])
def test_other_paths_are_not_the_dashboards(path: str) -> None:
    assert not is_page(path)
