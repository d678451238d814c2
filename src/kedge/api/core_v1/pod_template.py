"""PodTemplate: a template of pods that is stored on its own."""

from collections.abc import Callable, Iterator

from msgspec import field
from msgspec.structs import replace

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.defaults import default_template
from kedge.api.core_v1.pod.spec import PodTemplateSpec
from kedge.api.core_v1.pod.validation import validate_template
from kedge.api.core_v1.pod.warnings import warn_template
from kedge.api.label_selector import shown_labels
from kedge.api.model import Object
from kedge.api.presentation import Column, Presentation, name_column
from kedge.api.resource import Resource
from kedge.api.strategy import Strategy
from kedge.machinery.errors import FieldError


class PodTemplate(Object):
    """A template of pods. Nothing uses it by itself."""

    template: PodTemplateSpec = field(default_factory=PodTemplateSpec)
    """The template of the pods."""


def default(obj: PodTemplate) -> PodTemplate:
    return replace(obj, template=default_template(obj.template))


def validate(obj: PodTemplate) -> Iterator[FieldError]:
    return validate_template(obj.template, "template")


def warn(obj: PodTemplate) -> Iterator[str]:
    return warn_template(obj.template, "template")


def _joined(part: Callable[[Container], str]) -> Callable[[PodTemplate], str]:
    return lambda obj: ",".join(map(part, obj.template.spec.containers))


RESOURCE: Resource[PodTemplate] = Resource(
    type=PodTemplate,
    plural="podtemplates",
    strategy=Strategy(
        default=default, validate=validate, warnings=warn, returns_deleted_object=True
    ),
    presentation=Presentation(
        columns=[
            name_column(),
            Column(
                name="Containers",
                cell=_joined(lambda container: container.name),
                description="Names of the containers.",
            ),
            Column(
                name="Images",
                cell=_joined(lambda container: container.image),
                description="Images of the containers.",
            ),
            Column(
                name="Pod Labels",
                cell=lambda obj: shown_labels(obj.template.metadata.labels),
                description="Labels of the pods.",
            ),
        ]
    ),
)
