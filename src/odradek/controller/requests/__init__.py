"""The requests that the controller decides, one module for each API (see `controller.controller`)."""
