"""The controller's decisions, pure: an image and a request in, metadata records and a response out."""
