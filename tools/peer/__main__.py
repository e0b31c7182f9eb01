"""`python -m tools.peer`: run Apache Kafka in the foreground until Ctrl-C or SIGTERM."""

import signal
import sys

from tools.peer.kafka import KafkaPeer, PeerUnavailable


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with KafkaPeer() as kafka:
            print(f"listening on {kafka.bootstrap}", flush=True)
            signal.pause()
    except PeerUnavailable as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
