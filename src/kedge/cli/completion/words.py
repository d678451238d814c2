"""Which words may stand at the end of a command line; pure, but for names that a cluster has."""

from argparse import Action, ArgumentParser
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from kedge.cli.commands import COMMANDS
from kedge.cli.flags import SUGGESTED
from kedge.cli.main import command_first, parser, subparser

Names = Callable[[str], Iterable[str]]
"""Returns the names of the objects of a type, or of CLUSTERS, CONTEXTS and CONTAINERS; for an empty
text the types themselves."""

TYPED: Final = frozenset(
    ("get", "describe", "delete", "edit", "scale", "rollout", "wait", "recommend", "explain")
)
"""Commands whose words are types and names."""
POD: Final = frozenset(("logs", "exec", "port-forward", "why", "doctor", "cp"))
"""Commands whose first word is a pod, or TYPE/NAME."""
_WORKLOADS: Final = ("deploy/", "sts/", "ds/", "job/", "svc/", "pod/")
_NAMESPACES: Final = ("-n", "--namespace")
CLUSTERS: Final = "clusters of this machine"
CONTEXTS: Final = "contexts of the kubeconfig"
CONTAINERS: Final = "containers of the pod "
"""Followed by the name of a pod, or TYPE/NAME."""
_FLAGS: Final = {
    "-n": "namespaces",
    "--namespace": "namespaces",
    "--name": CLUSTERS,
    "--context": CONTEXTS,
}
"""Flags whose values are names, and what they are the names of."""
_CONTAINER: Final = ("-c", "--container")


class CommandLine(NamedTuple):
    """A command line up to the cursor."""

    command: str
    words: Sequence[str]
    """The words after the command, without flags and their values."""
    flag: str
    """The flag whose value is being typed; empty if there is none."""
    last: str
    """The word at the cursor."""


def complete(arguments: Sequence[str], names: Names) -> list[str]:
    """Return the words that fit in the place of the last one."""
    *before, last = list(arguments) or [""]
    if before and before[-1] in _FLAGS:
        return _fitting(last, names(_FLAGS[before[-1]]))
    ordered = command_first(before)
    if "--" in ordered:
        return []
    if not ordered or ordered[0].startswith("-"):
        flags = ["--help", "--version", *_NAMESPACES] if last.startswith("-") else []
        return _fitting(last, [*flags, *(each.name for each in COMMANDS)])
    known = [each for each in COMMANDS if each.name == ordered[0]]
    part = subparser(parser(known, known), ordered[0]) if known else None
    if part is None:
        return []
    line = _read(part, ordered, last)
    return _fitting(line.last, _candidates(part, line, names))


def _fitting(last: str, words: Iterable[str]) -> list[str]:
    return sorted({each for each in words if each.startswith(last)})


def _read(part: ArgumentParser, ordered: Sequence[str], last: str) -> CommandLine:
    """Tell flags, their values and words apart."""
    words: list[str] = []
    pending = ""
    for each in ordered[1:]:
        if pending:
            pending = ""
        elif each.startswith("-"):
            pending = each if _takes_value(part._option_string_actions.get(each)) else ""
        else:
            words.append(each)
    return CommandLine(ordered[0], words, pending, last)


def _takes_value(action: Action | None) -> bool:
    return action is not None and action.nargs != 0


def _values(action: Action) -> list[str]:
    suggested: Sequence[str] = getattr(action, SUGGESTED, ())
    return [str(each) for each in action.choices or suggested]


def _candidates(part: ArgumentParser, line: CommandLine, names: Names) -> Iterable[str]:
    actions = part._option_string_actions
    if line.flag in _CONTAINER and line.words:
        return names(f"{CONTAINERS}{line.words[0]}")
    if line.flag:
        return _values(actions[line.flag])
    if line.last.startswith("-"):
        flag, equals, _ = line.last.partition("=")
        if equals and flag in _FLAGS and flag in actions:
            return [f"{flag}={each}" for each in names(_FLAGS[flag])]
        if equals and flag in actions:
            return [f"{flag}={each}" for each in _values(actions[flag])]
        return [each for each in actions if each.startswith("--") or len(line.last) < 2]
    return _words(part, line, names)


def _words(part: ArgumentParser, line: CommandLine, names: Names) -> Iterable[str]:
    positional = [each for each in part._get_positional_actions() if each.choices]
    if positional and len(line.words) < len(positional):
        return [str(each) for each in positional[len(line.words)].choices or ()]
    words = line.words[len(positional) :]
    if line.command == "namespace":
        return names("namespaces")
    if line.command in POD and not words:
        return _pods(line.last, names)
    if line.command not in TYPED:
        return ()
    type_, slash, _ = line.last.partition("/")
    if slash:
        return [f"{type_}/{each}" for each in names(type_)]
    return names(words[0]) if words else names("")


def _pods(last: str, names: Names) -> Iterable[str]:
    type_, slash, _ = last.partition("/")
    if slash:
        return [f"{type_}/{each}" for each in names(type_)]
    return [*names("pods"), *(_WORKLOADS if last else ())]
