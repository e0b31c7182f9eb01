"""CRC-32C, of the C extension in the package `crc32c`.

The extension is loaded without its package. The package looks up its own version when it is imported, and for that
Python imports its mail, zip and csv modules: a tenth of a broker's start, and 2 MB.
"""

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec


def _load_extension() -> object:
    package = find_spec("crc32c")
    if package is not None:
        extension = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
        if extension is not None and extension.loader is not None:
            module = module_from_spec(extension)
            extension.loader.exec_module(module)
            return module
    import crc32c  # where it is built in another way, or missing: then this says so

    return crc32c


crc32c = _load_extension().crc32c  # type: ignore[attr-defined]
