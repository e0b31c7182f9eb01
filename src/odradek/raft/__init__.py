"""The quorum that orders the metadata log, as a pure state machine."""
