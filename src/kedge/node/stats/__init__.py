"""The door of a node to kedge.metrics: reads counters each second, publishes each tick."""
