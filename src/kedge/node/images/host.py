"""The image `host`: the machine's own files, without credentials and home directories."""

import contextlib
import os
import pwd
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

_FIRST_PERSON: Final = 1000
"""The first user id of people on Debian, Fedora and their derivatives."""
_NOBODY: Final = 65534
_NOT_HOMES: Final = frozenset(map(Path, ("/", "/bin", "/dev", "/etc", "/sbin", "/usr", "/var")))
"""Home directories of system accounts that programs need."""


class HiddenPath(msgspec.Struct, frozen=True):
    """A file or directory of the machine that containers of the image `host` see empty."""

    path: str
    reason: str


class HostImage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The parts of its machine that a node shows in the image `host`."""

    is_enabled: bool = True
    hidden: tuple[HiddenPath, ...] = ()
    shown: tuple[str, ...] = ()
    """Paths below hidden directories that are shown."""


CREDENTIALS: Final = tuple(
    HiddenPath(path, reason)
    for reason, paths in {
        "password hashes": (
            "/etc/gshadow",
            "/etc/gshadow-",
            "/boot/grub",
            "/boot/grub2",
            "/etc/grub.d",
            "/etc/security/opasswd",
            "/etc/shadow",
            "/etc/shadow-",
            "/var/backups",
            "/var/cache/debconf/passwords.dat",
        ),
        "keys of this machine": (
            "/etc/credstore",
            "/etc/credstore.encrypted",
            "/etc/cryptsetup-keys.d",
            "/etc/krb5.keytab",
            "/etc/letsencrypt",
            "/etc/pki/tls/private",
            "/etc/ssh",
            "/etc/ssl/private",
            "/var/lib/systemd/credential.secret",
            "/var/lib/systemd/random-seed",
        ),
        "network credentials": (
            "/etc/NetworkManager/system-connections",
            "/etc/ipsec.secrets",
            "/etc/netplan",
            "/etc/openvpn",
            "/etc/ppp",
            "/etc/wireguard",
            "/etc/wpa_supplicant",
            "/var/lib/bluetooth",
            "/var/lib/iwd",
            "/var/lib/tailscale",
        ),
        "credentials of services": (
            "/etc/apt/auth.conf",
            "/etc/apt/auth.conf.d",
            "/etc/ceph",
            "/etc/exim4/passwd.client",
            "/etc/mysql/debian.cnf",
            "/etc/postfix/sasl_passwd",
            "/etc/samba",
            "/var/lib/cloud",
            "/var/lib/samba/private",
            "/var/lib/sss",
        ),
        "other clusters and container engines": (
            "/etc/cni",
            "/etc/containerd",
            "/etc/containers",
            "/etc/docker",
            "/etc/kubernetes",
            "/etc/rancher",
            "/var/lib/containerd",
            "/var/lib/containers",
            "/var/lib/docker",
            "/var/lib/etcd",
            "/var/lib/incus",
            "/var/lib/kubelet",
            "/var/lib/libvirt",
            "/var/lib/lxd",
            "/var/lib/rancher",
        ),
        "other users' mail, jobs and crash dumps": (
            "/var/crash",
            "/var/lib/systemd/coredump",
            "/var/mail",
            "/var/spool/cron",
            "/var/spool/mail",
        ),
        "memory of this machine": ("/swap", "/swap.img", "/swapfile"),
    }.items()
    for path in paths
)
"""Paths of credentials of Linux distributions and well-known services."""


def host_image(*, own: Sequence[Path], shown: Sequence[Path], is_enabled: bool) -> HostImage:
    """Return what a node hides: credentials, home directories, and kedge's `own` directories.

    A `shown` path takes itself and everything below it off the list, except kedge's own.
    """
    listed = {each.path: each for each in (*CREDENTIALS, *_homes(_people()))}
    kept = [each for path, each in sorted(listed.items()) if not _below_any(Path(path), shown)]
    directories = [Path(each.path) for each in kept]
    kedge = [HiddenPath(str(path), "kedge's own") for path in own]
    return HostImage(
        is_enabled=is_enabled,
        hidden=(*kept, *kedge),
        shown=tuple(
            str(path)
            for path in shown
            if _below_any(path, directories) and not _below_any(path, own)
        ),
    )


def _people() -> Iterator[pwd.struct_passwd]:
    """Yield the accounts of people on this machine, root and the user of this process included."""
    for account in pwd.getpwall():
        is_person = account.pw_uid >= _FIRST_PERSON and account.pw_uid != _NOBODY
        if account.pw_uid == 0 or is_person:
            yield account
    # A directory service may know users by number without listing them.
    with contextlib.suppress(KeyError):
        yield pwd.getpwuid(os.geteuid())


def _homes(accounts: Iterable[pwd.struct_passwd]) -> Iterator[HiddenPath]:
    reason = "home directories"
    yield HiddenPath("/root", reason)
    yield HiddenPath("/home", reason)
    for account in accounts:
        home = Path(os.path.normpath(account.pw_dir or "/"))
        # A link in /home may lead to another disk, or to /data/home.
        for each in (home, Path(os.path.realpath(home))):
            if _is_home(each):
                yield HiddenPath(str(each), reason)


def _is_home(home: Path) -> bool:
    above = [Path("/home"), Path(os.path.realpath("/home"))]
    return home.is_absolute() and home not in _NOT_HOMES and not _below_any(home, above)


def _below_any(path: Path, directories: Iterable[Path]) -> bool:
    """Return whether the path is one of the directories or below one."""
    return any(path.is_relative_to(directory) for directory in directories)
