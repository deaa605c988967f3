"""The web server of the dashboard; `auditor dashboard` starts it with `streamlit run`.

It runs the first page once before anyone asks, so that the imports and the queries of the first visitor are done, and
tells Streamlit's frontend its own address: by default the frontend tries the address of the page first, which is a 404.
"""

import asyncio
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route
from streamlit import config, runtime
from streamlit.file_util import get_static_dir
from streamlit.starlette import App
from streamlit.web.server.server_util import get_display_address, get_url

from auditor.dashboard_settings import read_settings
from dashboard.password import PasswordMiddleware

FOLDER = Path(__file__).parent
ADDRESS = '<script>window.__streamlit = {BACKEND_BASE_URL: new URL("./", location.href).href}</script>'
INDEX = (Path(get_static_dir()) / "index.html").read_text(encoding="utf-8").replace("<head>", f"<head>{ADDRESS}", 1)


async def serve_index(_: Request) -> HTMLResponse:
    return HTMLResponse(INDEX, headers={"Cache-Control": "no-cache"})


@asynccontextmanager
async def warm_up(_: App) -> AsyncIterator[None]:
    """Run the first page behind the start of the server, and open the browser, which takes its time as well."""
    task = asyncio.create_task(runtime.get_instance().does_script_run_without_error())
    if not config.get_option("server.headless"):
        address = get_url(get_display_address(config.get_option("server.address")))
        asyncio.get_running_loop().call_later(0.1, webbrowser.open, address)
    yield
    task.cancel()


pages = [file.stem.removesuffix("_page") for file in FOLDER.glob("screens/*_page.py")]
routes = [Route(f"/{page}", serve_index) for page in ["", *pages]]
password = read_settings().password
middleware = [Middleware(PasswordMiddleware, password)] if password else []
app = App(FOLDER / "app.py", lifespan=warm_up, routes=routes, middleware=middleware)
