import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import { PageConfig } from "@jupyterlab/coreutils";
import { INotebookTracker } from "@jupyterlab/notebook";
import { IRenderMimeRegistry } from "@jupyterlab/rendermime";
import { MIME } from "./comm";
import { panelPlugin } from "./panel/plugin";
import { BoardView, type Host, type Session } from "./view";

/** Shows a cluster's TensorBoard in the output that names it, in JupyterLab and in Notebook 7. */
const plugin: JupyterFrontEndPlugin<void> = {
  id: "tfcluster-lab:tensorboard",
  description: "TensorBoard of a tfcluster in the cell that asked for it",
  autoStart: true,
  requires: [IRenderMimeRegistry],
  optional: [INotebookTracker],
  activate: (_: JupyterFrontEnd, rendermime: IRenderMimeRegistry, notebooks: INotebookTracker | null) => {
    const host: Host = {
      baseUrl: PageConfig.getBaseUrl(),
      get: (url) => fetch(url, { credentials: "same-origin" }),
      sessions: (output) => sessionsFor(output, notebooks),
    };
    rendermime.addFactory(
      { safe: true, mimeTypes: [MIME], createRenderer: () => new BoardView(host) },
      0, // before text/html, which stands beside it for other front ends
    );
  },
};

/** An output that was opened beside its notebook is in no panel: then every open notebook may know its board. */
function sessionsFor(output: Node, notebooks: INotebookTracker | null): Session[] {
  const all: Session[] = [];
  let own: Session | undefined;
  notebooks?.forEach((panel) => {
    all.push(panel.sessionContext);
    if (panel.node.contains(output)) {
      own = panel.sessionContext;
    }
  });
  return own ? [own] : all;
}

export default [plugin, panelPlugin];
