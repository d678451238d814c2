"""The file with an AuthorizationConfiguration, followed while the server runs."""

from pathlib import Path

from kedge.apiserver.authorization import configuration
from kedge.apiserver.authorization.attributes import Decision
from kedge.apiserver.authorization.authorizer import Authorizer, Decide, OwnAuthorizer
from kedge.apiserver.authorization.configuration import (
    AuthorizationConfiguration,
    AuthorizerConfiguration,
)
from kedge.apiserver.authorization.webhook import WebhookAuthorizer
from kedge.apiserver.config_reload import ReloadLog
from kedge.apiserver.configuration_file import ConfigurationFileError
from kedge.apiserver.followed_file import FollowedFile
from kedge.apiserver.review_webhook import ReviewWebhook
from kedge.apiserver.webhooks.answer_budget import AnswerBudget
from kedge.machinery.clock import Clock
from kedge.machinery.durations import parse_duration


class ConfiguredAuthorizers:
    """Asks the authorizers that the file names now."""

    def __init__(
        self, path: Path, authorizer: Authorizer, clock: Clock, budget: AnswerBudget | None = None
    ) -> None:
        """Read the file; ConfigurationFileError if it is invalid. `budget` is the memory for
        answers."""
        self._budget = budget or AnswerBudget()
        self.log = ReloadLog("authorization", clock)
        self._authorizer = authorizer
        self._clock = clock
        self._file = FollowedFile(path, clock)
        self._webhooks: list[ReviewWebhook] = []
        self._former: list[ReviewWebhook] = []
        """Webhooks of the file before, which requests under way may still ask."""
        file = configuration.read(path)
        self._own = own_types(file)
        """The types without webhooks at the start, which the file must keep."""
        self._configure(file)

    async def run(self) -> None:
        """Follow the file until cancelled."""
        await self._file.follow(self._replace)

    async def close(self) -> None:
        for webhook in (*self._former, *self._webhooks):
            await webhook.close()

    async def _replace(self) -> bool:
        try:
            file = self._file.read(configuration.parse)
            self._check_types(file)
            unused, self._former = self._former, self._webhooks
            self._configure(file)
        except ConfigurationFileError as error:
            self.log.failed(error)
        else:
            self.log.succeeded()
            for webhook in unused:
                await webhook.close()
        return True

    def _check_types(self, file: AuthorizationConfiguration) -> None:
        """Refuse what upstream refuses: nodes and roles cannot lose their effect by a reload."""
        if missing := sorted(self._own - own_types(file)):
            raise ConfigurationFileError(f"missing required types: [{' '.join(missing)}]")

    def _configure(self, file: AuthorizationConfiguration) -> None:
        made: list[ReviewWebhook] = []
        chain = [self._decide(each, made) for each in file.authorizers]
        self._webhooks = made
        self._authorizer.configure(chain)

    def _decide(
        self, each: AuthorizerConfiguration, made: list[ReviewWebhook]
    ) -> Decide | OwnAuthorizer:
        if each.type == "Node":
            return "Node"
        if each.type == "RBAC":
            return "RBAC"
        hook = each.webhook
        if hook is None:
            return lambda asked: Decision(each.type == "AlwaysAllow", final=True)
        path = Path(hook.connection_info.kube_config_file or "")
        seconds = parse_duration(hook.timeout) / 1e9
        webhook = ReviewWebhook(path, self._clock, seconds, self._budget)
        made.append(webhook)
        return WebhookAuthorizer(each.name, hook, webhook, self._clock).decide


def own_types(file: AuthorizationConfiguration) -> set[str]:
    """Return the types of authorizers that are not webhooks."""
    return {each.type for each in file.authorizers if each.type != configuration.WEBHOOK}
