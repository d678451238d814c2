from kedge.api.core_v1.pod.spec import PodSpec
from kedge.api.internal_forms import internal_diff, internal_form, internal_types


def test_absent_fields_have_the_zero_values_of_go() -> None:
    form = internal_form({"attacher": "a"}, "storage.VolumeAttachmentSpec")
    source = {"PersistentVolumeName": None, "InlineVolumeSpec": None}
    assert form == {"Attacher": "a", "Source": source, "NodeName": ""}


def test_fields_with_tags_keep_their_names_and_leave_out_zeros() -> None:
    form = internal_form({"matchLabels": {"b": "1", "a": "2"}}, "metav1.LabelSelector")
    assert list(form) == ["matchLabels"]
    assert list(form["matchLabels"]) == ["a", "b"]


def test_host_namespaces_are_part_of_the_security_context() -> None:
    form = internal_form(PodSpec(hostNetwork=True), "core.PodSpec")
    assert "HostNetwork" not in form
    assert form["SecurityContext"]["HostNetwork"] is True
    assert form["SecurityContext"]["HostUsers"] is None


def test_the_difference_is_a_unified_diff_of_json() -> None:
    old, new = {"persistentVolumeName": "a"}, {"persistentVolumeName": "<b>"}
    assert internal_diff(old, new, "storage.VolumeAttachmentSource") == (
        "@@ -1,4 +1,4 @@\n"
        " {\n"
        '- "PersistentVolumeName": "a",\n'
        '+ "PersistentVolumeName": "\\u003cb\\u003e",\n'
        '  "InlineVolumeSpec": null\n'
        " }\n"
    )


def test_very_long_values_are_not_compared() -> None:
    long = {"containers": [{"name": str(i)} for i in range(100)]}
    assert internal_diff(long, {}, "core.PodSpec") == ""


def test_equal_values_have_no_difference() -> None:
    assert internal_diff({}, {}, "core.PodSpec") == ""


def test_every_named_type_is_in_the_table() -> None:
    table = internal_types()
    named = {field.type.lstrip("*[{") for fields in table.values() for field in fields}
    assert {kind for kind in named if "." in kind} <= set(table)
