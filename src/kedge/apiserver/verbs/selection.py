"""The selection of objects for list, watch and deletecollection."""

from typing import Any

from kedge.api.resource import Resource
from kedge.apiserver.request import Request, stored
from kedge.apiserver.watchcache import Selection
from kedge.machinery.errors import bad_request
from kedge.machinery.selectors import FieldSelector, FieldTerm, parse_fields, parse_labels


def selected(request: Request) -> Selection:
    """Return the selection that path and query describe; 400 if a selector is invalid."""
    query = request.query
    try:
        labels = parse_labels(query.get("labelSelector"))
        fields = parse_fields(query.get("fieldSelector"))
    except ValueError as error:
        raise bad_request(str(error)) from None
    _check(request.resource, fields)
    if request.name:
        fields = FieldSelector([*fields.terms, FieldTerm("metadata.name", "=", request.name)])
    resource = request.resource
    # Upstream selects converted objects; only they have the fields of the requested version.
    home = resource if resource.conversion is not None else stored(resource)
    return Selection(home, request.namespace, labels, _stored_names(request, fields))


def _check(resource: Resource[Any], fields: FieldSelector) -> None:
    for term in fields.terms:
        if (
            term.field in ("metadata.name", "metadata.namespace")
            or term.field in resource.presentation.fields
        ):
            continue
        if resource.presentation.fields:
            raise bad_request(f"field label not supported: {term.field}")
        raise bad_request(
            f'"{term.field}" is not a known field selector: '
            'only "metadata.name", "metadata.namespace"'
        )


def _stored_names(request: Request, fields: FieldSelector) -> FieldSelector:
    """Return the field selector with the field names of the stored resource."""
    if request.resource.store_as is None:
        return fields
    names = request.resource.store_as.field_names
    return FieldSelector(
        [FieldTerm(names.get(term.field, term.field), *term[1:]) for term in fields.terms]
    )
