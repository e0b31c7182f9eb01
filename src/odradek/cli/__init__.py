"""The command `odradek`.

    main            chooses between running brokers (`up`, `broker`), `format` and the client commands (`app`), of which
                    only the one that is run is imported
    command_parser  reads the arguments of these without click; `broker_commands` shows them to click
    up              one broker; several, each in its own process (`up_processes`); one that joins a cluster (`up_join`)
    framework       makes commands from annotated functions; `output`: tables and JSON; `failures`: why something failed

What a cluster is and what to do with it is in `admin/`: commands print what that returns.
"""
