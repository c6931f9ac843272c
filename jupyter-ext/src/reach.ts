import { Problem } from "./comm";

/** A GET within the Jupyter server, with the page's own cookies. */
export type Get = (url: string) => Promise<Response>;

/**
 * Makes sure that a board can be reached before it is framed: an error page in a frame tells the reader nothing.
 * Throws a Problem that says what to do.
 */
export async function reach(get: Get, baseUrl: string, path: string): Promise<void> {
  const answer = await get(baseUrl + path + "data/environment");
  if (answer.ok) {
    return;
  }
  const said = await firstLine(answer);
  if (answer.status !== 404) {
    throw new Problem(`TensorBoard does not answer (HTTP ${answer.status.toString()}): ${said}`);
  }
  const info = await get(baseUrl + "server-proxy/servers-info");
  if (!info.ok) {
    throw new Problem(
      "jupyter-server-proxy is not installed where JupyterLab runs: pip install jupyter-server-proxy, " +
        "then restart JupyterLab (the kernel may go on).",
    );
  }
  if (!knowsBroker(await info.json())) {
    throw new Problem(
      "JupyterLab does not know tfcluster yet: run tfcluster install, then restart JupyterLab (the kernel may go on).",
    );
  }
  throw new Problem("This cluster's TensorBoard is gone: %tfcluster tensorboard opens it again.");
}

function knowsBroker(info: unknown): boolean {
  const servers = (info as { server_processes?: unknown } | null)?.server_processes;
  return Array.isArray(servers) && servers.some((s: { name?: unknown } | null) => s?.name === "tfcluster");
}

/** What is short and plain enough to show; an HTML error page, which is jupyter-server-proxy's own, is not. */
async function firstLine(answer: Response): Promise<string> {
  const text = (await answer.text()).trim();
  return text.startsWith("<")
    ? answer.statusText +
        ". JupyterLab's log says why; where tfcluster was moved, tfcluster install mends it."
    : (text.split("\n")[0] ?? "").slice(0, 300);
}
