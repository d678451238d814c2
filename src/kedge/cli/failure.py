"""How a command fails: in one paragraph that says what happened and what to do about it."""


class Failure(Exception):
    """The command cannot do what it was asked; the message is all that the user gets to see."""

    @property
    def said(self) -> str:
        return f"error: {self}"


class Refusal(Failure):
    """The server would not do it; the message says so by itself."""

    @property
    def said(self) -> str:
        return str(self)
