"""The official client against `toft mcp`, once for each revision of the protocol. Prints what it saw as JSON."""

import asyncio
import json
import os
import sys

import mcp.client.session as session
from mcp import Client, StdioServerParameters, stdio_client

HANDSHAKE = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
MODERN = ["2026-07-28", "auto"]


async def talk(toft: str, repo: str, revision: str) -> dict:
    if revision in HANDSHAKE:
        session.LATEST_HANDSHAKE_VERSION = revision
    server = StdioServerParameters(command=toft, args=["mcp"], cwd=repo, env=dict(os.environ))
    mode = "legacy" if revision in HANDSHAKE else revision
    async with Client(stdio_client(server), mode=mode) as client:
        me = {"cwd": repo, "agent": "heron"}

        async def call(tool: str, **arguments):
            return await client.call_tool(tool, {**me, **arguments})

        def text(result) -> str:
            return result.content[0].text

        tools = (await client.list_tools()).tools
        primed = await call("prime")
        added = await call("add", title=f"Over {revision}", label=["mcp"], body="said over the protocol")
        issue = added.structured_content["data"]["id"]
        ready = await call("ready", label="mcp")
        claimed = await call("claim", id=issue)
        saved = await call("save", message="half of it")
        context = await call("show", id="@", context=True)
        refused = await call("finish", message="no evidence")
        done = await call("finish", outcome="done", message="all of it", no_change="only said")
        found = await call("search", text="protocol", all=True)
        sent = await call("message", action="send", to="human", text=f"done over {revision}")
        wrong = await call("ready", colour="blue")
        resources = (await client.list_resources()).resources
        templates = (await client.list_resource_templates()).resource_templates
        read = await client.read_resource(f"toft://issue/{issue}")
        try:
            await client.read_resource("toft://nothing/here")
            missing = "found"
        except Exception as error:  # the SDK has one error type per revision
            missing = type(error).__name__
        return {
            "revision": revision,
            "spoken": client.session.protocol_version if hasattr(client.session, "protocol_version") else None,
            "tools": [json.loads(tool.model_dump_json(by_alias=True, exclude_none=True)) for tool in tools],
            "primed": text(primed),
            "issue": issue,
            "ready": text(ready),
            "claim": claimed.structured_content["data"],
            "saved": text(saved),
            "context": text(context),
            "refused": {"is_error": refused.is_error, "text": text(refused), "data": refused.structured_content},
            "done": {"is_error": done.is_error, "text": text(done)},
            "found": text(found),
            "sent": text(sent),
            "wrong": {"is_error": wrong.is_error, "text": text(wrong)},
            "resources": [str(resource.uri) for resource in resources],
            "templates": [template.uri_template for template in templates],
            "read": read.contents[0].text,
            "missing": missing,
        }


async def main() -> None:
    toft, repo = sys.argv[1:3]
    print(json.dumps([await talk(toft, repo, revision) for revision in HANDSHAKE + MODERN]))


asyncio.run(main())
