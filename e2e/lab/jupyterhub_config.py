"""JupyterHub below a base URL, with JupyterLab for whoever has the test's password; hub_test.go sets the variables."""

import os
import sys

hub, proxy, api = os.environ["HUB_PORTS"].split()

c = get_config()  # noqa: F821  Jupyter defines it
c.JupyterHub.bind_url = f"http://127.0.0.1:{proxy}/team/"
c.JupyterHub.hub_ip, c.JupyterHub.hub_port = "127.0.0.1", int(hub)
c.JupyterHub.db_url = "sqlite://"
c.JupyterHub.cookie_secret = os.urandom(32)
c.ConfigurableHTTPProxy.command = ["node", os.environ["HUB_PROXY"]]
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{api}"
c.ConfigurableHTTPProxy.pid_file = os.path.join(os.environ["HOME"], "proxy.pid")

c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = os.environ["JUPYTER_TOKEN"]
c.Authenticator.allow_all = True

c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = os.environ["HOME"]
c.Spawner.cmd = [sys.executable, "-m", "jupyterhub.singleuser", "--allow-root", "--LabApp.expose_app_in_browser=True"]
c.Spawner.notebook_dir = os.environ["HUB_NOTEBOOKS"]
kept = ("JUPYTER", "XDG_", "IPYTHONDIR", "PATH", "PYTHONPATH", "TFCLUSTER", "HOME")
c.Spawner.environment = {k: v for k, v in os.environ.items() if k.startswith(kept) and k != "JUPYTER_TOKEN"}
