"""Strategic merge patches: lists merge by key where the schema says so, else are replaced.

The reference is upstream's code (k8s.io/apimachinery/pkg/util/strategicpatch), not a specification:
kubectl computes its patches with the same package, so a result that differs in the order of a list
makes `kubectl apply` send the same change again and again. Where upstream does something odd, this
module does it too, and a comment says so.

A patch is a partial document. Beside plain fields it holds four directives:

- `$patch: replace | delete` in a map, or in an item of a list, says what to do with that value.
- `$retainKeys: [...]` in a map drops every field of the live map that is not named. kubectl sends
  it for unions (`strategy`, volume sources), where a merge would leave two members of the union.
- `$setElementOrder/<list>: [...]` gives the order of a merged list. A merge by key alone cannot
  move an item, because an item that did not change is not in the patch.
- `$deleteFromPrimitiveList/<list>: [...]` removes values from a merged list of scalars, whose items
  have no map to carry `$patch: delete`.

The order of the steps in `_merged_map` is part of the result. `$patch` comes first, because it
makes the live map irrelevant. `$retainKeys` comes before the merge, or it would drop fields that
the same patch sets. A list with a requested order is merged and sorted before the other fields and
then skipped: a second merge would sort it by the patch alone and lose the requested order.

No step changes its arguments, because the caller compares the result with the live document
afterwards (generation, managed fields). Every map on the path to a change is copied; values that
the patch does not touch are shared with the live document.
"""

from collections.abc import Iterable
from typing import Any

from kedge.machinery.patch import PatchError, PatchFailed, PatchMalformed, printed
from kedge.machinery.schema import ANY, Schema

PATCH = "$patch"
RETAIN_KEYS = "$retainKeys"
SET_ORDER = "$setElementOrder/"
DELETE_VALUES = "$deleteFromPrimitiveList/"

_BAD_ORDER = "invalid patch format of setElementOrder list"
_BAD_RETAIN = "invalid patch format of retainKeys"
_BAD_VALUES = "invalid patch format of primitive list"

Document = dict[str, Any]


def apply(schema: Schema, document: Document, patch: Document) -> Document:
    """Return the document with the patch merged in. Neither argument is changed."""
    return _merged_map(schema, document, patch)


def _merged_map(schema: Schema, original: Document, patch: Document) -> Document:
    if PATCH in patch:
        return _directed(patch)
    result = _retained(original, patch)
    arranged = _arrange(schema, result, patch)
    for key, value in patch.items():
        if key == RETAIN_KEYS or key in arranged or _names_a_list(key, SET_ORDER):
            continue
        if _names_a_list(key, DELETE_VALUES):
            _delete_values(result, _list_named_by(key, _BAD_VALUES), value)
        elif value is None:
            # As in a JSON merge patch (RFC 7386), null removes a field and is never stored.
            result.pop(key, None)
        elif key in result:
            _merge_member(schema.field(key) or ANY, result, key, value)
        elif not _is_directed(value):
            # Nothing to merge with. A map that only says `$patch: delete` must not create the
            # field.
            result[key] = _plain(value)
    return result


def _directed(patch: Document) -> Document:
    match patch[PATCH]:
        case "replace":
            return {k: _plain(v) for k, v in patch.items() if k != PATCH}
        case "delete":
            return {}
        case other:
            raise PatchError(f"unknown patch type: {printed(other)} in map: {printed(patch)}")


def _merge_member(schema: Schema, result: Document, key: str, value: Any) -> None:
    present = result[key]
    if isinstance(present, dict) and isinstance(value, dict):
        result[key] = _merged_map(schema, present, value)
    elif isinstance(present, list) and isinstance(value, list):
        result[key] = _merged_list(schema, present, value)
    elif _is_directed(value):
        # Upstream: a directive that meets nothing to direct takes the field away.
        del result[key]
    else:
        result[key] = _plain(value)


def _retained(original: Document, patch: Document) -> Document:
    """Return the fields of the original that `$retainKeys` keeps.

    Every field that the patch sets must be in the list. Upstream checks this because a client that
    sets a field and does not retain it has computed the list from another document.
    """
    if RETAIN_KEYS not in patch:
        return dict(original)
    keep = patch[RETAIN_KEYS]
    if not isinstance(keep, list):
        raise PatchMalformed(_BAD_RETAIN)
    kept = {key for key in keep if isinstance(key, str)}
    for key, value in patch.items():
        if value is not None and not _is_directive(key) and key not in kept:
            raise PatchMalformed(_BAD_RETAIN)
    return {key: value for key, value in original.items() if key in kept}


def _arrange(schema: Schema, result: Document, patch: Document) -> set[str]:
    """Merge and sort every list that has a `$setElementOrder`, and return the names of these lists.

    An order without a list, in the document or in the patch, has no effect: the list was removed
    after the client computed its patch.
    """
    done = set()
    for key, order in patch.items():
        if not _names_a_list(key, SET_ORDER):
            continue
        name = _list_named_by(key, _BAD_ORDER)
        if name not in result and name not in patch:
            continue
        result[name] = _arranged_list(
            schema.field(name) or ANY, result.get(name), patch.get(name), order
        )
        done.add(name)
    return done


def _arranged_list(schema: Schema, present: Any, patch: Any, order: Any) -> list[Any]:
    for value in (present, patch, order):
        if value is not None and not isinstance(value, list):
            raise PatchError(f"expected a []interface {{}}, but received a {_go_type(value)}")
    if order is None:
        raise PatchMalformed(_BAD_ORDER)
    key = schema.merge_key
    _check_order(patch or [], order, key)
    if patch is None:
        merged = present
    elif present is None:
        merged = [_plain(item) for item in patch if not _is_directed(item)]
    else:
        merged = _merged_list(schema, present, patch)
    return _sorted(merged, order, _live_order(schema, present or [], patch or []), key)


def _live_order(schema: Schema, present: list[Any], patch: list[Any]) -> list[Any]:
    """Return the live list that places items which the order does not name.

    Upstream sorts after the merge, by a "live" slice that shares its array with the merged list:
    Go's append reuses the room that deletions left. So as many new items as were deleted appear at
    the end of the live list and have a place in it. Clients see this order, therefore it is kept.
    """
    key = schema.merge_key
    if not key or not schema.merge:
        return present
    deleted = _deletions(patch, key)
    kept = [item for item in present if _hashable(_identity(item, key)) not in deleted]
    known = _ranks(kept, key)
    new = [
        item for item in patch if PATCH not in item and _hashable(_identity(item, key)) not in known
    ]
    return kept + new[: len(present) - len(kept)]


def _check_order(patch: list[Any], order: list[Any], key: str) -> None:
    """Raise PatchError unless the patch's items are a subsequence of the order list.

    A patch that contradicts its own order has no defined result. Deletions are exempt: the item is
    gone from the order that the client wants. The iterator `ranks` is consumed across the loop, so
    that each item is searched for behind the one before it.
    """
    if not patch or not order:
        return
    ranks = iter([_identity(item, key) for item in order])
    for item in patch:
        if key and _is_directed(item):
            continue
        wanted = _identity(item, key)
        if not any(rank == wanted for rank in ranks):
            raise PatchError(
                f"The order in patch list:\n{printed(patch)}\n"
                f" doesn't match $setElementOrder list:\n{printed(order)}\n"
            )


def _delete_values(result: Document, name: str, values: Any) -> None:
    present = result.get(name)
    if not isinstance(values, list):
        raise PatchMalformed(_BAD_VALUES)
    if isinstance(present, list):
        gone = set(map(_hashable, values))
        result[name] = [item for item in present if _hashable(item) not in gone]


def _merged_list(schema: Schema, present: list[Any], patch: list[Any]) -> list[Any]:
    if not schema.merge:
        # An atomic list: `patchStrategy: merge` is not declared, so the patch is the new list.
        return [_plain(item) for item in patch if not _is_directed(item)]
    _check_kinds([*present, *patch])
    if not any(isinstance(item, dict) for item in (*present, *patch)):
        # Scalars merge as a set, such as finalizers. dict.fromkeys keeps the first of equal values.
        return _sorted(list(dict.fromkeys([*present, *patch])), patch, present, "")
    if not schema.merge_key:
        raise PatchError("cannot merge lists without merge key for struct")
    return _merged_items(schema, present, patch)


def _merged_items(schema: Schema, present: list[Any], patch: list[Any]) -> list[Any]:
    key = schema.merge_key
    if any(item.get(PATCH) == "replace" for item in patch):
        # One `$patch: replace` among the items replaces the whole list. The other directives have
        # no effect then, but a malformed one is still an error, as upstream.
        _deletions(patch, key)
        return [_plain(item) for item in patch if PATCH not in item]
    # Deletions come before additions, wherever they stand in the patch: delete and add with the
    # same key replaces an item instead of merging into it.
    deleted = _deletions(patch, key)
    kept = [item for item in present if _hashable(item.get(key)) not in deleted]
    additions = [item for item in patch if PATCH not in item]
    merged = list(kept)
    places = _ranks(kept, key)
    for item in additions:
        # Two items of the patch with one key: the first is added, the second merges into it.
        at = places.setdefault(_hashable(_identity(item, key)), len(merged))
        if at == len(merged):
            merged.append(_plain(item))
        else:
            merged[at] = _merged_map(schema.items or ANY, merged[at], item)
    return _sorted(merged, additions, kept, key)


def _deletions(patch: list[Document], key: str) -> set[Any]:
    """Return the keys of the items to delete; raise PatchError for an unknown directive."""
    deleted = set()
    for item in patch:
        match item.get(PATCH, "replace"):
            case "delete":
                deleted.add(_hashable(_identity(item, key)))
            case "replace":
                pass
            case "merge":
                raise PatchError("merging lists cannot yet be specified in the patch")
            case other:
                raise PatchError(f"unknown patch type: {printed(other)} in map: {printed(item)}")
    return deleted


def _sorted(items: list[Any], order: list[Any], live: list[Any], key: str) -> list[Any]:
    """Return named items in the named order, and the others where they were in the live list.

    The order names the items that the client knows. Others may have been added by someone else
    since: a sidecar that a webhook injected, for example. Such an item keeps its place relative to
    the live list: it comes before the first named item that it preceded there. A named item that is
    new has no place in the live list (-1) and pulls no other item before it. This is upstream's
    merge of two sorted sequences (`mergeSortedSlice`), which compares by place in the live list
    only; a full sort by both orders is not possible, because they may contradict each other.
    """
    ranks = _ranks(order, key)
    places = _ranks(live, key)
    known = [(_hashable(_identity(item, key)), item) for item in items]
    named = sorted((pair for pair in known if pair[0] in ranks), key=lambda pair: ranks[pair[0]])
    others = [pair for pair in known if pair[0] not in ranks]
    others.sort(key=lambda pair: places.get(pair[0], -1))
    result: list[Any] = []
    taken = 0
    for identity, item in named:
        place = places.get(identity, -1)
        while taken < len(others) and 0 <= places.get(others[taken][0], -1) < place:
            result.append(others[taken][1])
            taken += 1
        result.append(item)
    return result + [item for _, item in others[taken:]]


def _ranks(items: Iterable[Any], key: str) -> dict[Any, int]:
    ranks: dict[Any, int] = {}
    for rank, item in enumerate(items):
        ranks.setdefault(_hashable(_identity(item, key)), rank)
    return ranks


def _hashable(identity: Any) -> Any:
    """Return a hashable key that is equal for equal values.

    A true and a 1 are different, and so are a text and what prints like it."""
    if isinstance(identity, dict | list):
        return ("", printed(identity))
    return (type(identity), identity) if isinstance(identity, bool) else identity


def _identity(item: Any, key: str) -> Any:
    if not key:
        return item
    if not isinstance(item, dict):
        raise PatchError(f"expected a map[string]interface {{}}, but received a {_go_type(item)}")
    if key not in item:
        raise PatchError(f"map: {printed(item)} does not contain declared merge key: {key}")
    return item[key]


def _check_kinds(items: list[Any]) -> None:
    if any(isinstance(item, list) for item in items):
        raise PatchFailed("lists of lists are not supported")
    if len({_go_type(item) for item in items}) > 1:
        raise PatchError(f"list element types are not identical: {printed(items)}")


def _names_a_list(key: str, directive: str) -> bool:
    # Without the slash, so that a malformed `$setElementOrderports` is an error and not a field.
    return key.startswith(directive[:-1])


def _list_named_by(key: str, complaint: str) -> str:
    directive, slash, name = key.partition("/")
    if not slash or directive + slash not in (SET_ORDER, DELETE_VALUES):
        raise PatchMalformed(complaint)
    return name


def _is_directed(value: Any) -> bool:
    return isinstance(value, dict) and PATCH in value


def _plain(value: Any) -> Any:
    """Return a value that is new to the document, without nulls and directives.

    Both make sense only against a live value. Stored, a null would be a field that pruning rejects
    and a directive would be an unknown field.
    """
    if isinstance(value, dict):
        return {
            key: _plain(inner)
            for key, inner in value.items()
            if inner is not None and not _is_directed(inner) and not _is_directive(key)
        }
    if isinstance(value, list):
        return [_plain(item) for item in value if not _is_directed(item)]
    return value


def _is_directive(key: str) -> bool:
    return key == RETAIN_KEYS or key.startswith((SET_ORDER, DELETE_VALUES))


def _go_type(value: Any) -> str:
    match value:
        case dict():
            return "map[string]interface {}"
        case list():
            return "[]interface {}"
        case bool():
            return "bool"
        case str():
            return "string"
        case int():
            return "int64"
        case float():
            return "float64"
        case _:
            return "%!s(<nil>)"
