"""The OpenAPI description as a page for people. It loads nothing, from nowhere, and runs no script."""

import json
from collections.abc import Iterator
from typing import Any

from graphveil._escape import html

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --get: #15803d; --post: #1d4ed8; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2.5em auto; max-width: 54em; padding: 0 1.5em; }
h1 { margin-bottom: 0; } h1 small { font-weight: 400; font-size: .5em; opacity: .7; }
section { border: 1px solid var(--line); border-radius: .5em; margin: 1.5em 0; padding: .3em 1.2em 1em; }
h2 { font-size: 1.1em; margin: .7em 0 .3em; } h3 { font-size: .9em; margin: 1.2em 0 .3em; }
.method { color: #fff; border-radius: .3em; font-size: .75em; padding: .25em .6em; margin-right: .6em; }
.get { background: var(--get); } .post { background: var(--post); }
code, pre { font: .86em/1.45 ui-monospace, monospace; } nav a { margin-right: 1.2em; white-space: nowrap; }
pre { background: var(--soft); border-radius: .4em; overflow-x: auto; padding: .7em 1em; margin: .3em 0; }
table { border-collapse: collapse; width: 100%; }
td { border-top: 1px solid var(--line); padding: .3em .8em .3em 0; vertical-align: top; }
td:first-child { white-space: nowrap; width: 9em; } details { margin-top: 2em; } summary { cursor: pointer; }
"""


def page_of(described: dict[str, Any]) -> str:
    """Return the page."""
    told = [
        (path, method, one) for path, methods in described["paths"].items() for method, one in methods.items()
    ]
    links = "".join(
        f'<a href="#{html(one["operationId"])}"><code>{html(path)}</code></a>' for path, _, one in told
    )
    sections = "".join(_section(described, *one) for one in told)
    about = described["info"]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html(about['title'])}</title><style>{_STYLE}</style>"
        f"<h1>{html(about['title'])} <small>{html(about['version'])}</small></h1>"
        f"<p>{html(about['description'])}</p>"
        f'<nav>{links}<a href="openapi.json">openapi.json</a></nav>{sections}</html>'
    )


def _section(described: dict[str, Any], path: str, method: str, told: dict[str, Any]) -> str:
    parts = [
        f'<section id="{html(told["operationId"])}"><h2><span class="method {method}">{method.upper()}</span>'
        f"<code>{html(path)}</code></h2><p>{html(told['summary'])}. {html(told.get('description', ''))}</p>"
    ]
    if "security" in told:
        parts.append("<p>Needs a key: <code>Authorization: Bearer KEY</code></p>")
    if told.get("parameters"):
        rows = (
            (one["name"], one["schema"].get("description", one.get("description", "")))
            for one in told["parameters"]
        )
        parts.append("<h3>Parameters</h3>" + _table(rows))
    if "requestBody" in told:
        schema = told["requestBody"]["content"]["application/json"]["schema"]
        parts.append("<h3>Question</h3>" + _body(described, schema))
    parts.append(
        "<h3>Answers</h3>"
        + _table((str(status), one["description"]) for status, one in told["responses"].items())
    )
    return "".join(parts) + "</section>"


def _body(described: dict[str, Any], reference: dict[str, Any]) -> str:
    """Return a body's fields, after examples of the whole."""
    schema = described["components"]["schemas"][reference["$ref"].rpartition("/")[2]]
    examples = "".join(f"<pre>{html(json.dumps(one))}</pre>" for one in schema.get("examples", ()))
    fields = ((name, one.get("description", "")) for name, one in schema["properties"].items())
    return examples + _table(fields)


def _table(rows: "Iterator[tuple[str, str]]") -> str:
    cells = (f"<tr><td><code>{html(first)}</code></td><td>{html(second)}</td></tr>" for first, second in rows)
    return f"<table>{''.join(cells)}</table>"
