"""Finds what a module reaches of the real world: clocks, threads, sockets, processes, files, chance.

A list of all that is forbidden always lacks something. So this one says what is allowed: of the standard library and
of other packages, a module that a node is built from may use what is named here, and what is not named is a way
around the host. Names are followed through `import ... as`, `from ... import ...`, and through our own modules.

What cannot be seen in the text (`getattr` with a name that is computed) is seen in `tests/host/test_outside_world.py`,
where a node runs and every call of the interpreter's own functions is looked at.
"""

import ast
import inspect
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import odradek

ROOT = Path(odradek.__file__).parent

PACKAGES_OF_A_NODE = (
    *(
        "wording",
        "errors",
        "model",
        "acls",
        "wire",
        "records",
        "security",
        "storage",
        "config",
        "host",
        "raft",
        "quotas",
    ),
    *("apis", "metadata", "net", "controller", "replication", "coordinators", "serving", "services"),
    "fetching",
    *("api", "broker"),
)
# These run beside a node: the process around it, the one that compacts for it, and a disk for tests that want faults.
BESIDE_A_NODE = {
    "security/authority.py",  # makes certificates before there is a node
    "broker/__init__.py",
    "broker/main.py",
    "broker/collector.py",
    "broker/descriptors.py",
    "descriptors.py",
    "broker/service_manager.py",
    "storage/compaction/worker.py",
    "storage/disk/lossy.py",
}

PURE = {
    *(
        "__future__",
        "array",
        "base64",
        "bisect",
        "collections",
        "collections.abc",
        "contextlib",
        "contextvars",
    ),
    *(
        "copy",
        "dataclasses",
        "difflib",
        "enum",
        "errno",
        "functools",
        "hashlib",
        "heapq",
        "hmac",
        "ipaddress",
        "itertools",
        "json",
    ),
    *("math", "mmap", "operator", "re", "struct", "tomllib", "types", "typing"),
    *("aiokafka.record._crecords.default_records", "cramjam", "crc32c", "re2"),
}
# Of other modules, only this may be used. Coroutines may stay: the event loop of the simulated host keeps virtual time.
NAMES = {
    *("asyncio.AbstractEventLoop", "asyncio.BaseEventLoop", "asyncio.CancelledError", "asyncio.Event"),
    "asyncio.Future",
    *("asyncio.Handle", "asyncio.Lock", "asyncio.Task", "asyncio.TimerHandle", "asyncio.gather"),
    *("asyncio.get_running_loop", "asyncio.shield", "asyncio.sleep", "asyncio.timeout", "asyncio.Timeout"),
    *("logging.DEBUG", "logging.ERROR", "logging.Filter", "logging.INFO", "logging.LogRecord"),
    *("logging.Logger", "logging.WARNING"),
    "logging.getLogger",
    *("cramjam.gzip", "cramjam.lz4", "cramjam.snappy", "cramjam.zstd"),
    *("os.path.dirname", "os.path.join"),
    "pathlib.Path",
    "random.Random",
    "sys.maxsize",
    "uuid.UUID",
}
# Methods of an event loop, or of a path: the loop that a node runs on is real on a real host.
METHODS = {
    *("run_in_executor", "set_default_executor", "subprocess_exec", "subprocess_shell"),
    *("create_server", "create_connection", "create_unix_server", "create_unix_connection"),
    *("create_datagram_endpoint", "connect_read_pipe", "connect_write_pipe", "add_signal_handler"),
    *("add_reader", "add_writer", "getaddrinfo", "getnameinfo"),
    *("sock_accept", "sock_connect", "sock_recv", "sock_recv_into", "sock_sendall", "sock_sendfile"),
    *("read_text", "read_bytes", "write_text", "write_bytes", "iterdir", "mkdir", "rmdir", "unlink"),
}
BUILTINS = {"__import__", "breakpoint", "eval", "exec", "globals", "hash", "id", "input", "open"}
# The real world itself, and the few with a reason of their own.
ALLOWED = {
    "host/real.py": {"asyncio", "concurrent", "os", "run_in_executor", "socket", "sys", "time"},
    "host/simulated.py": {"gc"},
    "net/output.py": {"os"},
    "net/pages.py": {
        *("asyncio.AbstractServer", "asyncio.BaseTransport", "asyncio.Protocol", "asyncio.Transport"),
        "create_server",
    },
    "net/plaintext.py": {"os", "socket"},
    "net/security.py": {"ssl.SSLContext"},  # its type
    "net/server.py": {"add_reader", "create_server", "getaddrinfo", "socket"},
    "net/sockets.py": {"getaddrinfo", "sock_connect", "socket"},
    "net/stream.py": {"add_reader", "add_writer", "socket"},
    "net/tls.py": {"socket"},
    "net/tls_session.py": {"ssl"},  # between buffers in memory
    "storage/disk/files.py": {"ctypes", "fcntl", "os", "shutil", "unlink"},
    "storage/disk/shortage.py": {"os"},  # descriptors that real files are given in need
    "api/metadata.py": {"hash"},  # of an id, for a cache
    "apis/messages.py": {"importlib.import_module"},  # of our own modules
    "serving/registry.py": {"importlib.import_module"},  # of our own modules
    "broker/coordinators.py": {"importlib.import_module"},  # of our own modules
    "controller/controller.py": {"importlib.import_module"},
    "records/crc.py": {"importlib"},  # of a C extension, which computes and nothing else
    "config/sources.py": {"read_text"},  # the settings, before there is a node
    "security/contexts.py": {"ssl"},  # settings of OpenSSL, no sockets
    "security/key_sets.py": {  # read in a thread of the host, within a real time
        *("jwt", "read_bytes", "urllib"),
        *("cryptography.exceptions", "http.client", "time.monotonic"),
    },
    "security/stores.py": {"cryptography", "os", "read_bytes", "tempfile"},
    "security/tokens.py": {"jwt"},  # signatures; the time is an argument
    "wire/source.py": {"exec"},  # of the readers and writers that it makes
    "wire/schema.py": {"exec"},  # of the constructors that it makes
}


def modules_of_a_node() -> list[Path]:
    """All of its packages: not only what is imported by name, for handlers of requests are not."""
    found = [path for name in PACKAGES_OF_A_NODE for path in (ROOT / name).rglob("*.py")]
    found += [path for name in PACKAGES_OF_A_NODE if (path := ROOT / f"{name}.py").exists()]
    return sorted(path for path in found if path.relative_to(ROOT).as_posix() not in BESIDE_A_NODE)


def ways_around(path: Path) -> Iterator[str]:
    """Yield what a module of ours reaches of the real world, and should not."""
    name = path.relative_to(ROOT).as_posix()
    allowed = ALLOWED.get(name, set())
    for reached in reached_by(path.read_text()):
        if not any(reached == one or reached.startswith(f"{one}.") for one in allowed):
            yield f"{name}: {reached}"


def reached_by(source: str) -> Iterator[str]:
    tree = ast.parse(source)
    known = imported_names(tree)
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from _reached_by_import(node)
        elif isinstance(node, (ast.Name, ast.Attribute)) and id(node) not in inner:
            yield from _reached_by_name(node, known)
        elif isinstance(node, ast.Call):
            yield from _reached_by_call(node)
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            yield node.attr


def imported_names(tree: ast.AST) -> dict[str, str]:
    """Return what each name means that is imported anywhere in a module."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                found[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found


@cache
def _imported_by(path: Path) -> dict[str, str]:
    return imported_names(ast.parse(path.read_text()))


def _reached_by_import(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name.split(".")[0] not in {name.split(".")[0] for name in (*PURE, *NAMES, "odradek")}:
                yield alias.name
        return
    if node.level:
        yield "a relative import, which this check does not follow"
    for alias in node.names:
        if alias.name == "*":
            yield f"everything of {node.module}"
        else:
            yield from _forbidden(f"{node.module}.{alias.name}")


def _dotted(node: ast.expr) -> list[str]:
    """The names in `a.b.c`; nothing where it is an attribute of something else, as of the outcome of a call."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute) and (before := _dotted(node.value)):
        return [*before, node.attr]
    return []


def _reached_by_name(node: ast.Name | ast.Attribute, known: dict[str, str]) -> Iterator[str]:
    parts = _dotted(node)
    if not parts:
        return
    if parts[0] in known:
        yield from _forbidden(".".join([known[parts[0]], *parts[1:]]))
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in BUILTINS:
        yield node.id
    elif parts[0] == "__builtins__":
        yield "__builtins__"


def _reached_by_call(node: ast.Call) -> Iterator[str]:
    name = ast.unparse(node.func).split(".")[-1]
    is_empty = not node.args or ast.unparse(node.args[0]) == "None"
    if name == "Random" and is_empty:
        yield "a Random without a seed"
    elif name == "seed" and is_empty:
        yield "a seed from the system"
    elif name == "getattr" and len(node.args) > 1:
        wanted = node.args[1]
        if isinstance(wanted, ast.Constant) and wanted.value in METHODS:
            yield str(wanted.value)


def _forbidden(name: str) -> Iterator[str]:
    """The name itself, unless it is allowed; what it means where it is ours and was imported there."""
    if name.split(".")[0] == "odradek":
        yield from _reached_through(name)
        return
    if any(name == one or name.startswith(f"{one}.") for one in NAMES):
        return
    module = max((one for one in PURE if name == one or name.startswith(f"{one}.")), key=len, default=None)
    if module is None or _leads_elsewhere(module, name):
        yield name


def _leads_elsewhere(module: str, name: str) -> bool:
    """True if it is what a pure module imports for itself, as `contextlib.os`."""
    if name == module:
        return False
    found = getattr(import_module(module), name.removeprefix(f"{module}.").split(".")[0], None)
    return inspect.ismodule(found) and found.__name__.split(".")[0] not in {one.split(".")[0] for one in PURE}


def _reached_through(name: str) -> Iterator[str]:
    parts = name.split(".")
    for count in range(len(parts), 1, -1):
        path = ROOT.joinpath(*parts[1:count]).with_suffix(".py")
        if path.exists():
            if path.relative_to(ROOT).as_posix() in BESIDE_A_NODE:
                yield name
            meant = _imported_by(path).get(parts[count] if count < len(parts) else "")
            if meant is not None:
                yield from _forbidden(".".join([meant, *parts[count + 1 :]]))
            return
