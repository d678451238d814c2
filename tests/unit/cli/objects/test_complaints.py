"""What the server refuses and remarks."""

from io import StringIO

from kedge.cli.objects.complaints import WarningTransport, complaint, next_step, warnings_in
from kedge.client.transport import Call, LocalTransport
from kedge.machinery.errors import (
    FieldError,
    StatusError,
    bad_request,
    forbidden,
    invalid,
    not_found,
    unauthorized,
)
from kedge.web.message import Response


def test_a_refusal_is_one_line_with_its_reason() -> None:
    assert complaint(not_found("", "pods", "x")) == (
        'Error from server (NotFound): pods "x" not found'
    )
    assert complaint(bad_request("no"), 'creating "f.yaml"') == (
        'Error from server (BadRequest): error when creating "f.yaml": no'
    )
    assert complaint(unauthorized()) == (
        "error: You must be logged in to the server (Unauthorized)"
    )


def test_a_refusal_is_followed_by_the_command_that_helps() -> None:
    missing = not_found("apps", "deployments", "web")
    assert (
        next_step(missing, "shop") == "'kedge get deployments.apps -n shop' lists those that exist"
    )
    denied = forbidden("", "pods", "", 'User "bob" cannot list resource "pods" in API group ""')
    assert next_step(denied, "shop").startswith("'kedge kubectl auth can-i --list -n shop'")
    assert next_step(unauthorized(), "shop").startswith("'kedge up' writes the credentials")
    assert next_step(bad_request("no"), "shop") == ""


def test_one_thing_wrong_with_an_object_stands_on_the_same_line() -> None:
    error = invalid("", "Pod", "x", [FieldError.required("spec.containers")])
    assert complaint(error) == 'The Pod "x" is invalid: spec.containers: Required value'


def test_several_things_wrong_are_listed_each_once() -> None:
    errors = [FieldError.required("a"), FieldError.required("b"), FieldError.required("a")]
    assert complaint(invalid("apps", "Deployment", "x", errors)).splitlines() == [
        'The Deployment "x" is invalid: ',
        "* a: Required value",
        "* b: Required value",
    ]


def test_an_invalid_request_about_nothing_is_told_in_its_own_words() -> None:
    assert complaint(StatusError(422, "Invalid", "bad")) == "The request is invalid: bad"


def test_warnings_are_found_in_joined_headers() -> None:
    headers = {"warning": r'299 - "one, \"two\"",299 - "three",199 - "not ours"'}
    assert list(warnings_in(headers)) == ['one, "two"', "three"]


async def test_a_warning_is_printed_once_however_often_it_comes() -> None:
    def warn(call: Call) -> Response:
        return Response(200, b"{}", headers=[("Warning", '299 - "look out"')])

    out = StringIO()
    transport = WarningTransport(LocalTransport(warn), out)
    for _ in range(2):
        await transport.send(Call("GET", "/"))
    async with transport.stream(Call("GET", "/")):
        pass
    assert out.getvalue() == "Warning: look out\n"
