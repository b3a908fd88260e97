"""The tools and resources as the SDK serves them."""

import logging
from binascii import b2a_base64
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

import mcp_types as types
from anyio import create_task_group, sleep
from mcp.server import Server, ServerRequestContext
from mcp.shared.exceptions import MCPError

from ckpt_protocol.version import BUILD
from fabricatio_checkpoint import jsontext, workerthread
from fabricatio_checkpoint.errors import CheckpointError, error_of
from fabricatio_checkpoint.mcp.address import FILE_TEMPLATE, PATCH_TEMPLATE, RECORD_TEMPLATE, read_address
from fabricatio_checkpoint.mcp.answer import Answer, fault
from fabricatio_checkpoint.mcp.desk import Desk, Notice
from fabricatio_checkpoint.mcp.instructions import INSTRUCTIONS
from fabricatio_checkpoint.mcp.pace import Pace
from fabricatio_checkpoint.mcp.resources import Content, list_resources, read_resource
from fabricatio_checkpoint.mcp.schema import input_schema, output_schema
from fabricatio_checkpoint.mcp.tool import Tool
from fabricatio_checkpoint.mcp.tools import TOOLS, run_tool

__all__ = ["make_server"]

_T = TypeVar("_T")
_Context = ServerRequestContext[dict[str, Any], Any]

_TELL_S: Final = 0.25
_LONGEST: Final = 100
_LOGGER: Final = logging.getLogger(__name__)


def make_server(desk: Desk) -> Server[dict[str, Any]]:
    """Make the server of one worktree's tools and resources."""
    serving = _Serving(desk)
    return Server(
        "ckpt",
        version=BUILD,
        title="Checkpoints: undo for this directory",
        instructions=INSTRUCTIONS,
        on_list_tools=serving.list_tools,
        on_call_tool=serving.call_tool,
        on_list_resources=serving.list_resources,
        on_list_resource_templates=serving.list_templates,
        on_read_resource=serving.read_resource,
    )


class _Serving:
    """The handlers. What they raise for the protocol is MCPError; what a tool raises is a result that says so."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def list_tools(self, _: _Context, _params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(tool) for tool in TOOLS.values()])

    async def call_tool(self, context: _Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = TOOLS.get(params.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name!r}", {"tools": list(TOOLS)})
        run = partial(run_tool, tool, self._desk, params.arguments, _agent(context))
        try:
            answer = await _blocking(context, run)
        except CheckpointError as error:
            # No structured content: it would have to be as the tool's schema says.
            return types.CallToolResult(content=[_text(jsontext.dumps(fault(error)))], is_error=True)
        return types.CallToolResult(content=[_text(_told(answer))], structured_content=answer.structured)

    async def list_resources(
        self, context: _Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        cursor = params.cursor if params else None
        if cursor is not None and not cursor.removeprefix("-").isdecimal():
            raise MCPError(types.INVALID_PARAMS, "this is no cursor of this server")
        seq = None if cursor is None else int(cursor)
        listed, following = await _or_protocol_error(context, lambda _tell: list_resources(self._desk, seq))
        resources = [
            types.Resource(
                uri=each.uri,
                name=each.name,
                description=each.text,
                mime_type="application/json",
                annotations=types.Annotations(last_modified=each.time),
            )
            for each in listed
        ]
        return types.ListResourcesResult(resources=resources, next_cursor=None if following is None else str(following))

    async def list_templates(
        self, _: _Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(
            resource_templates=[
                types.ResourceTemplate(
                    uri_template=RECORD_TEMPLATE,
                    name="checkpoint",
                    description="A checkpoint and which files it changed. id: in any form, percent-encoded.",
                    mime_type="application/json",
                ),
                types.ResourceTemplate(
                    uri_template=PATCH_TEMPLATE,
                    name="patch of a checkpoint",
                    description="What a checkpoint changed since the one that it was compared with, as a patch.",
                    mime_type="text/x-diff",
                ),
                types.ResourceTemplate(
                    uri_template=FILE_TEMPLATE,
                    name="file of a checkpoint",
                    description="A file as it was. path: relative to the worktree, its bytes percent-encoded.",
                ),
            ]
        )

    async def read_resource(
        self, context: _Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        contents = await _or_protocol_error(context, lambda _tell: read_resource(self._desk, read_address(uri)))
        return types.ReadResourceResult(contents=[_content(uri, content) for content in contents])


async def _blocking(context: _Context, work: Callable[[Notice], _T]) -> _T:
    """Run what blocks in a thread, and tell meanwhile how far it is; cancelled, it is called off in the daemon.

    Raises CheckpointError and nothing else: what is not expected goes to stderr, and is a fault of ours.
    """
    pace = _Latest()
    outcome: _T | CheckpointError
    async with create_task_group() as group:
        group.start_soon(pace.tell, context)
        try:
            outcome = await workerthread.run(partial(work, pace.take))
        except CheckpointError as error:
            outcome = error
        # The last line of defence: a bug costs one answer, and no text of it goes to the model.
        except Exception:
            _LOGGER.exception("%s failed", context.method)
            outcome = error_of("internal", "a fault of this server; its stderr has the details")
        group.cancel_scope.cancel()
    if isinstance(outcome, CheckpointError):
        raise outcome
    return outcome


async def _or_protocol_error(context: _Context, work: Callable[[Notice], _T]) -> _T:
    try:
        return await _blocking(context, work)
    except CheckpointError as error:
        told = fault(error)["error"]
        code = types.INTERNAL_ERROR if error.kind == "internal" else types.INVALID_PARAMS
        raise MCPError(code, told["message"], told) from error


class _Latest:
    """The newest notification of progress. It is looked at: the thread that gets it need not wait for anybody."""

    def __init__(self) -> None:
        self._pace = Pace()
        self._notice: dict[str, Any] | None = None

    def take(self, notice: dict[str, Any]) -> None:
        """Take one, in any thread."""
        self._notice = notice

    async def tell(self, context: _Context) -> None:
        """Pass on what is new, until cancelled."""
        while True:
            await sleep(_TELL_S)
            notice, self._notice = self._notice, None
            told = self._pace.told(notice) if notice else None
            if told is not None:
                await context.session.report_progress(told.progress, message=told.message)


def _described(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.text,
        input_schema=input_schema(tool.arguments),
        output_schema=output_schema(tool.result),
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=not tool.writes,
            destructive_hint=tool.destroys,
            idempotent_hint=tool.repeatable or not tool.writes,
            open_world_hint=False,
        ),
    )


def _agent(context: _Context) -> str | None:
    """What the client calls itself."""
    client = context.session.client_params
    return client.client_info.name[:_LONGEST] if client is not None else None


def _told(answer: Answer) -> str:
    return jsontext.dumps(answer.structured) if answer.text is None else answer.text


def _text(text: str) -> types.TextContent:
    return types.TextContent(text=text)


def _content(uri: str, content: Content) -> types.TextResourceContents | types.BlobResourceContents:
    if isinstance(content.data, str):
        return types.TextResourceContents(uri=uri, mime_type=content.mime_type, text=content.data)
    blob = b2a_base64(content.data, newline=False).decode("ascii")
    return types.BlobResourceContents(uri=uri, mime_type=content.mime_type, blob=blob)
