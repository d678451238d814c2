from kedge.api.autoscaling_v1.scale import COLUMNS, Scale, ScaleSpec, ScaleStatus, validate


def test_replicas_are_not_negative() -> None:
    assert list(validate(Scale(spec=ScaleSpec(replicas=0)))) == []
    assert [str(error) for error in validate(Scale(spec=ScaleSpec(replicas=-1)))] == [
        "spec.replicas: Invalid value: -1: must be greater than or equal to 0"
    ]


def test_what_kubectl_shows() -> None:
    scale = Scale(spec=ScaleSpec(replicas=3), status=ScaleStatus(replicas=2))
    assert [column.cell(scale) for column in COLUMNS[:3]] == ["", 3, 2]
