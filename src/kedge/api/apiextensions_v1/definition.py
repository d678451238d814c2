"""The types of a CustomResourceDefinition, and functions on them."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import field

from kedge.api.apiextensions_v1.json_schema import JSONSchemaProps
from kedge.api.model import Bytes, Int32, Model, Object, Time, listed_by

APPROVAL = "api-approved.kubernetes.io"


class CustomResourceColumnDefinition(Model):
    """A column that `kubectl get` shows."""

    __required__ = ("name", "type", "jsonPath")

    name: str = ""
    """The heading."""
    type: str = ""
    """One of boolean, date, integer, number, string."""
    format: str = ""
    """A narrower type."""
    description: str = ""
    """A human-readable description of the column."""
    priority: Int32 = 0
    """Above 0 the column is shown in wide output only."""
    jsonPath: str = ""
    """Where in the object the cell's value stands."""


class ServiceReference(Model):
    """A service that answers webhooks."""

    __required__ = ("namespace", "name")

    namespace: str = ""
    """Namespace of the service."""
    name: str = ""
    """Name of the service."""
    path: str | None = None
    """The path of the URL."""
    port: Int32 | None = None
    """The port; 443 if not given."""


class WebhookClientConfig(Model):
    """How to reach a webhook."""

    url: str | None = None
    """Its address, unless it is a service."""
    service: ServiceReference | None = None
    """The service, unless it has an address."""
    caBundle: Bytes = ""
    """Certificates that vouch for it."""


class WebhookConversion(Model):
    """A webhook that converts between versions."""

    __required__ = ("conversionReviewVersions",)

    clientConfig: WebhookClientConfig | None = None
    """How to reach it."""
    conversionReviewVersions: Sequence[str] = ()
    """The versions of ConversionReview that it understands."""


class CustomResourceConversion(Model):
    """How objects of one version become objects of another."""

    __required__ = ("strategy",)

    strategy: str = ""
    """None: only the apiVersion changes. Webhook: a webhook converts objects."""
    webhook: WebhookConversion | None = None
    """The webhook of strategy Webhook."""


class CustomResourceDefinitionNames(Model):
    """The names of the kind and its resource."""

    __required__ = ("plural", "kind")

    plural: str = field(default_factory=str)
    """The word in URLs."""
    singular: str = ""
    """The word on the command line; defaults to the kind in lower case."""
    shortNames: Sequence[str] = ()
    """Abbreviations for the command line."""
    kind: str = field(default_factory=str)
    """The word in objects."""
    listKind: str = ""
    """The word in lists of objects; defaults to the kind and List."""
    categories: Sequence[str] = ()
    """Groups of resources to which this one belongs, for instance all."""


class CustomResourceSubresourceStatus(Model):
    """Gives status an endpoint of its own. Has no options."""


class CustomResourceSubresourceScale(Model):
    """Where an object keeps what its scale subresource shows."""

    __required__ = ("specReplicasPath", "statusReplicasPath")

    specReplicasPath: str = ""
    """The number wanted, below .spec."""
    statusReplicasPath: str = ""
    """The number observed, below .status."""
    labelSelectorPath: str | None = None
    """The selector as text, below .spec or .status."""


class CustomResourceSubresources(Model):
    """Parts of an object with endpoints of their own."""

    status: CustomResourceSubresourceStatus | None = None
    """Whether there is a status endpoint."""
    scale: CustomResourceSubresourceScale | None = None
    """Whether there is a scale endpoint, and what it shows."""


class CustomResourceValidation(Model):
    """The schema of a version."""

    openAPIV3Schema: JSONSchemaProps | None = None
    """The schema of the objects. Undeclared fields are dropped."""


class SelectableField(Model):
    """A field by which lists may be filtered."""

    __required__ = ("jsonPath",)

    jsonPath: str = ""
    """The path to it, such as .spec.color."""


class CustomResourceDefinitionVersion(Model):
    """One version of the kind."""

    __required__ = ("name", "served", "storage")

    name: str = ""
    """The version, such as v1 or v1beta1."""
    served: bool = field(default_factory=bool)
    """Whether clients can use it."""
    storage: bool = field(default_factory=bool)
    """Whether objects are stored in it; true of exactly one version."""
    deprecated: bool = False
    """Whether clients that use it are warned."""
    deprecationWarning: str | None = None
    """The words of that warning."""
    schema: CustomResourceValidation | None = None
    """The schema of this version."""
    subresources: CustomResourceSubresources | None = None
    """The subresources of this version."""
    additionalPrinterColumns: Sequence[CustomResourceColumnDefinition] = ()
    """The columns of `kubectl get` besides the name."""
    selectableFields: Sequence[SelectableField] = ()
    """Fields by which lists may be filtered; at most eight."""


class CustomResourceDefinitionSpec(Model):
    """The kind as it is wanted."""

    __required__ = ("group", "names", "scope", "versions")

    group: str = ""
    """The API group: a domain."""
    names: CustomResourceDefinitionNames = field(default_factory=CustomResourceDefinitionNames)
    """The names of the kind."""
    scope: str = ""
    """Namespaced or Cluster."""
    versions: Sequence[CustomResourceDefinitionVersion] = ()
    """Its versions."""
    conversion: CustomResourceConversion | None = None
    """How objects change version."""
    preserveUnknownFields: bool = False
    """Must be false; say it in the schema instead."""


class CustomResourceDefinitionCondition(Model):
    """One aspect of the state of a definition."""

    __required__ = ("type", "status")

    type: str = ""
    """NamesAccepted, Established, NonStructuralSchema, Terminating, ..."""
    status: str = ""
    """True, False or Unknown."""
    lastTransitionTime: Time = ""
    """When the status last changed."""
    reason: str = ""
    """Why, as one CamelCase word."""
    message: str = ""
    """Why, for people."""
    observedGeneration: int = 0
    """The generation that was observed."""


class CustomResourceDefinitionStatus(Model):
    """The kind as it is served."""

    conditions: Annotated[Sequence[CustomResourceDefinitionCondition], listed_by("type")] = ()
    """Whether names were accepted, whether the kind is served."""
    acceptedNames: CustomResourceDefinitionNames = field(
        default_factory=CustomResourceDefinitionNames
    )
    """The names in use; others may have been taken."""
    storedVersions: Sequence[str] = ()
    """Versions in which objects may be stored; none of them can be removed from the spec."""
    observedGeneration: int = 0
    """The generation that was observed."""


class CustomResourceDefinition(Object):
    """A kind that users add to the API, its versions and their schemas."""

    __required__ = ("spec",)

    spec: CustomResourceDefinitionSpec = field(default_factory=CustomResourceDefinitionSpec)
    """The kind as it is wanted."""
    status: CustomResourceDefinitionStatus = field(default_factory=CustomResourceDefinitionStatus)
    """The kind as it is served."""


def schema_of_version(version: CustomResourceDefinitionVersion) -> JSONSchemaProps | None:
    return version.schema.openAPIV3Schema if version.schema is not None else None


def storage_version(crd: CustomResourceDefinition) -> str:
    """The version in which objects are stored, empty if there is none."""
    return next((version.name for version in crd.spec.versions if version.storage), "")


def condition(
    crd: CustomResourceDefinition, type_: str
) -> CustomResourceDefinitionCondition | None:
    return next((each for each in crd.status.conditions if each.type == type_), None)


def is_established(crd: CustomResourceDefinition) -> bool:
    """Whether the kind is, or is about to be, served."""
    established = condition(crd, "Established")
    return established is not None and established.status == "True"
