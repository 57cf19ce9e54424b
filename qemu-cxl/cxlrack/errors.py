"""What goes wrong with a rack, as one exception: it says what, why and what to do."""


class RackError(Exception):
    """The message is for the person who runs the rack."""


class CommandFailed(RackError):
    """A command in a host ended with another status than 0. `result` is a channel.Result."""

    def __init__(self, message: str, result):
        super().__init__(message)
        self.result = result
