"""Layers unpacked: what they hold, what they hide, and what they must not be able to do."""

import contextlib
import errno
import io
import os
import stat
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.node.images import layers, unpack
from kedge.node.images.oci import InvalidImage
from kedge.node.images.streams import ForwardReader
from kedge.node.images.unpack import ImageLimits
from kedge.testing.images import Files, LayerMember, directory, hard_link, layer, program, symlink

ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not ROOT, reason="only root may own files of others")


def unpacked(
    path: Path, files: Files | bytes, below: Sequence[Path] = (), limits: ImageLimits | None = None
) -> Path:
    path.mkdir(parents=True)
    tar = files if isinstance(files, bytes) else layer(files)
    unpack.unpack(ForwardReader(io.BytesIO(tar), 1 << 30), path, below, limits or ImageLimits())
    return path


def seen(stack: Sequence[Path], path: str) -> bytes | None:
    found = layers.resolve([str(each) for each in stack], path)
    return Path(found.path).read_bytes() if found else None


def test_files_have_their_content_mode_and_time(tmp_path: Path) -> None:
    files: Files = {
        "bin/": directory(0o755),
        "bin/run": program(b"#!"),
        "tmp/": directory(0o1777),
        "etc/a": b"1",
        "lib": symlink("usr/lib"),
        "etc/b": hard_link("etc/a"),
        "pipe": LayerMember(type=tarfile.FIFOTYPE),
    }
    root = unpacked(tmp_path / "a", files)
    assert (root / "bin/run").stat().st_mode & 0o7777 == 0o755
    assert (root / "tmp").stat().st_mode & 0o7777 == 0o1777
    assert (root / "tmp").stat().st_mtime == 1_700_000_000
    assert (root / "etc").stat().st_mode & 0o7777 == 0o755
    assert (root / "etc/a").stat().st_ino == (root / "etc/b").stat().st_ino
    assert os.readlink(root / "lib") == "usr/lib"
    assert stat.S_ISFIFO((root / "pipe").stat().st_mode)


@needs_root
def test_owners_and_capabilities_are_kept_by_root(tmp_path: Path) -> None:
    capability = b"\x01\x00\x00\x02\x00\x20\x00\x00" + bytes(12)
    pax = {
        "SCHILY.xattr.security.capability": capability.decode(errors="surrogateescape"),
        "SCHILY.xattr.trusted.overlay.redirect": "/etc",
        "SCHILY.xattr.user.overlay.opaque": "y",
    }
    files: Files = {
        "a": LayerMember(b"x", mode=0o4755, uid=7, gid=8, pax=pax),
        "d/": directory(pax=pax),
    }
    root = unpacked(tmp_path / "a", files)
    status = (root / "a").stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o7777) == (7, 8, 0o4755)
    assert os.getxattr(root / "a", "security.capability") == capability
    assert not layers.is_opaque(str(root / "d"))
    assert os.listxattr(root / "d") == ["security.capability"] or not os.listxattr(root / "d")


def test_whiteouts_hide_what_is_below_and_nothing_of_their_own_layer(tmp_path: Path) -> None:
    low = unpacked(tmp_path / "low", {"a/x": b"1", "b": b"2", "c/y": b"3", "e/z": b"4"})
    files: Files = {".wh.b": b"", "a/.wh..wh..opq": b"", "a/n": b"new", "c/new": b"5", ".wh.c": b""}
    top = unpacked(tmp_path / "top", files, [low])
    stack = [top, low]
    assert seen(stack, "b") is None
    assert seen(stack, "a/x") is None
    assert seen(stack, "a/n") == b"new"
    assert seen(stack, "c/y") is None
    assert seen(stack, "c/new") == b"5"
    assert seen(stack, "e/z") == b"4"
    assert sorted(layers.children([str(each) for each in stack], ())) == ["a", "c", "e"]


def test_what_is_made_again_after_its_whiteout_does_not_show_the_old(tmp_path: Path) -> None:
    low = unpacked(tmp_path / "low", {"a/x": b"1", "b/x": b"1", "c": b"1"})
    files: Files = {
        ".wh.a": b"",
        "a/": directory(),
        ".wh.b": b"",
        "b/n": b"2",
        ".wh.c": b"",
        "c": b"3",
    }
    stack = [unpacked(tmp_path / "top", files, [low]), low]
    assert seen(stack, "a/x") is None
    assert (seen(stack, "b/x"), seen(stack, "b/n"), seen(stack, "c")) == (None, b"2", b"3")


def test_an_opaque_root_hides_everything_below(tmp_path: Path) -> None:
    low = unpacked(tmp_path / "low", {"a/x": b"1", "b": b"2"})
    top = unpacked(tmp_path / "top", {"a/n": b"3", ".wh..wh..opq": b""}, [low])
    assert seen([top, low], "a/x") is None
    assert seen([top, low], "b") is None
    assert seen([top, low], "a/n") == b"3"


def test_paths_go_through_links_of_lower_layers(tmp_path: Path) -> None:
    low = unpacked(tmp_path / "low", {"bin": symlink("usr/bin"), "usr/bin/sh": b"1"})
    top = unpacked(tmp_path / "top", {"bin/new": b"2"}, [low])
    assert (top / "usr/bin/new").read_bytes() == b"2"
    assert seen([top, low], "bin/sh") == b"1"


def test_directories_that_a_layer_does_not_describe_keep_their_looks(tmp_path: Path) -> None:
    low = unpacked(tmp_path / "low", {"tmp/": directory(0o1777), "./": directory(0o711)})
    top = unpacked(tmp_path / "top", {"tmp/x": b""}, [low])
    assert (top / "tmp").stat().st_mode & 0o7777 == 0o1777
    assert top.stat().st_mode & 0o7777 == 0o711


def test_hard_links_to_files_of_lower_layers_become_copies(tmp_path: Path) -> None:
    low = unpacked(tmp_path / "low", {"a": LayerMember(b"1", mode=0o640)})
    top = unpacked(tmp_path / "top", {"b": hard_link("a")}, [low])
    assert (top / "b").read_bytes() == b"1"
    assert (top / "b").stat().st_mode & 0o777 == 0o640
    assert (top / "b").stat().st_ino != (low / "a").stat().st_ino


def test_later_members_replace_earlier_ones(tmp_path: Path) -> None:
    members: list[tuple[str, bytes | LayerMember]] = [
        ("a/x", b"1"),
        ("a", b"a file now"),
        ("b", symlink("nowhere")),
        ("b/", directory()),
        ("b/y", b"2"),
    ]
    root = unpacked(tmp_path / "a", layer(members))
    assert (root / "a").read_bytes() == b"a file now"
    assert (root / "b/y").read_bytes() == b"2"


OUTSIDE = [
    {"l": symlink("")},
    pytest.param({"../x": b""}, id="above the root"),
    pytest.param({"a/../../x": b""}, id="above the root, later"),
    pytest.param({"l": hard_link("../x")}, id="hard link above the root"),
    pytest.param({"a/.wh...": b""}, id="whiteout of the directory above"),
    pytest.param({"l": hard_link("nothing")}, id="hard link to nothing"),
    pytest.param({"a": b"", "a/b": b""}, id="file under a file"),
    pytest.param({"a": symlink("b"), "b": symlink("a"), "a/x": b""}, id="links in a circle"),
    pytest.param({"/".join("d" * 300): b""}, id="too deep"),
    pytest.param({"x" * 300: b""}, id="name too long"),
]


@pytest.mark.parametrize("files", OUTSIDE)
def test_what_leads_out_or_nowhere_is_refused(tmp_path: Path, files: Files) -> None:
    (tmp_path / "x").write_text("outside")
    with pytest.raises(InvalidImage):
        unpacked(tmp_path / "root", files)
    assert (tmp_path / "x").read_text() == "outside"


@pytest.mark.parametrize("target", ["/", "../../../../..", "{outside}", "..", "/proc/self/cwd"])
def test_links_are_followed_inside_only(tmp_path: Path, target: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    files: Files = {
        "l": symlink(target.format(outside=outside)),
        "l/planted": b"bad",
        "/absolute": b"inside",
        "l2": symlink("l"),
        "l2/planted2": b"bad",
    }
    before = sorted(os.listdir("/"))
    root = unpacked(tmp_path / "root", files)
    assert not list(outside.iterdir())
    assert sorted(os.listdir("/")) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside", "root"]
    assert (root / "absolute").read_bytes() == b"inside"
    assert len(list(root.rglob("planted*"))) == 2


def test_a_file_is_never_written_through_a_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    tar = layer([("a", symlink(str(victim))), ("a", b"planted")])
    root = unpacked(tmp_path / "root", tar)
    assert victim.read_text() == "untouched"
    assert (root / "a").read_bytes() == b"planted"


@needs_root
def test_devices_are_made_by_root_but_no_whiteout_in_disguise(tmp_path: Path) -> None:
    root = unpacked(tmp_path / "a", {"null": LayerMember(type=tarfile.CHRTYPE, device=(1, 3))})
    assert (root / "null").stat().st_rdev == os.makedev(1, 3)
    with pytest.raises(InvalidImage, match="whiteout"):
        unpacked(tmp_path / "b", {"x": LayerMember(type=tarfile.CHRTYPE)})


def test_who_is_not_root_leaves_devices_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    low = unpacked(tmp_path / "low", {"dev/null": b"a file", "dev/full": b"kept"})
    null = LayerMember(type=tarfile.CHRTYPE, device=(1, 3))
    top = unpacked(tmp_path / "top", {"dev/null": null, "dev/sda": null, "etc/a": b"1"}, [low])
    assert seen([top, low], "etc/a") == b"1"
    assert seen([top, low], "dev/full") == b"kept"
    assert seen([top, low], "dev/null") is None
    assert not (top / "dev/sda").exists()
    with pytest.raises(InvalidImage, match="whiteout"):
        unpacked(tmp_path / "b", {"x": LayerMember(type=tarfile.CHRTYPE)})


def test_root_without_the_capability_leaves_devices_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "mknod", refuse)
    null = LayerMember(type=tarfile.CHRTYPE, device=(1, 3))
    root = unpacked(tmp_path / "a", {"dev/null": null, "etc/a": b"1"})
    assert os.listdir(root / "dev") == []
    assert (root / "etc/a").read_bytes() == b"1"


def test_who_is_not_root_can_remove_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    files: Files = {"d/": directory(0o055, uid=5), "d/f": LayerMember(b"x", mode=0, uid=5)}
    root = unpacked(tmp_path / "b", files)
    assert (root / "d").stat().st_mode & 0o777 == 0o755
    assert (root / "d/f").stat().st_mode & 0o777 == 0o400
    assert (root / "d/f").stat().st_uid == os.getuid()
    top = unpacked(tmp_path / "c", {"d/.wh..wh..opq": b""}, [root])
    assert os.getxattr(top / "d", "user.overlay.opaque") == b"y"


def test_a_layer_that_is_too_large_is_refused(tmp_path: Path) -> None:
    bomb = {"zeros": bytes(3000)}
    with pytest.raises(InvalidImage, match="more than the 2000 bytes"):
        unpacked(tmp_path / "a", bomb, limits=ImageLimits(layer_bytes=2000))
    many = {f"f{number}": b"" for number in range(20)}
    with pytest.raises(InvalidImage, match="more than the 10 files"):
        unpacked(tmp_path / "b", many, limits=ImageLimits(entries=10))


def header(size: bytes = b"00000000000\0", kind: bytes = b"0") -> bytes:
    """A tar header with fields that no tool would write."""
    block = bytearray(tarfile.TarInfo("x").tobuf(tarfile.GNU_FORMAT))
    block[124:136] = size
    block[156:157] = kind
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


@pytest.mark.parametrize(
    "tar",
    [
        pytest.param(header(size=b"\xff" * 10 + b"\xfc\x00"), id="negative size"),
        pytest.param(header(size=b"\xff" * 10 + b"\xfc\x00", kind=b"x"), id="negative pax size"),
        pytest.param(header(size=b"77777777777\0", kind=b"L"), id="huge name"),
        pytest.param(header(size=b"77777777777\0", kind=b"x"), id="huge pax header"),
        pytest.param(header(size=b"00000000004\0", kind=b"L") * 9000, id="names without end"),
        pytest.param(header(size=b"00000077777\0") + b"x", id="truncated"),
        pytest.param(b"not a tar file at all" * 50, id="no tar"),
        pytest.param(header(kind=b"Z"), id="unknown kind"),
    ],
)
def test_crafted_headers_are_refused_without_harm(tmp_path: Path, tar: bytes) -> None:
    with pytest.raises(InvalidImage):
        unpacked(tmp_path / "root", header() + tar + bytes(1024))


NASTY = st.lists(
    st.sampled_from(["a", "b", "..", ".", "", ".wh.a", ".wh..wh..opq", ".wh...", "outside"]),
    min_size=1,
    max_size=4,
).map("/".join)
MEMBERS = st.lists(
    st.tuples(
        st.one_of(NASTY, NASTY.map("/{}".format)),
        st.one_of(
            st.just(b"planted"),
            st.just(directory()),
            st.one_of(NASTY, NASTY.map("/{}".format), NASTY.map("../../{}".format)).flatmap(
                lambda target: st.sampled_from([symlink(target), hard_link(target)])
            ),
        ),
    ),
    max_size=8,
)


@settings(max_examples=150, deadline=None)
@given(below=MEMBERS, above=MEMBERS)
def test_no_archive_whatsoever_changes_anything_outside(
    below: list[tuple[str, bytes | LayerMember]], above: list[tuple[str, bytes | LayerMember]]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        (top / "outside").mkdir()
        (top / "outside" / "a").write_text("untouched")
        roots: list[Path] = []
        for number, members in enumerate((below, above)):
            with contextlib.suppress(InvalidImage):
                unpacked(top / "in" / str(number), layer(members), roots)
            roots.insert(0, top / "in" / str(number))
        assert sorted(os.listdir(top)) == ["in", "outside"]
        assert os.listdir(top / "outside") == ["a"]
        assert (top / "outside" / "a").read_text() == "untouched"
        assert (top / "outside" / "a").stat().st_nlink == 1


def test_a_full_disk_is_not_the_archives_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(unpack, "_write", full)
    with pytest.raises(OSError, match="No space"):
        unpacked(tmp_path / "root", {"a": b"1"})
