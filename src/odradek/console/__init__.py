"""A web console: what a cluster is, what is wrong with it, and what to do, on pages that refresh by themselves.

It is a client like any other, and works against any Kafka; what a cluster does not serve is not offered. It runs in a
process of its own (`odradek console`, `odradek up --console`) and needs the extra `odradek[console]`.

    settings     what a console is started with; `serve` runs it, `app` puts it together
    gate         what every request passes before it is routed: host, origin, session, token, size
    sessions     who looks, and the token that changes need; `users`: roles and hashed passwords; `audit`: who did what
    requests     what a page or an action is given (`Ask`), and query and body as dataclasses
    registry     what a page and an action are, and the routes made from them; `openapi` describes them
    rendering    templates; `stream`: the one event stream of each browser
    clusters     the clusters of a console, each with its poller
    watch/       what a poller asks, and what it has seen; pure differences of that are events
    messages/    records of topics: read, searched by a child process, shown safely, exported
    picture/     a topic drawn: scenes, sentences about what changed, and where everything goes
    pages/       one module for each noun; `templates/` and `static/` have what belongs to it

How a page is added:

1. `pages/<noun>.py` has `PAGES`, a list of `Page`: a path below the cluster, a function `view(ask)` that returns a
   dataclass, a template. It may have `ACTIONS`, a list of `Action`: a method, a path, a function, the role it needs.
   The page is served at `/c/<cluster>/<path>`, the same dataclass as JSON at `/api/clusters/<cluster>/<path>`.
2. `templates/<noun>.html` extends `base.html`. What should refresh is in a template of its own, named by
   `Page.live_template`, inside `<section data-live>`; `Page.parts` says which parts of the watch it depends on.
3. `static/<noun>.js`, if the page needs behaviour, is an ES module that `base.html` loads (`Page.script`). Forms with
   `data-action` need none: `actions.js` sends them, and shows what the cluster said.
4. The module is named in `pages/__init__.py`, in the order of the navigation.

There is no inline script and no inline style: the Content-Security-Policy forbids them. Nothing that came from a
cluster is marked safe in a template, or assigned to `innerHTML` in a module.
"""
